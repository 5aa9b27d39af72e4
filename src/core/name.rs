//! Names of runs: a function of what asked for them, so that a crash between
//! create and record finds the same run again instead of making a second one.

use jiff::Timestamp;
use sha2::{Digest, Sha256};

/// Longest part of the policy's name that goes into the run's name. Together
/// with the digest it stays within 63 characters, the limit of a label value.
const MAX_STEM: usize = 50;

/// The run of one firing episode. `episode` is the recorded start of the
/// episode, `after` the last run that counted when it began.
pub fn of_episode(
    policy: &str,
    uid: &str,
    cluster: &str,
    episode: Timestamp,
    after: Option<&str>,
) -> String {
    let episode = episode.as_millisecond().to_string();
    build(
        policy,
        &[
            "episode",
            uid,
            policy,
            cluster,
            &episode,
            after.unwrap_or(""),
        ],
    )
}

/// The run of one change of `spec.trigger`; `after` is the last run that counted
/// when it changed.
pub fn of_trigger(
    policy: &str,
    uid: &str,
    cluster: &str,
    trigger: &str,
    after: Option<&str>,
) -> String {
    build(
        policy,
        &[
            "trigger",
            uid,
            policy,
            cluster,
            trigger,
            after.unwrap_or(""),
        ],
    )
}

fn build(policy: &str, parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        // The length in front keeps ("ab", "c") apart from ("a", "bc").
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let digest = hash.finalize();
    let digest: String = digest
        .iter()
        .take(5)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let stem: String = policy.chars().take(MAX_STEM).collect();
    format!("{}-{digest}", stem.trim_end_matches(['-', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t46_same_firing_same_name() {
        let t = Timestamp::from_second(1_700_000_000).unwrap();
        let name = of_episode("p", "u", "ns/c", t, None);
        assert_eq!(name, of_episode("p", "u", "ns/c", t, None));
        for other in [
            of_episode("p", "u2", "ns/c", t, None),
            of_episode("p", "u", "ns/d", t, None),
            of_episode(
                "p",
                "u",
                "ns/c",
                Timestamp::from_second(1_700_000_001).unwrap(),
                None,
            ),
            of_episode("p", "u", "ns/c", t, Some("p-1")),
            of_trigger("p", "u", "ns/c", "now", None),
            of_trigger("p", "u", "ns/c", "now", Some("p-1")),
        ] {
            assert_ne!(name, other);
        }
    }

    #[test]
    fn names_are_valid_labels() {
        let t = Timestamp::UNIX_EPOCH;
        for policy in [
            "a",
            "fragmented",
            &"x".repeat(253),
            "a.b-",
            &format!("{}-zzz", "y".repeat(49)),
        ] {
            let name = of_episode(policy, "", "c", t, None);
            assert!(name.len() <= 63, "{name}");
            assert!(!name.contains("--") && !name.contains(".-"), "{name}");
        }
    }
}
