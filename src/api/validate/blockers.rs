//! The verdict on what holds runs back.

use std::collections::BTreeSet;

use jiff::SignedDuration;

use super::check::Check;
use super::policy::signal_of;
use super::quoted;
use super::run::positive;
use crate::api::policy::BlockerSpec;
use crate::core::decide::{Blocker, MAX_BLOCKED_FOR, MAX_BLOCKERS, OnNoData};

/// Longest name of a blocker.
const MAX_NAME: usize = 63;

pub(super) fn blockers(check: &mut Check, specs: &[BlockerSpec]) -> Vec<Blocker> {
    if specs.len() > MAX_BLOCKERS {
        check.fail(
            "spec.blockers",
            specs.len().to_string(),
            "are too many",
            format!("give at most {MAX_BLOCKERS}; one PromQL expression can join several by `or`"),
        );
    }
    let mut names = BTreeSet::new();
    let mut blockers = Vec::new();
    for (i, spec) in specs.iter().take(MAX_BLOCKERS).enumerate() {
        let BlockerSpec {
            name,
            signal,
            no_data,
        } = spec;
        let path = format!("spec.blockers[{i}]");
        let name_path = format!("{path}.name");
        if !is_label(name) {
            check.fail(
                name_path,
                quoted(name),
                format!("is not a name of 1 to {MAX_NAME} lower-case letters, digits and '-'"),
                "write one such as \"upgrade\"",
            );
        } else if !names.insert(name) {
            check.fail(
                name_path,
                quoted(name),
                "is the name of another blocker too",
                "give each a name of its own",
            );
        }
        if let Some(prometheus) = &signal.prometheus {
            for (field, given) in [
                ("clusterLabel", prometheus.cluster_label.is_some()),
                ("clusterLabelFrom", prometheus.cluster_label_from.is_some()),
                ("sameForAll", prometheus.same_for_all.is_some()),
            ] {
                if given {
                    check.fail(
                        format!("{path}.signal.prometheus.{field}"),
                        "",
                        "a blocker holds back the runs on every cluster of its policy",
                        "remove it, and select the series in the query",
                    );
                }
            }
        }
        let signal = check.moved("spec.signal", &format!("{path}.signal"), |check| {
            signal_of(check, signal, false)
        });
        blockers.push(Blocker {
            name: name.clone(),
            signal,
            no_data: no_data.map_or(OnNoData::Block, Into::into),
        });
    }
    blockers
}

pub(super) fn max_blocked_for(
    check: &mut Check,
    text: Option<&str>,
    blockers: &[BlockerSpec],
) -> Option<SignedDuration> {
    const PATH: &str = "spec.maxBlockedFor";
    if let Some(text) = text.filter(|_| blockers.is_empty()) {
        check.fail(
            PATH,
            quoted(text),
            "has no effect without spec.blockers",
            "remove it, or add blockers",
        );
    }
    check.duration(PATH, text, &positive(MAX_BLOCKED_FOR, "6h"))
}

fn is_label(name: &str) -> bool {
    let inside = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|b| inside(b) || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}
