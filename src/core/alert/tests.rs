use jiff::SignedDuration;
use proptest::prelude::*;

use super::*;
use crate::core::reason::Reason;
use crate::core::signal::{Reading, SignalState};

fn t(second: i64) -> Timestamp {
    Timestamp::from_second(1_750_000_000 + second).unwrap()
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn matchers(texts: &[&str]) -> Matchers {
    Matchers::new(texts.iter().map(|t| Matcher::parse(t).unwrap()).collect())
}

fn signal(texts: &[&str]) -> AlertSignal {
    AlertSignal {
        source: "am".to_owned(),
        matchers: matchers(texts),
        silenced: false,
        inhibited: false,
    }
}

fn fragmented() -> Alert {
    Alert {
        labels: labels(&[("alertname", "etcdFragmented"), ("severity", "warning")]),
        starts_at: t(10),
        updated_at: t(90),
        ..Alert::default()
    }
}

#[test]
fn matchers_are_read_as_alertmanager_reads_them() {
    let of = labels(&[
        ("severity", "warning"),
        ("a name", "ü"),
        ("path", r"a\b"),
        ("empty", ""),
    ]);
    for (text, holds) in [
        (r#"severity="warning""#, true),
        (r#"severity=warning"#, true),
        (r#" severity = "warning" "#, true),
        (r#"severity!="warning""#, false),
        (r#"severity=~"warn.*|critical""#, true),
        (r#"severity=~"warn""#, false),
        (r#"severity=~warning|critical"#, true),
        (r#"severity!~"warn""#, true),
        (r#""a name"="ü""#, true),
        (r#""a name"="\u00fc""#, true),
        (r#""a name"=~"[^a-z]""#, true),
        (r#"path="a\\b""#, true),
        (r#"path=~"a\\\\b""#, true),
        (r#"severity=~"w\w+""#, true),
        (r#"severity=~"\x77arning""#, true),
        (r#"severity=~"\x{77}arning""#, true),
        (r#"nobody="""#, true),
        (r#"nobody!="""#, false),
        (r#"nobody=~".+""#, false),
        (r#"empty=~".*""#, true),
    ] {
        let matcher = Matcher::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let one = Matchers::new(vec![matcher.clone()]);
        assert_eq!(one.match_labels(&of), holds, "{text}");
        let again = Matcher::parse(&matcher.to_string());
        assert_eq!(
            again,
            Ok(matcher),
            "{text} is written so that it is read again"
        );
    }
    assert!(matchers(&[r#"a=~".*""#, r#"b!="x""#]).match_nothing_in_particular());
    assert!(!matchers(&[r#"a=~".*""#, r#"b="x""#]).match_nothing_in_particular());
}

#[test]
fn what_is_no_matcher_says_what_is_wrong_and_where() {
    for (text, words) in [
        ("", "it is empty"),
        ("  ", "it is empty"),
        ("=\"x\"", "no label name at character 1"),
        ("\"\"=\"x\"", "no label name at character 1"),
        ("{alertname=\"x\"}", "no label name at character 1"),
        ("alertname", "no operator at character 10"),
        ("alertname ~ \"x\"", "no operator at character 11"),
        ("alertname==\"x\"", "no value at character 11"),
        ("alertname=", "no value at character 11"),
        (
            "alertname=\"x",
            "the quote that opens at character 11 is never closed",
        ),
        ("alertname=\"x\\", "never closed"),
        (
            "alertname='x'",
            "'\\'' at character 11 has to stand in quotes",
        ),
        (
            "alertname=\"x\", b=\"y\"",
            "',' at character 14 is left over",
        ),
        ("alertname=x y", "'y' at character 13 is left over"),
        ("alertname=~\"(\"", "no regular expression: unclosed group"),
    ] {
        let said = Matcher::parse(text).unwrap_err().to_string();
        assert!(
            said.contains(words),
            "{text}\n  wanted {words}\n  got    {said}"
        );
    }
    let long = format!("a=\"{}\"", "x".repeat(MAX_MATCHER));
    assert!(
        Matcher::parse(&long)
            .unwrap_err()
            .to_string()
            .contains("at most 1024")
    );
}

proptest! {
    #[test]
    fn a_matcher_survives_being_written(name in "\\PC{1,12}", value in "(?s).{0,24}") {
        let matcher = Matcher::parse(&Matchers::new(vec![]).to_string());
        prop_assert!(matcher.is_err());
        let quoted = |text: &str| format!("{text:?}");
        if let Ok(matcher) = Matcher::parse(&format!("{}={}", quoted(&name), quoted(&value))) {
            prop_assert_eq!(Matcher::parse(&matcher.to_string()), Ok(matcher));
        }
    }
}

#[test]
fn an_active_alert_fires_since_it_started() {
    let mut second = fragmented();
    second.labels.insert("instance".to_owned(), "b".to_owned());
    second.starts_at = t(40);
    second.updated_at = t(95);
    let reading = judge(
        &signal(&["alertname=etcdFragmented"]),
        &[second, fragmented()],
        t(100),
    );
    assert_eq!(
        (
            reading.state,
            reading.value,
            reading.firing_since,
            reading.sampled_at
        ),
        (SignalState::Firing, Some(2.0), Some(t(10)), Some(t(95)))
    );
    assert!(
        reading.message.contains("2 alerts are active"),
        "{}",
        reading.message
    );
    // What the source does not filter is filtered here.
    let reading = judge(&signal(&["severity=critical"]), &[fragmented()], t(100));
    assert_eq!(reading.state, SignalState::NotFiring);
    assert_eq!(reading.message, "no alert matches {severity=\"critical\"}");
    // A clock ahead of ours must not make the episode begin in the future.
    let reading = judge(&signal(&["severity=warning"]), &[fragmented()], t(0));
    assert_eq!(
        (reading.firing_since, reading.sampled_at),
        (Some(t(0)), Some(t(0)))
    );
}

#[test]
fn t79_suppressed_alerts_do_not_fire_unless_asked_and_say_why() {
    let mut silenced = fragmented();
    silenced.silences.push(Silence {
        id: "1b2c".to_owned(),
        author: Some("ops".to_owned()),
        comment: Some("upgrade\n\u{202e}night".to_owned()),
        ends_at: Some(t(3600)),
    });
    let mut asks = signal(&["alertname=etcdFragmented"]);
    let said = judge(&asks, std::slice::from_ref(&silenced), t(100));
    assert_eq!(
        (said.state, said.reason),
        (SignalState::NotFiring, Reason::SignalNotFiring)
    );
    let until = t(3600);
    assert_eq!(
        said.message,
        format!(
            "the alert etcdFragmented{{severity=\"warning\"}} is silenced by 1b2c until {until}, by ops \
             (upgrade \\u{{202e}}night)"
        )
    );
    let mut inhibited = fragmented();
    inhibited.inhibited_by.push("f00d".to_owned());
    let said = judge(&asks, std::slice::from_ref(&inhibited), t(100));
    assert_eq!(said.state, SignalState::NotFiring);
    assert!(
        said.message.ends_with("is inhibited by the alert f00d"),
        "{}",
        said.message
    );
    asks.inhibited = true;
    assert_eq!(
        judge(&asks, std::slice::from_ref(&inhibited), t(100)).state,
        SignalState::Firing
    );
    assert_eq!(
        judge(&asks, std::slice::from_ref(&silenced), t(100)).state,
        SignalState::NotFiring
    );
    asks.silenced = true;
    assert_eq!(
        judge(&asks, &[silenced, inhibited], t(100)).value,
        Some(2.0)
    );
}

#[test]
fn of_two_alertmanagers_one_knows_the_alert_and_one_the_silence() {
    let mut silenced = fragmented();
    silenced.updated_at = t(20);
    silenced.silences.push(Silence {
        id: "x".to_owned(),
        ..Silence::default()
    });
    let mut other = fragmented();
    other.labels.insert("instance".to_owned(), "b".to_owned());
    let merged = merge(vec![vec![fragmented()], vec![silenced, other]]);
    assert_eq!(merged.len(), 2);
    let both = merged.iter().find(|alert| alert.labels.len() == 2).unwrap();
    assert_eq!((both.silences.len(), both.updated_at), (1, t(90)));
    assert_eq!(
        judge(&signal(&["severity=warning"]), &merged, t(100)).value,
        Some(1.0)
    );
}

fn delivered(firing: bool, start: i64, end: Option<i64>) -> Delivered {
    Delivered {
        labels: labels(&[("alertname", "etcdFragmented")]),
        firing,
        starts_at: t(start),
        ends_at: end.map(t),
    }
}

fn pushed(inbox: &Inbox, now: i64) -> Reading {
    let expires = |entry: &Entry| {
        let by_age = entry.received_at + SignedDuration::from_hours(1);
        entry.ends_at.map_or(by_age, |end| end.min(by_age))
    };
    judge_pushed(
        &signal(&["alertname=etcdFragmented"]),
        inbox,
        expires,
        t(now),
    )
}

#[test]
fn t80_t81_repeated_late_and_resolved_deliveries() {
    let mut inbox = Inbox::default();
    assert_eq!(pushed(&inbox, 0).state, SignalState::NoData);
    let mut take = |alert, at| inbox.take(&[alert], t(at)).unwrap()[0];
    assert_eq!(
        take(delivered(false, 0, Some(5)), 6),
        Outcome::Resolved,
        "nothing to end"
    );
    assert_eq!(take(delivered(true, 10, None), 11), Outcome::New);
    assert_eq!(take(delivered(true, 10, None), 12), Outcome::Repeated);
    assert_eq!(
        take(delivered(true, 9, None), 13),
        Outcome::Repeated,
        "the other Alertmanager"
    );
    assert_eq!(take(delivered(false, 0, Some(5)), 14), Outcome::Late);
    let reading = pushed(&inbox, 20);
    assert_eq!(
        (
            reading.state,
            reading.value,
            reading.firing_since,
            reading.sampled_at
        ),
        (SignalState::Firing, Some(1.0), Some(t(10)), Some(t(13)))
    );
    let mut take = |alert, at| inbox.take(&[alert], t(at)).unwrap()[0];
    assert_eq!(take(delivered(false, 10, Some(30)), 31), Outcome::Resolved);
    assert_eq!(
        take(delivered(true, 10, None), 32),
        Outcome::Late,
        "overtaken by its end"
    );
    assert_eq!(take(delivered(false, 10, Some(30)), 33), Outcome::Repeated);
    assert_eq!(pushed(&inbox, 40).state, SignalState::NotFiring);
    let mut take = |alert, at| inbox.take(&[alert], t(at)).unwrap()[0];
    assert_eq!(
        take(delivered(true, 50, None), 51),
        Outcome::New,
        "it fires again"
    );
    assert_eq!(take(delivered(false, 50, Some(60)), 61), Outcome::Resolved);
    assert_eq!(
        take(delivered(true, 50, None), 61 + 301),
        Outcome::New,
        "no delivery is late for so long: somebody still sees it fire"
    );
}

#[test]
fn a_firing_alert_expires_into_no_data_not_into_its_end() {
    let mut inbox = Inbox::default();
    inbox.take(&[delivered(true, 0, None)], t(0)).unwrap();
    assert_eq!(pushed(&inbox, 3599).state, SignalState::Firing);
    let said = pushed(&inbox, 3600);
    assert_eq!(said.state, SignalState::NoData);
    assert!(
        said.message.contains("its end was not delivered"),
        "{}",
        said.message
    );
    inbox
        .take(&[delivered(true, 0, Some(4000))], t(3700))
        .unwrap();
    assert_eq!(pushed(&inbox, 3999).state, SignalState::Firing);
    assert_eq!(
        pushed(&inbox, 4000).state,
        SignalState::NoData,
        "by its own end"
    );
}

#[test]
fn an_inbox_is_bounded_and_takes_all_of_a_delivery_or_nothing() {
    let mut inbox = Inbox::default();
    let many = |firing: bool, from: usize, to: usize| -> Vec<Delivered> {
        (from..to)
            .map(|n| Delivered {
                labels: labels(&[("n", &n.to_string())]),
                ..delivered(firing, 0, None)
            })
            .collect()
    };
    inbox.take(&many(false, 0, 900), t(0)).unwrap();
    inbox.take(&many(true, 900, 1900), t(1)).unwrap();
    assert_eq!(inbox.entries.len(), 1000, "ends made room");
    let before = inbox.clone();
    assert_eq!(
        inbox.take(&many(true, 2000, 2001), t(2)),
        Err(InboxError::Full)
    );
    assert_eq!(inbox, before);
    let long = Delivered {
        labels: labels(&[("n", &"x".repeat(9000))]),
        ..delivered(true, 0, None)
    };
    assert!(matches!(
        inbox.take(std::slice::from_ref(&long), t(2)),
        Err(InboxError::LabelsTooLong { bytes: 9001 })
    ));
    let none = Delivered {
        labels: Labels::new(),
        ..delivered(true, 0, None)
    };
    assert_eq!(inbox.take(&[none], t(2)), Err(InboxError::NoLabels));
    assert_eq!(inbox, before);
    let known = many(true, 900, 901).remove(0);
    let outcomes = inbox.take(&[long, known], t(2));
    assert_eq!(
        outcomes,
        Ok(vec![Outcome::TooLong { bytes: 9001 }, Outcome::Repeated])
    );
    assert_eq!(inbox.entries.len(), 1000);
}

proptest! {
    /// T80: whatever the order, and however often, the same firing is known.
    #[test]
    fn the_order_of_deliveries_does_not_matter(
        order in Just(vec![0usize, 1, 2, 3, 0, 1, 2, 3]).prop_shuffle(),
        last_resolved: bool,
    ) {
        let mut said = vec![
            delivered(true, 0, None),
            delivered(false, 0, Some(10)),
            delivered(true, 20, None),
        ];
        said.push(if last_resolved { delivered(false, 20, Some(25)) } else { delivered(true, 20, None) });
        let mut inbox = Inbox::default();
        for (at, which) in order.into_iter().enumerate() {
            inbox.take(&said[which..=which], t(30 + i64::try_from(at).unwrap())).unwrap();
        }
        prop_assert_eq!(inbox.entries.len(), 1);
        let entry = &inbox.entries[0];
        prop_assert_eq!((entry.firing, entry.starts_at), (!last_resolved, t(20)));
    }
}
