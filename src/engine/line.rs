//! The line of policies that wait for the administrator's limits on new runs:
//! who has fired for longest is next, whoever comes first.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::host::{HostError, ObjectKey, PolicyOn};
use super::now;

/// How long a newcomer lets others come that are due at the same moment.
const GATHER: Duration = Duration::from_millis(200);
/// How long somebody stands in line at a stretch: its reading gets no older than it
/// does between two evaluations, within bounds. Its signal is then asked again.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));
/// How late somebody may come back to its place.
const GRACE: SignedDuration = SignedDuration::from_secs(10);
const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// A place in line: the older firing first, then by name.
type Place = (Timestamp, PolicyOn);

/// Those who wait, and how many may go.
#[derive(Debug)]
pub(super) struct Line {
    per_hour: Option<NonZeroU32>,
    per_minute: Option<NonZeroU32>,
    rate: Option<DefaultDirectRateLimiter>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: BTreeMap<Place, Waiting>,
    places: BTreeMap<PolicyOn, Place>,
    /// Runs of the last hour, as far as somebody had to know.
    lately: BTreeMap<ObjectKey, Timestamp>,
    /// What was stored by another process has been taken in.
    seeded: bool,
}

#[derive(Debug)]
struct Waiting {
    /// Told when it is first.
    first: Arc<Notify>,
    /// It stands here now; else it is asking its signal, or rests.
    present: bool,
    /// Until then the place is kept for one that is not here.
    kept_until: Timestamp,
}

/// One who wants to make a run.
pub(super) struct Wish<'a> {
    pub(super) policy: &'a PolicyOn,
    pub(super) run: &'a ObjectKey,
    /// Since when its signal fires; absent for a run that a person asked for.
    pub(super) firing_since: Option<Timestamp>,
    /// How soon it comes back when it cannot be served.
    pub(super) interval: SignedDuration,
}

impl Wish<'_> {
    fn patience(&self) -> Duration {
        let (least, most) = PATIENCE;
        self.interval.unsigned_abs().clamp(least, most)
    }
}

/// Why there is no run yet.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Waits {
    Queued(Queued),
    /// The runs of the last hour cannot be counted.
    Unknown(HostError),
}

/// It has to wait.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Queued {
    /// When its turn comes, as far as can be told.
    pub(super) until: Timestamp,
    /// Which limit it is, in words.
    pub(super) limit: String,
    /// How many are before it.
    pub(super) before: usize,
}

enum Turn {
    Served,
    /// Not before that time.
    Closed(Queued),
    Unknown(HostError),
    /// Somebody is before it, who may be waited for until then.
    Behind(Arc<Notify>, Option<Timestamp>),
}

impl Line {
    pub(super) fn new(per_hour: Option<NonZeroU32>, per_minute: Option<NonZeroU32>) -> Self {
        // One at a time, so that no minute sees more than its number.
        let rate = per_minute.map(|limit| {
            RateLimiter::direct(Quota::per_minute(limit).allow_burst(NonZeroU32::MIN))
        });
        Line {
            per_hour,
            per_minute,
            rate,
            inner: Mutex::default(),
        }
    }

    /// True when nobody ever has to wait.
    pub(super) fn is_open(&self) -> bool {
        self.per_hour.is_none() && self.per_minute.is_none()
    }

    /// Takes in, once, who stood in line when the last process stopped.
    pub(super) fn seed(
        &self,
        waiting: impl FnOnce() -> Vec<(PolicyOn, Timestamp, SignedDuration)>,
    ) {
        if std::mem::replace(&mut self.inner().seeded, true) {
            return;
        }
        let now = now();
        for (policy, since, back_in) in waiting() {
            let mut inner = self.inner();
            if !inner.places.contains_key(&policy) {
                inner.place((since, policy), keep_until(now, back_in));
            }
        }
    }

