//! When a signal is evaluated: ticks of its interval, shifted by a phase that
//! the question itself gives. Everybody who asks the same question asks at the
//! same moment, so it is asked once; different questions are spread out. Where
//! intervals differ, the longer ones keep step with the shortest.

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

/// A number for a question: a function of its text.
pub fn key(question: &str) -> u64 {
    let digest = Sha256::digest(question.as_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(bytes)
}

/// The phase of a question within `interval`.
fn phase(question: &str, interval: i64) -> i64 {
    let interval = u64::try_from(interval).unwrap_or(1).max(1);
    i64::try_from(key(question) % interval).unwrap_or(0)
}

/// Milliseconds, at least one.
fn millis(interval: SignedDuration) -> i64 {
    i64::try_from(interval.as_millis())
        .unwrap_or(i64::MAX)
        .max(1)
}

/// The longest interval up to `interval` whose ticks are all ticks of `fastest`
/// too, for the same question: what is asked then costs no request of its own.
/// Never shorter than `fastest`, unless `interval` itself is.
pub fn in_step(interval: SignedDuration, fastest: SignedDuration) -> SignedDuration {
    let (own, step) = (millis(interval), millis(fastest));
    SignedDuration::from_millis(if own < step { own } else { own - own % step })
}

/// The first tick after `now`. Intervals below a millisecond count as one.
pub fn next(now: Timestamp, interval: SignedDuration, question: &str) -> Timestamp {
    let interval = millis(interval);
    let phase = phase(question, interval);
    let since = (now.as_millisecond() - phase).rem_euclid(interval);
    let at = now.as_millisecond().saturating_add(interval - since);
    Timestamp::from_millisecond(at).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ticks_are_ahead_within_one_interval_and_regular(
            now in 0_i64..4_000_000_000_000, interval in 1_i64..86_400_000, question in ".{0,20}",
        ) {
            let now = Timestamp::from_millisecond(now).unwrap();
            let interval = SignedDuration::from_millis(interval);
            let first = next(now, interval, &question);
            let ahead = first.duration_since(now);
            prop_assert!(ahead > SignedDuration::ZERO && ahead <= interval);
            prop_assert_eq!(next(first, interval, &question).duration_since(first), interval);
        }
    }

    proptest! {
        #[test]
        fn t101_what_keeps_step_ticks_only_when_the_fastest_does(
            now in 0_i64..4_000_000_000_000, fast in 1_i64..100_000, slow in 1_i64..86_400_000,
            question in ".{0,20}",
        ) {
            let now = Timestamp::from_millisecond(now).unwrap();
            let fast = SignedDuration::from_millis(fast.min(slow));
            let slow = SignedDuration::from_millis(slow);
            let step = in_step(slow, fast);
            prop_assert!(fast <= step && step <= slow && slow - step < fast);
            let tick = next(now, step, &question);
            let just_before = tick - SignedDuration::from_millis(1);
            prop_assert_eq!(next(just_before, fast, &question), tick);
        }
    }

    #[test]
    fn t101_different_questions_are_spread_over_the_interval() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let interval = SignedDuration::from_secs(60);
        let mut buckets = [0; 6];
        for i in 0..600 {
            let ahead = next(now, interval, &format!("q{i}")).duration_since(now);
            buckets[usize::try_from((ahead.as_millis() - 1) / 10_000).unwrap()] += 1;
        }
        assert!(
            buckets.iter().all(|n| (50..=150).contains(n)),
            "{buckets:?}"
        );
    }
}
