use super::super::super::promql::PromQuery;
use super::super::super::quantity::Quantity;
use super::*;
use SignalState::{Error, Firing, Inconclusive, NoData, NotFiring};

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap()
}

fn above(limit: &str) -> Option<Threshold> {
    Some(Threshold::Above(quantity(limit)))
}

fn below(limit: &str) -> Option<Threshold> {
    Some(Threshold::Below(quantity(limit)))
}

fn signal(query: &str, threshold: Option<Threshold>, reduce: Option<Reduce>) -> PrometheusSignal {
    PrometheusSignal {
        source: "main".to_owned(),
        query: PromQuery::parse(query).unwrap(),
        threshold,
        reduce,
    }
}

fn vector(values: &[f64]) -> Answer {
    let series = values.iter().enumerate().map(|(index, value)| Series {
        labels: BTreeMap::from([("instance".to_owned(), format!("m{index}"))]),
        value: *value,
    });
    Answer {
        result: AnswerKind::Vector(series.collect()),
        warnings: vec![],
        partial: false,
    }
}

fn state(signal: &PrometheusSignal, answer: &Answer) -> SignalState {
    judge(signal, answer, Presence::Unasked).state
}

#[test]
fn s01_numeric_query_without_series_is_no_data() {
    for presence in [Presence::Unasked, Presence::Present, Presence::Absent] {
        let reading = judge(&signal("x", above("1"), None), &vector(&[]), presence);
        assert_eq!(
            (reading.state, reading.reason),
            (NoData, Reason::NoData),
            "{presence:?}"
        );
    }
}

#[test]
fn s02_comparison_without_series_is_false_only_when_its_series_exist() {
    for query in [
        signal("x < 0.5", None, None),
        signal("max(x > 3)", above("5"), None),
    ] {
        let state = |presence| judge(&query, &vector(&[]), presence).state;
        assert_eq!(state(Presence::Present), NotFiring);
        assert_eq!(state(Presence::Absent), NoData);
        assert_eq!(state(Presence::Unasked), NoData);
    }
}

#[test]
fn s03_s04_not_a_finite_number_is_inconclusive() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for query in [
            signal("x", above("1"), None),
            signal("x", below("1"), None),
            signal("x", above("1"), Some(Reduce::Any)),
            signal("x", above("1"), Some(Reduce::Sum)),
            signal("x > 1", None, None),
        ] {
            let reading = judge(&query, &vector(&[value]), Presence::Unasked);
            assert_eq!(
                (reading.state, reading.value),
                (Inconclusive, None),
                "{value} {query:?}"
            );
        }
        let scalar = Answer {
            result: AnswerKind::Scalar(value),
            ..vector(&[])
        };
        assert_eq!(state(&signal("x", above("1"), None), &scalar), Inconclusive);
    }
}

#[test]
fn t78_a_pending_alert_is_not_firing() {
    let alert = |state: &str| Series {
        labels: BTreeMap::from([
            ("alertname".to_owned(), "Fragmented".to_owned()),
            ("alertstate".to_owned(), state.to_owned()),
        ]),
        value: 1.0,
    };
    let answer = |states: &[&str]| Answer {
        result: AnswerKind::Vector(states.iter().map(|state| alert(state)).collect()),
        ..vector(&[])
    };
    let asked = signal("ALERTS{alertname=\"Fragmented\"}", None, None);
    let pending = judge(&asked, &answer(&["pending"]), Presence::Unasked);
    assert_eq!((pending.state, pending.value), (NotFiring, None));
    assert!(pending.message.contains("pending"), "{}", pending.message);
    let both = judge(&asked, &answer(&["pending", "firing"]), Presence::Unasked);
    assert_eq!((both.state, both.value), (Firing, Some(1.0)));
    assert!(both.message.contains("firing"), "{}", both.message);
}

