//! What Kubernetes means by a selector.

use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// What carries the label tier=prod and fulfils the requirement on its zone.
fn selector(operator: Operator) -> LabelSelector {
    LabelSelector {
        match_labels: labels(&[("tier", "prod")]),
        match_expressions: vec![Requirement {
            key: "zone".to_owned(),
            operator,
        }],
    }
}

#[test]
fn requirements_mean_what_kubernetes_means_by_them() {
    let values = || BTreeSet::from(["a".to_owned(), "b".to_owned()]);
    for (operator, text, on_a, on_c, without) in [
        (Operator::In(values()), "zone in (a,b)", true, false, false),
        (
            Operator::NotIn(values()),
            "zone notin (a,b)",
            false,
            true,
            true,
        ),
        (Operator::Exists, "zone", true, true, false),
        (Operator::DoesNotExist, "!zone", false, false, true),
    ] {
        let selector = selector(operator);
        let asked = |zone: &[(&str, &str)]| {
            let mut all = labels(&[("tier", "prod")]);
            all.extend(labels(zone));
            selector.matches(&all)
        };
        assert_eq!(
            [asked(&[("zone", "a")]), asked(&[("zone", "c")]), asked(&[])],
            [on_a, on_c, without],
            "{text}"
        );
        assert!(
            !selector.matches(&labels(&[("zone", "a")])),
            "the other label counts too"
        );
        assert_eq!(selector.to_string(), format!("tier=prod,{text}"));
    }
    assert_eq!(LabelSelector::default().to_string(), "");
}
