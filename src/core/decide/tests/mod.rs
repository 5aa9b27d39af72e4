//! A policy on one cluster, on paper: readings in, decisions out, with the state
//! carried from one evaluation to the next as a host would carry it.

mod asked;
mod blockers;
mod cases;
mod emergency;
mod invariants;
mod pauses;
mod silence;
mod timeline;

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::core::rule::Rule;
use crate::core::run::RunSpec;
use crate::core::signal::{Reading, Signal, SignalState};
use crate::core::window::Schedule;

pub(super) fn t(second: i64) -> Timestamp {
    Timestamp::from_second(1_750_000_000 + second).unwrap()
}

pub(super) fn secs(s: i64) -> SignedDuration {
    SignedDuration::from_secs(s)
}

pub(super) const MIB: u64 = 1 << 20;

pub(super) fn policy() -> Policy {
    Policy {
        signal: Signal::Probe(Rule::default()),
        fleet: None,
        series: None,
        hold_for: secs(60),
        interval: secs(10),
        no_data: OnSilence::Hold,
        on_error: OnSilence::Hold,
        fallback: None,
        schedule: Schedule::default(),
        blockers: Vec::new(),
        max_blocked_for: None,
        cooldown: secs(3600),
        backoff: Backoff::default(),
        max_runs_per_day: None,
        emergency: None,
        suspend: false,
        paused_until: None,
        dry_run: false,
        trigger: None,
        history: HistoryLimit::default(),
        template: RunSpec::default(),
    }
}

pub(super) fn firing() -> Reading {
    Reading::new(
        SignalState::Firing,
        Reason::SignalFiring,
        "150 is above 100",
    )
}

pub(super) fn quiet() -> Reading {
    Reading::new(
        SignalState::NotFiring,
        Reason::SignalNotFiring,
        "50 is not above 100",
    )
}

pub(super) fn no_data() -> Reading {
    Reading::new(SignalState::NoData, Reason::NoData, "no series")
}

pub(super) fn down() -> Reading {
    Reading::error(Reason::SourceUnavailable, "connection refused")
}

pub(super) struct World {
    pub(super) policy: Policy,
    pub(super) state: ClusterState,
    pub(super) now: Timestamp,
    pub(super) runs: Vec<RunSummary>,
    pub(super) runs_broken: bool,
    pub(super) emergency: Option<String>,
    /// What the blockers say when they are asked.
    pub(super) blockers: Vec<Reading>,
    /// How often they were.
    pub(super) asked: u32,
    /// Every create that was asked for, also repeated ones.
    pub(super) creates: Vec<CreateRun>,
    pub(super) last: Option<Decision>,
}

impl World {
    pub(super) fn new(policy: Policy) -> Self {
        World {
            policy,
            state: ClusterState::default(),
            now: t(0),
            runs: Vec::new(),
            runs_broken: false,
            emergency: None,
            blockers: Vec::new(),
            asked: 0,
            creates: Vec::new(),
            last: None,
        }
    }

    pub(super) fn pass(&mut self, seconds: i64) -> &mut Self {
        self.now = self.now.checked_add(secs(seconds)).unwrap();
        self
    }

    fn facts(&mut self, primary: Reading, fallback: Option<Reading>) -> Decision {
        let mut facts = Facts {
            now: self.now,
            policy: "p",
            uid: "u",
            cluster: "default/c",
            primary: Some(primary),
            fallback,
            emergency: self.emergency.clone(),
            blockers: None,
            runs: if self.runs_broken {
                Err("disk error".to_owned())
            } else {
                Ok(&self.runs)
            },
        };
        let decision = decide(&self.policy, self.state.clone(), &facts);
        if !decision.asks_blockers {
            return decision;
        }
        self.asked += 1;
        facts.blockers = Some(&self.blockers);
        decide(&self.policy, self.state.clone(), &facts)
    }

    /// One evaluation: recorded, created, recorded.
    pub(super) fn eval(&mut self, primary: Reading) -> Reason {
        self.eval_with(primary, None)
    }

    pub(super) fn eval_with(&mut self, primary: Reading, fallback: Option<Reading>) -> Reason {
        let fallback =
            fallback.filter(|_| wants_fallback(&self.policy, &self.state, &primary, self.now));
        let decision = self.facts(primary, fallback);
        let before = self.state.decision.as_ref().map(|note| note.reason);
        self.state = decision.state.clone();
        note_decision(&mut self.state, before, self.now);
        if let Some(run) = &decision.create {
            self.creates.push(run.clone());
            if self.runs.iter().all(|r| r.name != run.name) {
                self.runs.push(RunSummary {
                    name: run.name.clone(),
                    own: true,
                    created_at: self.now,
                    dry_run: self.policy.template.dry_run,
                    end: None,
                });
            }
            self.state = created(&self.policy, self.state.clone(), run, self.now);
        }
        let reason = decision.note.reason;
        self.last = Some(decision);
        reason
    }

    /// Evaluates every ten seconds for a while; the last reason.
    pub(super) fn hold(&mut self, seconds: i64, reading: impl Fn() -> Reading) -> Reason {
        let mut reason = self.eval(reading());
        for _ in 0..seconds / 10 {
            self.pass(10);
            reason = self.eval(reading());
        }
        reason
    }

    pub(super) fn finish(&mut self, reclaimed: u64) -> &mut Self {
        self.end(true, Reason::SweepComplete, reclaimed, true)
    }

    pub(super) fn end(
        &mut self,
        succeeded: bool,
        reason: Reason,
        reclaimed: u64,
        touched: bool,
    ) -> &mut Self {
        let at = self.now;
        let run = self
            .runs
            .iter_mut()
            .find(|r| r.end.is_none())
            .expect("a run goes on");
        run.end = Some(RunEnd {
            at,
            succeeded,
            reason,
            reclaimed,
            touched,
        });
        self
    }

    pub(super) fn message(&self) -> &str {
        &self.last.as_ref().unwrap().note.message
    }

    pub(super) fn names(&self) -> std::collections::BTreeSet<&str> {
        self.creates.iter().map(|c| c.name.as_str()).collect()
    }
}
