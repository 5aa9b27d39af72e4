//! Windows and blackouts together: may a run start now?

use jiff::{SignedDuration, Timestamp};

use super::Window;

/// How far ahead an opening is looked for. A little more than a year, so that a
/// yearly window is found.
const HORIZON: SignedDuration = SignedDuration::from_hours(370 * 24);

/// How many edges are looked at, so that no combination of windows can keep the
/// search busy.
const MAX_EDGES: usize = 4096;

/// When runs may start.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Schedule {
    /// A run may start inside any of them; none given: at any time.
    pub windows: Vec<Window>,
    /// No run starts inside any of them, whatever the windows say.
    pub blackouts: Vec<Window>,
}

/// Whether runs may start, and until when that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// They may.
    Open {
        /// When they no longer may; `None` when no end is in sight.
        closes: Option<Timestamp>,
    },
    /// They may not.
    Closed {
        /// What is in the way.
        reason: ClosedBy,
        /// The first instant at which they may; `None` when there is none
        /// within 370 days.
        opens: Option<Timestamp>,
    },
}

/// What keeps a schedule closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClosedBy {
    /// There are windows, and now is inside none.
    OutsideWindows,
    /// Now is inside a blackout.
    Blackout,
}

impl Schedule {
    /// What holds at `now` (T74): any window opens, a blackout wins, and without
    /// windows it is open.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Gate {
        let reason = if is_in_any(&self.blackouts, now) {
            ClosedBy::Blackout
        } else if !self.windows.is_empty() && !is_in_any(&self.windows, now) {
            ClosedBy::OutsideWindows
        } else {
            return Gate::Open {
                closes: self.closes(now),
            };
        };
        Gate::Closed {
            reason,
            opens: self.opens(now),
        }
    }

    /// The end of the open span around `now`.
    fn closes(&self, now: Timestamp) -> Option<Timestamp> {
        let blackout = first_opening(&self.blackouts, now);
        // No window: only a blackout can close it.
        let windows_end = if self.windows.is_empty() {
            None
        } else {
            joint_end(&self.windows, now)
        };
        blackout.into_iter().chain(windows_end).min()
    }

    /// The first open instant after `now`, which is closed.
    fn opens(&self, now: Timestamp) -> Option<Timestamp> {
        let horizon = now.checked_add(HORIZON).ok()?;
        let mut t = now;
        for _ in 0..MAX_EDGES {
            if t > horizon {
                return None;
            }
            t = if is_in_any(&self.blackouts, t) {
                joint_end(&self.blackouts, t)?
            } else if !self.windows.is_empty() && !is_in_any(&self.windows, t) {
                first_opening(&self.windows, t)?
            } else {
                return Some(t);
            };
        }
        None
    }
}

fn is_in_any(windows: &[Window], t: Timestamp) -> bool {
    windows.iter().any(|window| window.contains(t))
}

fn first_opening(windows: &[Window], t: Timestamp) -> Option<Timestamp> {
    windows
        .iter()
        .filter_map(|window| window.opening_after(t))
        .min()
}

/// When the last of the windows that follow upon each other without a pause
/// closes. `None` when `t` is in none, or no end is in sight.
fn joint_end(windows: &[Window], t: Timestamp) -> Option<Timestamp> {
    let mut end = None;
    let mut inside = t;
    for _ in 0..MAX_EDGES {
        let around = windows.iter().filter(|window| window.contains(inside));
        // One that does not close keeps all open.
        let ends = around
            .map(|window| window.current_end(inside))
            .collect::<Option<Vec<_>>>()?;
        match ends.into_iter().max() {
            Some(later) => (end, inside) = (Some(later), later),
            None => return end,
        }
    }
    None
}
