use proptest::prelude::*;

use super::*;

const NOW: &str = "2026-01-31T12:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap()
}

fn external(threshold: Threshold, reduce: Option<Reduce>) -> MetricSignal {
    MetricSignal {
        metric: Metric::External {
            name: "etcd_reclaimable".to_owned(),
            selector: String::new(),
        },
        threshold,
        reduce,
    }
}

fn above(limit: &str) -> MetricSignal {
    external(Threshold::Above(quantity(limit)), None)
}

fn object(threshold: Threshold) -> MetricSignal {
    MetricSignal {
        metric: Metric::Object {
            described: DescribedObject {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                name: "etcd-0".to_owned(),
            },
            name: "etcd_free".to_owned(),
            selector: String::new(),
        },
        threshold,
        reduce: None,
    }
}

fn item(value: &str) -> MetricItem {
    MetricItem {
        labels: BTreeMap::new(),
        value: value.to_owned(),
        at: Some(at("2026-01-31T11:59:58Z")),
        window: SignedDuration::ZERO,
        about: None,
        metric: None,
    }
}

fn about(
    item: MetricItem,
    api_version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
) -> MetricItem {
    MetricItem {
        about: Some(About {
            api_version: Some(api_version.to_owned()),
            kind: Some(kind.to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
        }),
        ..item
    }
}

fn answer(items: Vec<MetricItem>) -> MetricAnswer {
    MetricAnswer {
        items,
        received_at: at(NOW),
        ahead: SignedDuration::ZERO,
    }
}

fn judged(signal: &MetricSignal, items: Vec<MetricItem>) -> Reading {
    judge_metric(signal, "team", &answer(items))
}

fn state(signal: &MetricSignal, values: &[&str]) -> SignalState {
    judged(signal, values.iter().map(|value| item(value)).collect()).state
}

#[test]
fn s15_quantities_are_compared_exactly_and_strictly() {
    use SignalState::{Firing, NotFiring};
    for (limit, value, wanted) in [
        ("100Mi", "104857600", NotFiring),
        ("100Mi", "104857601", Firing),
        ("100Mi", "104857600001m", Firing),
        // Neighbours that one f64 stands for.
        ("9007199254740992", "9007199254740993", Firing),
        ("9007199254740993", "9007199254740993", NotFiring),
        ("9223372036854775806", "9223372036854775807", Firing),
        ("500m", "501m", Firing),
        ("0.5", "500m", NotFiring),
        ("1e3", "1001", Firing),
        ("-5", "-4999m", Firing),
    ] {
        assert_eq!(
            state(&above(limit), &[value]),
            wanted,
            "{value} above {limit}"
        );
    }
    let below = external(Threshold::Below(quantity("0.5")), None);
    assert_eq!(state(&below, &["300m"]), Firing);
    assert_eq!(state(&below, &["500m"]), NotFiring);
    assert_eq!(state(&below, &["700m"]), NotFiring);
}

#[test]
fn the_message_shows_sizes_beside_a_size() {
    let reading = judged(&above("100Mi"), vec![item("209715200")]);
    assert_eq!(
        reading.message,
        "the value is 200 MiB (209715200), above 100Mi"
    );
    assert_eq!(reading.value, Some(209_715_200.0));
    let reading = judged(&above("0.5"), vec![item("300m")]);
    assert_eq!(reading.message, "the value is 0.3, not above 0.5");
}

#[test]
fn s87_no_items_are_no_data_and_several_need_reduce() {
    assert_eq!(state(&above("1"), &[]), SignalState::NoData);
    let several = judged(&above("1"), vec![item("5"), item("0"), item("7")]);
    assert_eq!(
        (several.state, several.reason),
        (SignalState::Error, Reason::ResultUnsuitable)
    );
    assert!(several.message.contains("3 values"), "{}", several.message);
    assert!(several.reason.is_configuration());
}

#[test]
fn s87_several_are_reduced() {
    use Reduce::{All, Any, Avg, Max, Min, Sum};
    use SignalState::{Firing, NotFiring};
    let values = ["1", "2", "6"];
    for (threshold, limit, reduce, wanted) in [
        ("above", "5", Any, Firing),
        ("above", "5", Max, Firing),
        ("above", "6", Any, NotFiring),
        ("above", "5", All, NotFiring),
        ("above", "5", Min, NotFiring),
        ("above", "0", All, Firing),
        ("above", "999m", Min, Firing),
        ("below", "2", Any, Firing),
        ("below", "2", Min, Firing),
        ("below", "2", All, NotFiring),
        ("below", "7", Max, Firing),
        ("below", "6", Max, NotFiring),
        ("above", "8", Sum, Firing),
        ("above", "9", Sum, NotFiring),
        ("below", "9001m", Sum, Firing),
        ("above", "3", Avg, NotFiring),
        ("above", "2999m", Avg, Firing),
    ] {
        let limit = quantity(limit);
        let threshold = match threshold {
            "above" => Threshold::Above(limit),
            _ => Threshold::Below(limit),
        };
        let signal = external(threshold, Some(reduce));
        assert_eq!(state(&signal, &values), wanted, "{threshold:?} {reduce:?}");
        assert_eq!(
            state(&signal, &["1000m", "2000m", "6000m"]),
            wanted,
            "in thousandths: {threshold:?} {reduce:?}"
        );
    }
    // A third of 1 is no quantity, and is compared exactly all the same.
    let third = |limit| external(Threshold::Above(quantity(limit)), Some(Avg));
    assert_eq!(state(&third("0.333333333"), &["1", "0", "0"]), Firing);
    assert_eq!(state(&third("0.333333334"), &["1", "0", "0"]), NotFiring);
}

#[test]
fn nan_and_infinity_prove_nothing() {
    use SignalState::{Firing, Inconclusive, NotFiring};
    for odd in NOT_A_NUMBER {
        assert_eq!(state(&above("1"), &[odd]), Inconclusive);
        let below = external(Threshold::Below(quantity("1")), None);
        assert_eq!(state(&below, &[odd]), Inconclusive);
        for (reduce, values, wanted) in [
            (Reduce::Any, [odd, "5"], Firing),
            (Reduce::Any, [odd, "0"], Inconclusive),
            (Reduce::All, [odd, "5"], Inconclusive),
            (Reduce::All, [odd, "0"], NotFiring),
            (Reduce::Sum, [odd, "5"], Inconclusive),
            (Reduce::Avg, ["5", odd], Inconclusive),
        ] {
            let signal = external(Threshold::Above(quantity("1")), Some(reduce));
            assert_eq!(state(&signal, &values), wanted, "{reduce:?} {values:?}");
        }
    }
}

#[test]
fn zero_of_an_object_does_not_fire_as_it_may_be_nan() {
    let zero = || vec![about(item("0"), "/v1", "Pod", "team", "etcd-0")];
    let below = judged(&object(Threshold::Below(quantity("0.5"))), zero());
    assert_eq!(below.state, SignalState::Inconclusive);
    let above = judged(&object(Threshold::Above(quantity("1"))), zero());
    assert_eq!(above.state, SignalState::NotFiring);
    // An external metric's NaN looks otherwise.
    let external = external(Threshold::Below(quantity("0.5")), None);
    assert_eq!(state(&external, &["0"]), SignalState::Firing);
}

#[test]
fn s90_another_objects_answer_is_refused() {
    let signal = object(Threshold::Above(quantity("1")));
    let from = |api: &str, kind: &str, namespace: &str, name: &str| {
        judged(&signal, vec![about(item("5"), api, kind, namespace, name)])
    };
    for own in ["v1", "/v1"] {
        assert_eq!(
            from(own, "Pod", "team", "etcd-0").state,
            SignalState::Firing
        );
    }
    for (api, kind, namespace, name) in [
        ("v1", "Pod", "team", "etcd-1"),
        ("v1", "Node", "team", "etcd-0"),
        ("v1", "Pod", "other", "etcd-0"),
        ("apps/v1", "Pod", "team", "etcd-0"),
    ] {
        let reading = from(api, kind, namespace, name);
        assert_eq!(
            (reading.state, reading.reason),
            (SignalState::Error, Reason::SourceAnswerUnusable),
            "{api} {kind} {namespace} {name}"
        );
        assert!(reading.message.contains("refused"), "{}", reading.message);
    }
    let nobody = judged(&signal, vec![item("5")]);
    assert_eq!(
        nobody.reason,
        Reason::SourceAnswerUnusable,
        "it says nothing"
    );
    let other = MetricItem {
        metric: Some("etcd_used".to_owned()),
        ..item("5")
    };
    assert_eq!(
        judged(&above("1"), vec![other]).reason,
        Reason::SourceAnswerUnusable
    );
}

#[test]
fn an_old_value_is_no_data() {
    let dated = |text: &str| MetricItem {
        at: Some(at(text)),
        ..item("5")
    };
    let state = |text| judged(&above("1"), vec![dated(text)]).state;
    assert_eq!(
        state("2026-01-31T11:55:00Z"),
        SignalState::Firing,
        "exactly the bound"
    );
    assert_eq!(
        state("2026-01-31T12:05:00Z"),
        SignalState::Firing,
        "a bit ahead"
    );
    assert_eq!(state("2026-01-31T12:05:01Z"), SignalState::Inconclusive);
    let old = judged(&above("1"), vec![dated("2026-01-31T11:54:59Z")]);
    assert_eq!(old.state, SignalState::NoData);
    assert!(
        old.message.contains("2026-01-31T11:54:59Z"),
        "{}",
        old.message
    );
    assert!(old.message.contains("5m"), "{}", old.message);
    let mixed = judged(&above("1"), vec![dated("2026-01-31T11:00:00Z"), item("3")]);
    assert_eq!(mixed.state, SignalState::Firing);
    assert!(
        mixed.message.contains("1 older than 5m ignored"),
        "{}",
        mixed.message
    );
}

#[test]
fn the_servers_clock_says_how_old_a_value_is() {
    // This machine is ten minutes behind.
    let ahead = SignedDuration::from_mins(10);
    let answer = MetricAnswer {
        items: vec![MetricItem {
            at: Some(at("2026-01-31T12:09:30Z")),
            window: SignedDuration::from_secs(60),
            ..item("5")
        }],
        received_at: at(NOW),
        ahead,
    };
    let reading = judge_metric(&above("1"), "team", &answer);
    assert_eq!(reading.state, SignalState::Firing);
    assert_eq!(
        reading.sampled_at,
        Some(at("2026-01-31T11:58:30Z")),
        "on this machine's clock, from where the window began"
    );
}

#[test]
fn s37_the_oldest_value_dates_the_evidence() {
    let reading = judged(
        &external(Threshold::Above(quantity("1")), Some(Reduce::Any)),
        vec![
            item("5"),
            MetricItem {
                at: Some(at("2026-01-31T11:57:00Z")),
                ..item("0")
            },
        ],
    );
    assert_eq!(reading.sampled_at, Some(at("2026-01-31T11:57:00Z")));
    let ahead = MetricItem {
        at: Some(at("2026-01-31T12:01:00Z")),
        ..item("5")
    };
    let reading = judged(&above("1"), vec![ahead]);
    assert_eq!(
        reading.sampled_at,
        Some(at(NOW)),
        "never later than the answer"
    );
    let undated = MetricItem {
        at: None,
        ..item("5")
    };
    let reading = judged(&above("1"), vec![undated]);
    assert_eq!(
        (reading.state, reading.sampled_at),
        (SignalState::Firing, None)
    );
}

#[test]
fn what_is_no_quantity_is_an_error() {
    for text in ["", "lots", "1e40"] {
        let reading = judged(&above("1"), vec![item(text)]);
        assert_eq!(reading.reason, Reason::SourceAnswerUnusable, "{text:?}");
    }
}

#[test]
fn s86_missing_is_no_data_at_first_and_an_error_later() {
    let lasting = |minutes| {
        missing(
            "no such metric",
            SignedDuration::from_mins(minutes),
            MISSING_TOLERATED,
        )
    };
    let first = lasting(0);
    assert_eq!(
        (first.state, first.reason),
        (SignalState::NoData, Reason::NoData)
    );
    assert_eq!(first, lasting(14), "nothing to write as time goes by");
    let later = lasting(15);
    assert_eq!(
        (later.state, later.reason),
        (SignalState::Error, Reason::MetricNotFound)
    );
    assert_eq!(later, lasting(200));
    assert!(!later.reason.is_configuration(), "a fallback may decide");
}

proptest! {
    #[test]
    fn one_value_is_judged_as_its_exact_number(value in any::<i64>(), limit in any::<i64>()) {
        let text = format!("{value}m");
        prop_assume!(!NOT_A_NUMBER.contains(&text.as_str()));
        let signal = above(&format!("{limit}m"));
        let wanted = if value > limit { SignalState::Firing } else { SignalState::NotFiring };
        prop_assert_eq!(state(&signal, &[&text]), wanted);
    }

    #[test]
    fn the_order_of_items_does_not_matter(
        values in proptest::collection::vec(-1000_i64..1000, 2..6),
        limit in -1000_i64..1000,
        reduce in proptest::sample::select(vec![
            Reduce::Any, Reduce::All, Reduce::Max, Reduce::Min, Reduce::Avg, Reduce::Sum,
        ]),
    ) {
        let signal = external(Threshold::Above(quantity(&limit.to_string())), Some(reduce));
        let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let reversed: Vec<&str> = texts.iter().rev().copied().collect();
        prop_assert_eq!(state(&signal, &texts), state(&signal, &reversed));
    }
}
