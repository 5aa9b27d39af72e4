//! Which finished runs have been kept long enough.

use jiff::{SignedDuration, Timestamp};

use super::decide::HistoryLimit;

/// A finished run, as far as keeping it is concerned.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    pub name: String,
    /// The policy that made it; `None` for a hand-made run.
    pub owner: Option<String>,
    pub succeeded: bool,
    pub at: Timestamp,
    pub ttl: Option<SignedDuration>,
}

/// True when the run's own time to live is over.
pub fn expired(run: &Finished, now: Timestamp) -> bool {
    run.ttl
        .is_some_and(|ttl| now >= run.at.checked_add(ttl).unwrap_or(Timestamp::MAX))
}

/// The names of runs to remove: those whose time to live is over, and those of
/// one policy beyond its limits, oldest first. A hand-made run falls under its
/// own time to live only.
pub fn to_remove(
    runs: &[Finished],
    limit: impl Fn(&str) -> HistoryLimit,
    now: Timestamp,
) -> Vec<String> {
    let mut newest_first: Vec<&Finished> = runs.iter().collect();
    newest_first.sort_by(|a, b| (b.at, &b.name).cmp(&(a.at, &a.name)));
    let mut kept: std::collections::BTreeMap<(&str, bool), u32> = std::collections::BTreeMap::new();
    let mut remove = Vec::new();
    for run in newest_first {
        if expired(run, now) {
            remove.push(run.name.clone());
            continue;
        }
        let Some(owner) = run.owner.as_deref() else {
            continue;
        };
        let limit = limit(owner);
        let allowed = if run.succeeded {
            limit.successful
        } else {
            limit.failed
        };
        let count = kept.entry((owner, run.succeeded)).or_default();
        if *count >= allowed {
            remove.push(run.name.clone());
        } else {
            *count += 1;
        }
    }
    remove
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        name: &str,
        owner: Option<&str>,
        succeeded: bool,
        second: i64,
        ttl: Option<i64>,
    ) -> Finished {
        Finished {
            name: name.to_owned(),
            owner: owner.map(str::to_owned),
            succeeded,
            at: Timestamp::from_second(second).unwrap(),
            ttl: ttl.map(SignedDuration::from_secs),
        }
    }

    #[test]
    fn keeps_the_newest_of_each_kind_and_removes_what_outlived_its_ttl() {
        let runs = [
            run("a1", Some("a"), true, 10, None),
            run("a2", Some("a"), true, 20, None),
            run("a3", Some("a"), true, 30, None),
            run("af", Some("a"), false, 5, None),
            run("b1", Some("b"), true, 1, None),
            run("hand", None, true, 1, None),
            run("short", None, true, 90, Some(10)),
            run("long", None, true, 90, Some(11)),
        ];
        let limit = |owner: &str| match owner {
            "a" => HistoryLimit {
                successful: 2,
                failed: 1,
            },
            _ => HistoryLimit {
                successful: 0,
                failed: 0,
            },
        };
        let mut removed = to_remove(&runs, limit, Timestamp::from_second(100).unwrap());
        removed.sort();
        assert_eq!(removed, ["a1", "b1", "short"]);
    }
}