#[test]
fn s03_s04_another_series_decides_only_when_it_truly_does() {
    use Reduce::{All, Any, Avg, Max, Min, Sum};
    let nan = f64::NAN;
    let inf = f64::INFINITY;
    for (threshold, reduce, values, wanted) in [
        (above("1"), Any, [nan, 2.0], Firing),
        (above("1"), Any, [nan, 0.5], Inconclusive),
        (above("1"), Any, [inf, 0.5], Inconclusive),
        (below("1"), Any, [nan, 0.5], Firing),
        (above("1"), All, [nan, 0.5], NotFiring),
        (above("1"), All, [nan, 2.0], Inconclusive),
        (above("1"), Max, [nan, 2.0], Firing),
        (above("1"), Max, [nan, 0.5], Inconclusive),
        (below("1"), Max, [nan, 2.0], NotFiring),
        (below("1"), Max, [nan, 0.5], Inconclusive),
        (above("1"), Min, [nan, 0.5], NotFiring),
        (below("1"), Min, [nan, 0.5], Firing),
        (above("1"), Sum, [nan, 2.0], Inconclusive),
        (above("1"), Avg, [inf, 2.0], Inconclusive),
    ] {
        let got = state(&signal("x", threshold, Some(reduce)), &vector(&values));
        assert_eq!(got, wanted, "{threshold:?} {reduce:?} {values:?}");
    }
    assert_eq!(
        state(&signal("x > 1", None, None), &vector(&[nan, 2.0])),
        Firing
    );
}

#[test]
fn reductions_of_finite_series() {
    use Reduce::{All, Any, Avg, Max, Min, Sum};
    let values = [1.0, 2.0, 6.0];
    for (threshold, reduce, wanted, value) in [
        (above("5"), Any, Firing, 6.0),
        (above("6"), Any, NotFiring, 6.0),
        (below("2"), Any, Firing, 1.0),
        (above("1"), All, NotFiring, 1.0),
        (above("500m"), All, Firing, 1.0),
        (below("7"), All, Firing, 6.0),
        (above("5"), Max, Firing, 6.0),
        (below("6"), Max, NotFiring, 6.0),
        (below("2"), Min, Firing, 1.0),
        (above("1"), Min, NotFiring, 1.0),
        (above("8"), Sum, Firing, 9.0),
        (above("9"), Sum, NotFiring, 9.0),
        (below("3"), Avg, NotFiring, 3.0),
        (above("2"), Avg, Firing, 3.0),
    ] {
        let reading = judge(
            &signal("x", threshold, Some(reduce)),
            &vector(&values),
            Presence::Unasked,
        );
        assert_eq!(
            (reading.state, reading.value),
            (wanted, Some(value)),
            "{threshold:?} {reduce:?}: {}",
            reading.message
        );
    }
}

#[test]
fn sums_do_not_depend_on_the_order() {
    let sum = |values: &[f64]| compensated_sum(values.iter().copied());
    assert_eq!(sum(&[1e100, 1.0, -1e100]), 1.0);
    assert_eq!(sum(&[1.0, 1e100, -1e100]), 1.0);
}

#[test]
fn s05_several_series_without_reduce_are_an_error_that_names_the_count() {
    let reading = judge(
        &signal("x", above("1"), None),
        &vector(&[2.0, 3.0, 4.0]),
        Presence::Unasked,
    );
    assert_eq!(
        (reading.state, reading.reason),
        (Error, Reason::ResultUnsuitable)
    );
    assert!(reading.message.contains("3 series"), "{}", reading.message);
    assert!(reading.message.contains("`reduce`"), "{}", reading.message);
    // One series needs no reduction, and a query read as an alert has none.
    assert_eq!(
        state(&signal("x", above("1"), None), &vector(&[2.0])),
        Firing
    );
    assert_eq!(
        state(&signal("x > 1", None, None), &vector(&[2.0, 3.0])),
        Firing
    );
}

#[test]
fn s07_scalar_is_accepted_with_a_threshold() {
    let scalar = |value| Answer {
        result: AnswerKind::Scalar(value),
        ..vector(&[])
    };
    assert_eq!(
        state(&signal("scalar(x)", above("1"), None), &scalar(2.0)),
        Firing
    );
    assert_eq!(
        state(&signal("scalar(x)", above("1"), None), &scalar(1.0)),
        NotFiring
    );
    // As an alerting rule it would fire for ever.
    assert_eq!(state(&signal("scalar(x)", None, None), &scalar(0.0)), Error);
}

