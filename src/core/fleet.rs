//! One policy, many clusters: which ones a selector means, and whose a series is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU32;

use super::key::{ClusterKey, ClusterKind};
use super::labels::LabelSelector;
use super::reason::Reason;
use super::run::Note;
use super::signal::{Answer, AnswerKind, Series, bounded};

/// Clusters that one policy serves at most. What is remembered of each stands in
/// the policy's status, which has to fit into one request to etcd.
pub const MAX_CLUSTERS: usize = 1000;

/// Label values of unknown series that are listed; the others are counted.
const LISTED: usize = 20;
/// Longest label value that is listed, in characters.
const VALUE_CHARS: usize = 100;

/// A policy's clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    pub selector: Selector,
    /// Runs of the policy that may go on at once.
    pub max_concurrent_runs: NonZeroU32,
}

/// Which clusters of the policy's namespace are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    pub kinds: BTreeSet<ClusterKind>,
    pub labels: LabelSelector,
}

/// How a series tells which cluster it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesMatch {
    /// The label of the series.
    pub label: String,
    /// The label of the cluster's object that has the value; `None`: its name.
    pub from: Option<String>,
}

/// Which series are about one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnSeries {
    pub label: String,
    /// Or why nobody can say.
    pub value: Result<String, Note>,
}

/// A cluster of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub cluster: ClusterKey,
    /// `None`: every series is about it.
    pub series: Option<OwnSeries>,
}

/// The clusters that a selector means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// In the order of their names.
    pub members: Vec<Member>,
    /// Those beyond [`MAX_CLUSTERS`].
    pub excess: Vec<ClusterKey>,
}

/// Chooses among the clusters of the policy's namespace, given with their labels.
pub fn choose<'a>(
    selector: &Selector,
    series: Option<&SeriesMatch>,
    candidates: impl IntoIterator<Item = (&'a ClusterKey, &'a BTreeMap<String, String>)>,
) -> Chosen {
    let mut found: BTreeMap<&ClusterKey, &BTreeMap<String, String>> = candidates
        .into_iter()
        .filter(|(cluster, labels)| {
            selector.kinds.contains(&cluster.kind) && selector.labels.matches(labels)
        })
        .collect();
    let excess = match found.keys().nth(MAX_CLUSTERS).copied() {
        Some(first) => found.split_off(first).into_keys().cloned().collect(),
        None => Vec::new(),
    };
    let values: Vec<Option<&str>> = found
        .iter()
        .map(|(cluster, labels)| match series?.from.as_ref() {
            Some(from) => labels.get(from).map(String::as_str),
            None => Some(cluster.object.name.as_str()),
        })
        .collect();
    let mut claims: HashMap<&str, Vec<&ClusterKey>> = HashMap::new();
    for (cluster, value) in found.keys().zip(&values) {
        if let Some(value) = value {
            claims.entry(value).or_default().push(cluster);
        }
    }
    let members = found.keys().zip(&values).map(|(cluster, value)| Member {
        cluster: (*cluster).clone(),
        series: series.map(|series| OwnSeries {
            label: series.label.clone(),
            value: value_of(cluster, *value, series, &claims),
        }),
    });
    Chosen {
        members: members.collect(),
        excess,
    }
}

fn value_of(
    cluster: &ClusterKey,
    value: Option<&str>,
    series: &SeriesMatch,
    claims: &HashMap<&str, Vec<&ClusterKey>>,
) -> Result<String, Note> {
    let from = series.from.as_deref().unwrap_or_default();
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Err(Note::new(
            Reason::SeriesNameMissing,
            format!(
                "{} has no label {from:?}, which says by what value of {:?} its series are known; add it",
                cluster.local_name(),
                series.label
            ),
        ));
    };
    let other = claims
        .get(value)
        .and_then(|all| all.iter().find(|other| **other != cluster));
    match other {
        None => Ok(value.to_owned()),
        Some(other) => Err(Note::new(
            Reason::SeriesAmbiguous,
            format!(
                "series with {}={value:?} would be about {} and {} alike; \
                 set clusterLabelFrom to a label that tells them apart, or select fewer kinds",
                series.label,
                cluster.local_name(),
                other.local_name()
            ),
        )),
    }
}

/// An answer, taken apart by the value of one label.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// All of the answer but its series.
    rest: Answer,
    by_value: HashMap<String, Vec<Series>>,
    /// Series without the label.
    unlabelled: Vec<Series>,
}

impl Split {
    /// Takes an answer apart. One that is no vector is about nobody in particular.
    pub fn new(answer: &Answer, label: &str) -> Self {
        let Answer {
            result,
            warnings,
            partial,
        } = answer;
        let mut by_value: HashMap<String, Vec<Series>> = HashMap::new();
        let mut unlabelled = Vec::new();
        let result = match result {
            AnswerKind::Vector(series) => {
                for one in series {
                    // An empty label is, in Prometheus, one that is not there.
                    match one.labels.get(label).filter(|value| !value.is_empty()) {
                        Some(value) => by_value.entry(value.clone()).or_default().push(one.clone()),
                        None => unlabelled.push(one.clone()),
                    }
                }
                AnswerKind::Vector(Vec::new())
            }
            AnswerKind::Scalar(_) => AnswerKind::Unsuitable {
                kind: "scalar, which has no labels",
                count: 1,
            },
            other @ AnswerKind::Unsuitable { .. } => other.clone(),
        };
        Split {
            rest: Answer {
                result,
                warnings: warnings.clone(),
                partial: *partial,
            },
            by_value,
            unlabelled,
        }
    }

    /// The part of the answer that is about `value`.
    pub fn of(&self, value: &str) -> Answer {
        let mut own = self.rest.clone();
        if let (AnswerKind::Vector(series), Some(found)) =
            (&mut own.result, self.by_value.get(value))
        {
            series.clone_from(found);
        }
        own
    }

    /// Whether any series is about `value`.
    pub fn has(&self, value: &str) -> bool {
        self.by_value.contains_key(value)
    }

    /// The part of the answer that lacks the label.
    pub fn of_all(&self) -> Answer {
        let mut rest = self.rest.clone();
        if let AnswerKind::Vector(series) = &mut rest.result {
            series.clone_from(&self.unlabelled);
        }
        rest
    }

    /// Whether any series lacks the label.
    pub fn has_unlabelled(&self) -> bool {
        !self.unlabelled.is_empty()
    }

    /// The series that are about none of the `known` values.
    pub fn unmatched(&self, known: &BTreeSet<&str>) -> Unmatched {
        let unknown: BTreeMap<&str, usize> = self
            .by_value
            .iter()
            .filter(|(value, _)| !known.contains(value.as_str()))
            .map(|(value, series)| (value.as_str(), series.len()))
            .collect();
        Unmatched {
            series: unknown.values().sum::<usize>() + self.unlabelled.len(),
            unlabelled: self.unlabelled.len(),
            values: unknown.len(),
            listed: unknown
                .keys()
                .take(LISTED)
                .map(|value| bounded(value, VALUE_CHARS))
                .collect(),
        }
    }
}

/// Series that are about no cluster of the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unmatched {
    /// All of them.
    pub series: usize,
    /// Those that lack the label.
    pub unlabelled: usize,
    /// How many different values the others have.
    pub values: usize,
    /// The first of the values, bounded in number and length.
    pub listed: Vec<String>,
}

#[cfg(test)]
mod tests;
