//! Who asks which question how often, so that a slow policy asks when a fast one
//! does: together they ask no more than the fast one alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::core::tick;

use super::now;

/// How late somebody may come and still use the answer of those in time.
const LATE: SignedDuration = SignedDuration::from_secs(5);

/// The intervals in use, by question.
#[derive(Clone, Default)]
pub(super) struct Paces(Arc<Mutex<HashMap<u64, Intervals>>>);

/// Intervals and how many have them; a handful at most.
type Intervals = Vec<(SignedDuration, usize)>;

/// One who asks; no longer counted once this is dropped.
pub(super) struct Pace {
    paces: Paces,
    kept: Option<(u64, SignedDuration)>,
}

/// The questions of one policy.
pub(super) struct Steps {
    pub(super) signal: Pace,
    pub(super) blockers: BlockerSteps,
}

/// One who asks several questions, and often none.
pub(super) struct BlockerSteps {
    paces: Paces,
    kept: Mutex<Vec<Pace>>,
}

/// The moment as of which a question is asked that was due at `tick`. All who ask
/// it at that tick share one answer, also those who come a little late.
pub(super) fn asked_at_tick(tick: Timestamp) -> Timestamp {
    let now = now();
    let earliest = now.checked_sub(LATE).unwrap_or(now);
    tick.clamp(earliest, now)
}

impl Paces {
    /// Somebody who does not ask yet.
    pub(super) fn join(&self) -> Pace {
        Pace {
            paces: self.clone(),
            kept: None,
        }
    }

    /// A policy that does not ask yet.
    pub(super) fn join_as_policy(&self) -> Steps {
        Steps {
            signal: self.join(),
            blockers: BlockerSteps {
                paces: self.clone(),
                kept: Mutex::default(),
            },
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut HashMap<u64, Intervals>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.change(|paces| paces.is_empty())
    }
}

impl Pace {
    /// Asks this question from now on, and nothing else. Returns the interval in
    /// step with the fastest who asks the same; see [`tick::in_step`].
    pub(super) fn keep(&mut self, question: &str, interval: SignedDuration) -> SignedDuration {
        let kept = (tick::key(question), interval);
        if self.kept != Some(kept) {
            self.leave();
            self.paces.change(|paces| {
                let intervals = paces.entry(kept.0).or_default();
                match intervals.iter_mut().find(|(known, _)| *known == interval) {
                    Some((_, count)) => *count += 1,
                    None => intervals.push((interval, 1)),
                }
            });
            self.kept = Some(kept);
        }
        let fastest = self.paces.change(|paces| {
            let intervals = paces.get(&kept.0)?.iter();
            intervals.map(|(interval, _)| *interval).min()
        });
        tick::in_step(interval, fastest.unwrap_or(interval))
    }

    /// Asks nothing for now: nobody keeps step with this one.
    pub(super) fn leave(&mut self) {
        let Some((question, interval)) = self.kept.take() else {
            return;
        };
        self.paces.change(|paces| {
            let Some(intervals) = paces.get_mut(&question) else {
                return;
            };
            for (_, count) in intervals.iter_mut().filter(|(known, _)| *known == interval) {
                *count -= 1;
            }
            intervals.retain(|(_, count)| *count > 0);
            if intervals.is_empty() {
                paces.remove(&question);
            }
        });
    }
}

impl Steps {
    /// Asks nothing for now.
    pub(super) fn leave(&mut self) {
        self.signal.leave();
        self.blockers.leave();
    }
}

impl BlockerSteps {
    /// Asks these questions from now on, and nothing else. Returns an interval for each,
    /// as [`Pace::keep`] does.
    pub(super) fn keep(
        &self,
        questions: &[String],
        interval: SignedDuration,
    ) -> Vec<SignedDuration> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.resize_with(questions.len(), || self.paces.join());
        let each = kept.iter_mut().zip(questions);
        each.map(|(pace, question)| pace.keep(question, interval))
            .collect()
    }

    /// Asks nothing for now.
    pub(super) fn leave(&self) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clear();
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t101_the_slow_keep_step_with_the_fast_as_long_as_those_ask() {
        let seconds = SignedDuration::from_secs;
        let paces = Paces::default();
        let (mut slow, mut fast, mut other) = (paces.join(), paces.join(), paces.join());
        assert_eq!(slow.keep("q", seconds(45)), seconds(45));
        assert_eq!(fast.keep("q", seconds(30)), seconds(30));
        assert_eq!(other.keep("r", seconds(7)), seconds(7));
        assert_eq!(slow.keep("q", seconds(45)), seconds(30));
        assert_eq!(slow.keep("q", seconds(100)), seconds(90));
        let mut second = paces.join();
        second.keep("q", seconds(30));
        fast.leave();
        assert_eq!(slow.keep("q", seconds(45)), seconds(30), "one is left");
        second.keep("r", seconds(30));
        assert_eq!(slow.keep("q", seconds(45)), seconds(45));
        drop((slow, fast, other, second));
        assert!(paces.is_empty());
    }

    #[test]
    fn t101_blockers_keep_step_as_long_as_they_are_asked() {
        let seconds = SignedDuration::from_secs;
        let paces = Paces::default();
        let (slow, mut fast) = (paces.join_as_policy(), paces.join());
        let questions = ["q".to_owned(), "r".to_owned()];
        fast.keep("r", seconds(30));
        assert_eq!(
            slow.blockers.keep(&questions, seconds(45)),
            [seconds(45), seconds(30)]
        );
        assert_eq!(fast.keep("q", seconds(60)), seconds(45));
        // One blocker fewer.
        slow.blockers.keep(&questions[1..], seconds(45));
        assert_eq!(fast.keep("q", seconds(60)), seconds(60));
        slow.blockers.leave();
        drop(fast);
        assert!(paces.is_empty());
    }
}