    /// Waits for its turn, for a while. Served, the run counts as made.
    ///
    /// # Errors
    /// When its turn does not come soon. It keeps its place.
    pub(super) async fn stand(
        &self,
        wish: &Wish<'_>,
        known: impl Fn() -> Result<Vec<(ObjectKey, Timestamp)>, HostError>,
        shutdown: &CancellationToken,
    ) -> Result<(), Waits> {
        let began = tokio::time::Instant::now();
        let new = self.arrive(wish);
        let _present = Present {
            line: self,
            policy: wish.policy,
            interval: wish.interval,
        };
        if new {
            tokio::select! {
                () = tokio::time::sleep(GATHER) => {}
                () = shutdown.cancelled() => {}
            }
        }
        loop {
            let patience = wish.patience().saturating_sub(began.elapsed());
            let (first, until) = match self.turn(wish, &known) {
                Turn::Served => return Ok(()),
                Turn::Unknown(error) => return Err(Waits::Unknown(error)),
                Turn::Closed(queued) => {
                    let wait = queued.until.duration_since(now());
                    let wait = wait.max(SignedDuration::from_millis(1)).unsigned_abs();
                    if wait >= patience || shutdown.is_cancelled() {
                        return Err(Waits::Queued(queued));
                    }
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        () = shutdown.cancelled() => {}
                    }
                    continue;
                }
                Turn::Behind(first, until) => (first, until),
            };
            if patience.is_zero() || shutdown.is_cancelled() {
                return Err(Waits::Queued(self.queued(wish)));
            }
            let until = until.map_or(patience, |at| {
                let left = at.duration_since(now()).max(SignedDuration::from_millis(1));
                patience.min(left.unsigned_abs())
            });
            tokio::select! {
                () = first.notified() => {}
                () = tokio::time::sleep(until) => {}
                () = shutdown.cancelled() => {}
            }
        }
    }

    /// It wants no run any more, or is gone: those behind it move up.
    pub(super) fn leave(&self, policy: &PolicyOn) {
        if self.is_open() {
            return;
        }
        let mut inner = self.inner();
        if inner.places.contains_key(policy) {
            inner.remove(policy);
            inner.call_first();
        }
    }

    /// What it was served for became this run.
    pub(super) fn made(&self, wished: &ObjectKey, run: &ObjectKey) {
        let mut inner = self.inner();
        if wished != run
            && let Some(start) = inner.lately.remove(wished)
        {
            inner.lately.insert(run.clone(), start);
        }
    }

    /// The run was not made after all.
    pub(super) fn take_back(&self, run: &ObjectKey) {
        self.inner().lately.remove(run);
    }

    /// Takes its place, unless it has one. True when it had none.
    fn arrive(&self, wish: &Wish<'_>) -> bool {
        let now = now();
        let mut inner = self.inner();
        let old = inner.places.get(wish.policy).cloned();
        let since = match (wish.firing_since, &old) {
            (Some(since), _) => since,
            (None, Some((since, _))) => *since,
            (None, None) => now,
        };
        let place = (since, wish.policy.clone());
        if old.as_ref() != Some(&place) {
            inner.remove(wish.policy);
            inner.place(place.clone(), now);
        }
        if let Some(waiting) = inner.waiting.get_mut(&place) {
            waiting.present = true;
        }
        old.is_none()
    }

    fn turn(
        &self,
        wish: &Wish<'_>,
        known: &impl Fn() -> Result<Vec<(ObjectKey, Timestamp)>, HostError>,
    ) -> Turn {
        let now = now();
        let mut inner = self.inner();
        inner.drop_absent(now);
        let Some(place) = inner.places.get(wish.policy).cloned() else {
            // Its place was lost, which only a clock that jumps can do.
            return Turn::Closed(self.queue_up(&mut inner, 0, now));
        };
        let head = inner.waiting.first_key_value();
        if let Some((first, waiting)) = head
            && *first != place
        {
            let until = (!waiting.present).then_some(waiting.kept_until);
            // Nobody is let go for a while: then nobody need stand here.
            if let Some(opens) = self.hour_opens(&inner, now)
                && opens.duration_since(now).unsigned_abs() >= wish.patience()
            {
                let before = inner.before(&place);
                return Turn::Closed(self.queue_up(&mut inner, before, now));
            }
            return match inner.waiting.get(&place) {
                Some(own) => Turn::Behind(own.first.clone(), until),
                None => Turn::Closed(self.queue_up(&mut inner, 0, now)),
            };
        }
        if let Some(limit) = self.per_hour {
            inner.forget(now);
            // What is known already may be enough to refuse.
            if inner.lately.len() < limit.get() as usize {
                let known = match known() {
                    Ok(known) => known,
                    Err(error) => return Turn::Unknown(error),
                };
                for (key, start) in known {
                    inner.lately.entry(key).or_insert(start);
                }
                inner.forget(now);
            }
            if inner.lately.len() >= limit.get() as usize {
                return Turn::Closed(self.queue_up(&mut inner, 0, now));
            }
        }
        if let Some(rate) = &self.rate
            && let Err(not_until) = rate.check()
        {
            let wait = not_until.wait_time_from(DefaultClock::default().now());
            let mut queued = self.queue_up(&mut inner, 0, now);
            queued.until = SignedDuration::try_from(wait)
                .ok()
                .and_then(|wait| now.checked_add(wait).ok())
                .unwrap_or(now);
            return Turn::Closed(queued);
        }
        if self.per_hour.is_some() {
            inner.lately.insert(wish.run.clone(), now);
        }
        inner.remove(wish.policy);
        inner.call_first();
        Turn::Served
    }

    fn queued(&self, wish: &Wish<'_>) -> Queued {
        let mut inner = self.inner();
        let before = inner
            .places
            .get(wish.policy)
            .cloned()
            .map_or(0, |place| inner.before(&place));
        self.queue_up(&mut inner, before, now())
    }

    /// When the hour's number allows another run; `None` when it does now.
    fn hour_opens(&self, inner: &Inner, now: Timestamp) -> Option<Timestamp> {
        let limit = self.per_hour?.get() as usize;
        let mut starts: Vec<Timestamp> = inner
            .lately
            .values()
            .copied()
            .filter(|start| now.duration_since(*start) < HOUR)
            .collect();
        if starts.len() < limit {
            return None;
        }
        starts.sort_unstable();
        starts[starts.len() - limit].checked_add(HOUR).ok()
    }

    /// What one hears with so many before it.
    fn queue_up(&self, inner: &mut Inner, before: usize, now: Timestamp) -> Queued {
        inner.forget(now);
        let mut starts: Vec<Timestamp> = inner.lately.values().copied().collect();
        starts.sort_unstable();
        let mut until = now;
        let mut limits = Vec::new();
        if let Some(limit) = self.per_hour {
            let limit = limit.get() as usize;
            // The start that has to be an hour old first. Those before it will have
            // started by then, and then theirs count.
            let over = (starts.len() + before + 1).checked_sub(limit + 1);
            if let (Some(over), false) = (over, starts.is_empty()) {
                let rounds = i64::try_from(over / starts.len()).unwrap_or(i64::MAX);
                let wait = HOUR.saturating_add(SignedDuration::from_hours(rounds.min(10_000)));
                let opens = starts[over % starts.len()].checked_add(wait);
                until = until.max(opens.unwrap_or(Timestamp::MAX));
                limits.push(format!(
                    "policies made {} runs within the last hour, and limits.runsPerHour is {limit}",
                    starts.len()
                ));
            }
        }
        if let Some(limit) = self.per_minute {
            let each =
                SignedDuration::from_secs(60) / i32::try_from(limit.get()).unwrap_or(i32::MAX);
            let wait = each.saturating_mul(i32::try_from(before + 1).unwrap_or(i32::MAX));
            until = until.max(now.checked_add(wait).unwrap_or(Timestamp::MAX));
            if limits.is_empty() {
                limits.push(format!("limits.runsPerMinute is {limit}"));
            }
        }
        Queued {
            until,
            limit: limits.join("; "),
            before,
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep_until(now: Timestamp, back_in: SignedDuration) -> Timestamp {
    now.checked_add(back_in.saturating_add(GRACE))
        .unwrap_or(Timestamp::MAX)
}

/// Somebody stands in line; gone, its place is kept for a while.
struct Present<'a> {
    line: &'a Line,
    policy: &'a PolicyOn,
    interval: SignedDuration,
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        let mut inner = self.line.inner();
        if let Some(place) = inner.places.get(self.policy).cloned()
            && let Some(waiting) = inner.waiting.get_mut(&place)
        {
            waiting.present = false;
            waiting.kept_until = keep_until(now(), self.interval);
        }
        inner.call_first();
    }
}

impl Inner {
    fn place(&mut self, place: Place, kept_until: Timestamp) {
        self.places.insert(place.1.clone(), place.clone());
        let waiting = Waiting {
            first: Arc::new(Notify::new()),
            present: false,
            kept_until,
        };
        self.waiting.insert(place, waiting);
    }

    fn remove(&mut self, policy: &PolicyOn) {
        if let Some(place) = self.places.remove(policy) {
            self.waiting.remove(&place);
        }
    }

    fn before(&self, place: &Place) -> usize {
        self.waiting.range(..place).count()
    }

    /// Those at the head who did not come back lose their place.
    fn drop_absent(&mut self, now: Timestamp) {
        while let Some((place, waiting)) = self.waiting.first_key_value()
            && !waiting.present
            && waiting.kept_until < now
        {
            let policy = place.1.clone();
            self.remove(&policy);
        }
    }

    /// Tells whoever is first. One that is not here leaves it to the next ones to
    /// look after a while.
    fn call_first(&self) {
        for waiting in self.waiting.values() {
            waiting.first.notify_one();
            if waiting.present {
                break;
            }
        }
    }

    fn forget(&mut self, now: Timestamp) {
        self.lately
            .retain(|_, start| now.duration_since(*start) < HOUR);
    }
}
