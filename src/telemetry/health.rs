//! Whether the process is alive, ready, and the one that acts.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// How long the engine may take for a round before the process counts as stuck.
/// A round takes 5 s when nothing happens, and waits for the disk or the API
/// server at most.
const STUCK_AFTER: Duration = Duration::from_secs(120);

/// The engine has not come round for too long.
#[derive(Debug, thiserror::Error)]
#[error("the engine has not begun a round for {since:?}, at most {STUCK_AFTER:?} are expected")]
pub struct Stuck {
    since: Duration,
}

#[derive(Clone, Debug)]
pub(super) struct Health {
    pub(super) ready: bool,
    /// `None`: nobody has said whether this process leads.
    pub(super) leads: Option<bool>,
    /// Times that it began or ceased to lead.
    pub(super) transitions: u64,
    pub(super) last_round: Option<Timestamp>,
    /// From when on the next round is expected.
    expected: Instant,
}

impl Health {
    pub(super) fn new() -> Self {
        Health {
            ready: false,
            leads: None,
            transitions: 0,
            last_round: None,
            expected: Instant::now(),
        }
    }

    /// False while another process is known to do the work.
    pub(super) fn acts(&self) -> bool {
        self.leads != Some(false)
    }

    pub(super) fn lead(&mut self, leads: bool) {
        if self.leads == Some(leads) {
            return;
        }
        // To wait from the start is no transition.
        if leads || self.leads.is_some() {
            self.transitions += 1;
        }
        self.leads = Some(leads);
        self.last_round = None;
        self.expected = Instant::now();
    }

    pub(super) fn round(&mut self, at: Timestamp) {
        if self.acts() {
            self.last_round = Some(at);
            self.expected = Instant::now();
        }
    }

    pub(super) fn alive(&self, now: Instant) -> Result<(), Stuck> {
        let since = now.duration_since(self.expected);
        if !self.acts() || since <= STUCK_AFTER {
            Ok(())
        } else {
            Err(Stuck { since })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(health: &Health) -> Result<(), Stuck> {
        health.alive(Instant::now() + STUCK_AFTER + Duration::from_secs(1))
    }

    #[test]
    fn a_process_that_should_work_and_does_not_is_stuck() {
        let mut health = Health::new();
        assert!(
            health.alive(Instant::now()).is_ok(),
            "the start has its time"
        );
        assert!(later(&health).is_err(), "but not for ever");
        health.lead(true);
        health.round(Timestamp::UNIX_EPOCH);
        assert!(health.alive(Instant::now()).is_ok());
        let said = later(&health).unwrap_err().to_string();
        assert!(said.contains("at most 120s"), "{said}");
    }

    #[test]
    fn t49_a_replica_that_waits_is_alive_without_rounds() {
        let mut health = Health::new();
        health.lead(false);
        assert!(later(&health).is_ok());
        assert_eq!(health.transitions, 0, "it never led");
        health.lead(true);
        assert!(later(&health).is_err(), "now rounds are expected of it");
        health.round(Timestamp::UNIX_EPOCH);
        health.lead(true);
        assert!(health.last_round.is_some(), "nothing changed");
        health.lead(false);
        health.round(Timestamp::UNIX_EPOCH);
        assert!(later(&health).is_ok());
        assert!(health.last_round.is_none(), "a round that came too late");
        assert_eq!(health.transitions, 2);
    }
}