#[test]
fn s08_results_without_a_number_are_a_configuration_error() {
    for kind in ["matrix", "string", "native histogram"] {
        let answer = Answer {
            result: AnswerKind::Unsuitable { kind, count: 2 },
            ..vector(&[])
        };
        let reading = judge(&signal("x", above("0"), None), &answer, Presence::Present);
        assert_eq!(
            (reading.state, reading.reason),
            (Error, Reason::ResultUnsuitable)
        );
        assert!(reading.reason.is_configuration());
        assert!(reading.message.contains(kind), "{}", reading.message);
    }
}

#[test]
fn s11_warnings_and_partial_answers_clear_nothing() {
    let numeric = signal("x", above("1"), None);
    let filter = signal("x > 1", None, None);
    for (warnings, partial) in [
        (vec!["store unreachable".to_owned()], false),
        (vec![], true),
    ] {
        let doubtful = |values: &[f64]| Answer {
            warnings: warnings.clone(),
            partial,
            ..vector(values)
        };
        assert_eq!(state(&numeric, &doubtful(&[0.0])), Inconclusive);
        assert_eq!(state(&numeric, &doubtful(&[])), Inconclusive);
        assert_eq!(
            judge(&filter, &doubtful(&[]), Presence::Present).state,
            Inconclusive
        );
        // What fires in spite of a warning fires.
        assert_eq!(state(&numeric, &doubtful(&[2.0])), Firing);
        assert_eq!(state(&filter, &doubtful(&[2.0])), Firing);
        assert_eq!(state(&numeric, &doubtful(&[1.0, 2.0])), Error);
    }
}

#[test]
fn s14_low_is_bad_and_comparisons_are_strict() {
    for (value, wanted) in [
        (0.3, Firing),
        (0.5, NotFiring),
        (0.7, NotFiring),
        (-1.0, Firing),
    ] {
        assert_eq!(
            state(&signal("x", below("0.5"), None), &vector(&[value])),
            wanted,
            "{value}"
        );
    }
    for (value, wanted) in [(0.3, NotFiring), (0.5, NotFiring), (0.7, Firing)] {
        assert_eq!(
            state(&signal("x", above("0.5"), None), &vector(&[value])),
            wanted,
            "{value}"
        );
    }
}

#[test]
fn s15_thresholds_are_exact() {
    for (limit, value, wanted) in [
        ("100Mi", 104_857_600.0, NotFiring),
        ("100Mi", 104_857_601.0, Firing),
        ("1500m", 1.5, NotFiring),
        ("1500m", 1.500_000_000_000_000_2, Firing),
        ("1e3", 1_000.000_1, Firing),
        ("1E", 1e18, NotFiring),
        ("-5", -4.9, Firing),
        ("0", 5e-324, Firing),
        // 0.1 has no exact f64: the nearest one lies a little above it.
        ("0.1", 0.1, Firing),
    ] {
        assert_eq!(
            state(&signal("x", above(limit), None), &vector(&[value])),
            wanted,
            "{limit} {value}"
        );
    }
}

