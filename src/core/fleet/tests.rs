//! Who is chosen, and whose series are whose.

use super::*;
use crate::core::key::ObjectKey;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn cluster(kind: ClusterKind, name: &str) -> ClusterKey {
    ClusterKey {
        kind,
        object: ObjectKey {
            namespace: "default".into(),
            name: name.into(),
        },
    }
}

fn selector() -> Selector {
    Selector {
        kinds: BTreeSet::from(ClusterKind::ALL),
        labels: LabelSelector {
            match_labels: labels(&[("tier", "prod")]),
            match_expressions: Vec::new(),
        },
    }
}

fn by(label: &str, from: Option<&str>) -> SeriesMatch {
    SeriesMatch {
        label: label.to_owned(),
        from: from.map(str::to_owned),
    }
}

#[test]
fn clusters_that_claim_the_same_series_get_none() {
    let prod = labels(&[("tier", "prod"), ("id", "one")]);
    let (target, foreign) = (
        cluster(ClusterKind::EtcdTarget, "main"),
        cluster(ClusterKind::EtcdIoCluster, "main"),
    );
    let other = cluster(ClusterKind::EtcdTarget, "other");
    let bare = labels(&[("tier", "prod")]);
    let all = [(&target, &prod), (&foreign, &bare), (&other, &bare)];
    let value = |chosen: &Chosen, place: usize| {
        let series = chosen.members[place].series.clone().unwrap();
        series.value.map_err(|note| note.reason)
    };

    let chosen = choose(&selector(), Some(&by("cluster", None)), all);
    assert_eq!(chosen.members.len(), 3);
    assert_eq!(value(&chosen, 0), Err(Reason::SeriesAmbiguous));
    assert_eq!(value(&chosen, 1), Ok("other".to_owned()));
    assert_eq!(value(&chosen, 2), Err(Reason::SeriesAmbiguous));

    let chosen = choose(&selector(), Some(&by("cluster", Some("id"))), all);
    assert_eq!(value(&chosen, 0), Ok("one".to_owned()));
    assert_eq!(value(&chosen, 1), Err(Reason::SeriesNameMissing));

    let targets = Selector {
        kinds: BTreeSet::from([ClusterKind::EtcdTarget]),
        ..selector()
    };
    let chosen = choose(&targets, None, all);
    assert_eq!(
        chosen.members,
        [target, other].map(|cluster| Member {
            cluster,
            series: None
        })
    );
}

#[test]
fn clusters_beyond_the_maximum_are_named() {
    let prod = labels(&[("tier", "prod")]);
    let clusters: Vec<ClusterKey> = (0..MAX_CLUSTERS + 2)
        .map(|i| cluster(ClusterKind::EtcdTarget, &format!("c{i:04}")))
        .collect();
    let chosen = choose(&selector(), None, clusters.iter().map(|c| (c, &prod)));
    assert_eq!(chosen.members.len(), MAX_CLUSTERS);
    assert_eq!(chosen.excess, clusters[MAX_CLUSTERS..]);
}

fn series(pairs: &[(&str, &str)], value: f64) -> Series {
    Series {
        labels: labels(pairs),
        value,
    }
}

#[test]
fn each_cluster_is_judged_by_its_own_series_and_the_others_are_listed() {
    let mut all = vec![
        series(&[("cluster", "a"), ("pod", "0")], 1.0),
        series(&[("cluster", "a"), ("pod", "1")], 2.0),
        series(&[("cluster", "b")], 3.0),
        series(&[], 4.0),
        series(&[("cluster", "")], 5.0),
    ];
    all.extend((0..LISTED + 5).map(|i| series(&[("cluster", &format!("x{i:02}"))], 6.0)));
    let answer = Answer {
        result: AnswerKind::Vector(all.clone()),
        warnings: vec!["some".to_owned()],
        partial: true,
    };
    let split = Split::new(&answer, "cluster");
    let of = |value: &str| Answer {
        result: match value {
            "a" => AnswerKind::Vector(all[..2].to_vec()),
            _ => AnswerKind::Vector(Vec::new()),
        },
        ..answer.clone()
    };
    assert_eq!(split.of("a"), of("a"));
    assert_eq!(split.of("nobody"), of("nobody"), "doubts are everybody's");
    assert!(split.has("b") && !split.has("nobody"));

    let unmatched = split.unmatched(&BTreeSet::from(["a", "b", "nobody"]));
    assert_eq!(
        (unmatched.series, unmatched.unlabelled, unmatched.values),
        (LISTED + 7, 2, LISTED + 5)
    );
    assert_eq!(unmatched.listed.len(), LISTED);
    assert_eq!(unmatched.listed[0], "x00");
}

#[test]
fn an_answer_without_labels_is_about_nobody() {
    let answer = Answer {
        result: AnswerKind::Scalar(1.0),
        warnings: Vec::new(),
        partial: false,
    };
    let own = Split::new(&answer, "cluster").of("a");
    assert!(
        matches!(own.result, AnswerKind::Unsuitable { .. }),
        "{own:?}"
    );
}
