//! One request for all who ask the same at the same time (T101).

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// An entry that nobody used for so long is dropped.
const UNUSED_FOR: Duration = Duration::from_secs(10 * 60);
/// An answer is kept no longer: whoever could share it has done so.
const ANSWER_KEPT: Duration = Duration::from_secs(60);
/// How often entries are looked through for the two limits above.
const SWEEP_EVERY: Duration = Duration::from_secs(15);

/// Answers by question, each with the moment its request was sent.
pub(in crate::signals) struct Shared<T> {
    slots: Mutex<Slots<T>>,
}

struct Slots<T> {
    by_question: HashMap<String, Arc<Slot<T>>>,
    swept: Instant,
}

struct Slot<T> {
    /// Held while a request is under way: one at a time for each question, so
    /// that a slow source never has two (S31), and no other question waits.
    last: tokio::sync::Mutex<Option<Kept<T>>>,
    used: Mutex<Instant>,
}

struct Kept<T> {
    sent_at: Timestamp,
    kept_since: Instant,
    answer: Arc<T>,
}

/// An answer, and whether somebody else's request brought it.
pub(in crate::signals) struct Obtained<T> {
    pub(in crate::signals) answer: Arc<T>,
    /// When the request was sent that brought it.
    pub(in crate::signals) sent_at: Timestamp,
    pub(in crate::signals) shared: bool,
}

impl<T> Shared<T> {
    pub(in crate::signals) fn new() -> Self {
        Shared {
            slots: Mutex::new(Slots {
                by_question: HashMap::new(),
                swept: Instant::now(),
            }),
        }
    }

    /// The answer to a question that was asked at `asked_at`: that of a request
    /// sent at or after that moment, else the one that `ask` brings.
    ///
    /// `ask` gives the moment its request was sent and the answer. When the
    /// caller goes away meanwhile, the next one asks anew.
    pub(in crate::signals) async fn get<F>(
        &self,
        question: &str,
        asked_at: Timestamp,
        ask: impl FnOnce() -> F,
    ) -> Obtained<T>
    where
        F: Future<Output = (Timestamp, T)>,
    {
        let slot = self.slot(question);
        let mut last = slot.last.lock().await;
        if let Some(kept) = last.as_ref() {
            // A request from the future was sent before the clock was set back:
            // nothing can be said about its order.
            if kept.sent_at >= asked_at && kept.sent_at <= Timestamp::now() {
                return Obtained {
                    answer: kept.answer.clone(),
                    sent_at: kept.sent_at,
                    shared: true,
                };
            }
        }
        let (sent_at, answer) = ask().await;
        let answer = Arc::new(answer);
        *last = Some(Kept {
            sent_at,
            kept_since: Instant::now(),
            answer: answer.clone(),
        });
        Obtained {
            answer,
            sent_at,
            shared: false,
        }
    }

    fn slot(&self, question: &str) -> Arc<Slot<T>> {
        let now = Instant::now();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if now.duration_since(slots.swept) >= SWEEP_EVERY {
            slots.sweep(now);
        }
        if let Some(slot) = slots.by_question.get(question) {
            *slot.used.lock().unwrap_or_else(PoisonError::into_inner) = now;
            return slot.clone();
        }
        let slot = Arc::new(Slot {
            last: tokio::sync::Mutex::new(None),
            used: Mutex::new(now),
        });
        slots.by_question.insert(question.to_owned(), slot.clone());
        slot
    }
}

impl<T> Slots<T> {
    fn sweep(&mut self, now: Instant) {
        self.swept = now;
        self.by_question.retain(|_, slot| {
            let used = *slot.used.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(mut last) = slot.last.try_lock()
                && last
                    .as_ref()
                    .is_some_and(|kept| now.duration_since(kept.kept_since) >= ANSWER_KEPT)
            {
                *last = None;
            }
            // Somebody who holds the slot still waits for its answer.
            now.duration_since(used) < UNUSED_FOR || Arc::strong_count(slot) > 1
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::future::join_all;

    use super::*;

    /// Asks and counts; the answer is the number of the request.
    async fn ask(shared: &Shared<u32>, count: &AtomicU32, question: &str, at: Timestamp) -> u32 {
        let obtained = shared
            .get(question, at, || async {
                let sent_at = Timestamp::now();
                tokio::task::yield_now().await;
                (sent_at, count.fetch_add(1, Ordering::SeqCst))
            })
            .await;
        *obtained.answer
    }

    #[tokio::test]
    async fn t101_the_same_question_is_asked_once_a_tick() {
        let (shared, count) = (Shared::new(), AtomicU32::new(0));
        let tick = Timestamp::now();
        let answers = join_all((0..50).map(|_| ask(&shared, &count, "x", tick))).await;
        assert!(answers.iter().all(|answer| *answer == 0));
        assert_eq!(ask(&shared, &count, "y", tick).await, 1, "another question");
        assert_eq!(
            ask(&shared, &count, "x", tick).await,
            0,
            "late, but of the same tick"
        );
        let later = Timestamp::now() + jiff::SignedDuration::from_micros(1);
        assert_eq!(ask(&shared, &count, "x", later).await, 2, "the next tick");
    }

    #[tokio::test]
    async fn an_answer_from_before_the_clock_was_set_back_is_not_shared() {
        let shared = Shared::new();
        let ahead = Timestamp::now() + jiff::SignedDuration::from_hours(1);
        let now = Timestamp::now();
        shared.get("x", now, || async { (ahead, 1) }).await;
        let obtained = shared
            .get("x", now, || async { (Timestamp::now(), 2) })
            .await;
        assert_eq!((*obtained.answer, obtained.shared), (2, false));
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_leaves_the_question_open() {
        let shared = Shared::<u32>::new();
        let now = Timestamp::now();
        {
            let mut gone = Box::pin(shared.get("x", now, std::future::pending::<(Timestamp, u32)>));
            assert!(futures::poll!(gone.as_mut()).is_pending());
        }
        let obtained = shared
            .get("x", now, || async { (Timestamp::now(), 7) })
            .await;
        assert_eq!(*obtained.answer, 7);
    }

    #[tokio::test]
    async fn what_nobody_uses_is_dropped() {
        let shared = Shared::new();
        shared
            .get("x", Timestamp::now(), || async { (Timestamp::now(), 1) })
            .await;
        let mut slots = shared.slots.lock().unwrap();
        let now = Instant::now();
        slots.sweep(now + ANSWER_KEPT);
        assert!(
            slots.by_question["x"].last.try_lock().unwrap().is_none(),
            "only the answer"
        );
        slots.sweep(now + UNUSED_FOR + Duration::from_secs(1));
        assert!(slots.by_question.is_empty());
    }
}