#[test]
fn messages_say_value_and_threshold() {
    let message = |signal: &PrometheusSignal, values: &[f64]| {
        judge(signal, &vector(values), Presence::Unasked).message
    };
    assert_eq!(
        message(&signal("x", above("100Mi"), None), &[157_286_400.0]),
        "the value of {instance=\"m0\"} is 150 MiB (157286400), above 100Mi"
    );
    let one = Series {
        labels: BTreeMap::new(),
        value: 4.0,
    };
    let reduced = Answer {
        result: AnswerKind::Vector(vec![one]),
        warnings: Vec::new(),
        partial: false,
    };
    let query = signal("max(x)", above("5"), None);
    assert_eq!(
        judge(&query, &reduced, Presence::Unasked).message,
        "the value is 4, not above 5"
    );
    assert_eq!(
        message(&signal("x", below("0.5"), None), &[0.5]),
        "the value of {instance=\"m0\"} is 0.5, not below 0.5"
    );
    assert_eq!(
        message(
            &signal("x", above("5"), Some(Reduce::Any)),
            &[1.0, 7.0, 6.0]
        ),
        "2 of 3 series are above 5, 7 of {instance=\"m1\"} goes furthest"
    );
    assert_eq!(
        message(&signal("x", above("5"), Some(Reduce::Sum)), &[1.0, 2.0]),
        "the sum of 2 series is 3, not above 5"
    );
    assert_eq!(
        message(&signal("x", above("5"), None), &[f64::INFINITY]),
        "the value of {instance=\"m0\"} is +Inf, which proves nothing (a division by zero?)"
    );
}

#[test]
fn foreign_words_are_bounded_and_escaped() {
    assert_eq!(
        bounded(" a\nb\u{1b}[31m\u{202e}c ", 80),
        "a b\\u{1b}[31m\\u{202e}c"
    );
    assert_eq!(bounded("äöü", 2), "äö…");
    assert_eq!(bounded("äöü", 3), "äöü");
    let answer = Answer {
        result: AnswerKind::Vector(vec![Series {
            labels: BTreeMap::from([("a".to_owned(), "\u{7}\n".repeat(5000))]),
            value: 2.0,
        }]),
        warnings: vec!["w".repeat(100_000)],
        partial: false,
    };
    let reading = judge(&signal("x", above("1"), None), &answer, Presence::Unasked);
    assert_eq!(reading.state, Firing);
    assert!(reading.message.chars().count() <= MESSAGE_CHARS + 1);
    assert!(!reading.message.contains(['\u{7}', '\n']));
}

fn labelled(series: &[(&[(&str, &str)], f64)]) -> Answer {
    let series = series.iter().map(|(labels, value)| Series {
        labels: (labels.iter())
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        value: *value,
    });
    Answer {
        result: AnswerKind::Vector(series.collect()),
        warnings: vec![],
        partial: false,
    }
}

#[test]
fn duplicates_of_an_ha_pair_are_named_and_reduced() {
    let pair = labelled(&[
        (&[("instance", "m0"), ("prometheus_replica", "a")], 7.0),
        (&[("instance", "m0"), ("prometheus_replica", "b")], 7.5),
    ]);
    let judged = |reduce| judge(&signal("x", above("6"), reduce), &pair, Presence::Unasked);
    let unreduced = judged(None);
    assert_eq!(unreduced.reason, Reason::ResultUnsuitable);
    assert!(
        unreduced
            .message
            .contains("max without (prometheus_replica)")
    );
    for reduce in [
        Reduce::Any,
        Reduce::All,
        Reduce::Max,
        Reduce::Min,
        Reduce::Avg,
    ] {
        assert_eq!(judged(Some(reduce)).state, Firing, "{reduce:?}");
    }
    let sum = judged(Some(Reduce::Sum));
    assert!(sum.message.contains("counted twice"), "{}", sum.message);
    // Two things are two things.
    let members = labelled(&[
        (&[("instance", "m0"), ("replica", "a")], 7.0),
        (&[("instance", "m1"), ("replica", "b")], 7.0),
    ]);
    let reading = judge(&signal("x", above("6"), None), &members, Presence::Unasked);
    assert!(!reading.message.contains("replica"), "{}", reading.message);
}

#[test]
fn names_beyond_the_old_alphabet_are_shown_in_quotes() {
    let answer = labelled(&[(&[("__name__", "etcd.db.size"), ("k8s.pod", "e-0")], 7.0)]);
    let reading = judge(&signal("x > 1", None, None), &answer, Presence::Unasked);
    let wanted = r#"7 of {"etcd.db.size", "k8s.pod"="e-0"}"#;
    assert!(reading.message.contains(wanted), "{}", reading.message);
}
