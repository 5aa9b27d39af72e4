//! A cluster that exists on paper only: it answers as etcd does, stalls while it
//! is defragmented, loses answers and dies on cue, and it watches the invariants
//! from the servers' side.

mod cases;
mod endings;
mod invariants;
mod stories;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::core::rule::{Quota, QuotaSource};
use crate::core::run::{ActResult, RunRecord, RunSpec};
use crate::core::view::{
    Alarm, AlarmKind, ClusterId, DefragMetrics, MemberStatus, MemberView, Trouble,
};

pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

pub(super) fn t(second: i64) -> Timestamp {
    Timestamp::from_second(1_750_000_000 + second).unwrap()
}

#[derive(Clone, Debug)]
pub(super) struct SimMember {
    pub(super) id: MemberId,
    pub(super) name: String,
    pub(super) learner: bool,
    pub(super) up: bool,
    pub(super) size: u64,
    pub(super) in_use: u64,
    pub(super) lag: u64,
    pub(super) version: &'static str,
    pub(super) revision: i64,
    /// Set while a defragmentation runs.
    pub(super) busy_until: Option<Timestamp>,
    pub(super) finished: u64,
    pub(super) process_start: f64,
    /// Defragmentations that the server began, and those that it finished.
    pub(super) begun: u32,
    pub(super) done: u32,
}

/// What becomes of a Defragment call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fate {
    /// Answers after this many seconds.
    Done(i64),
    /// The answer is lost after one second; the server works for this many.
    Lost(i64),
    /// The answer is lost and the request never arrived.
    LostUnsent,
    Refused,
    NotSent,
    /// The process dies in the middle and is up again.
    Killed,
    /// The intent is stored, and at that moment it may not be acted upon.
    NotPermitted,
}

#[derive(Clone, Debug)]
pub(super) struct Sim {
    pub(super) now: Timestamp,
    pub(super) id: ClusterId,
    pub(super) members: Vec<SimMember>,
    pub(super) leader: Option<MemberId>,
    pub(super) alarms: BTreeSet<Alarm>,
    pub(super) quota: Quota,
    pub(super) metrics: bool,
    pub(super) expected: Option<u32>,
    pub(super) transfers: u32,
    pub(super) disarms_ignored: bool,
}

impl Sim {
    /// `sizes` as (file, in use) in MiB; the first member leads.
    pub(super) fn new(sizes: &[(u64, u64)]) -> Self {
        let members: Vec<SimMember> = sizes
            .iter()
            .enumerate()
            .map(|(i, (size, used))| SimMember {
                id: MemberId(0xa0 + i as u64),
                name: format!("m{i}"),
                learner: false,
                up: true,
                size: size * MIB,
                in_use: used * MIB,
                lag: 0,
                version: "3.6.16",
                revision: 1000,
                busy_until: None,
                finished: 0,
                process_start: 1.0,
                begun: 0,
                done: 0,
            })
            .collect();
        Sim {
            now: t(0),
            id: ClusterId(0xc1),
            leader: members.first().map(|m| m.id),
            members,
            alarms: BTreeSet::new(),
            quota: Quota::Known {
                bytes: 8 * GIB,
                source: QuotaSource::Status,
            },
            metrics: true,
            expected: None,
            transfers: 0,
            disarms_ignored: false,
        }
    }

    pub(super) fn member(&mut self, i: usize) -> &mut SimMember {
        &mut self.members[i]
    }

    pub(super) fn pass(&mut self, by: SignedDuration) {
        self.now = self.now.checked_add(by).unwrap();
        let now = self.now;
        for m in &mut self.members {
            if m.busy_until.is_some_and(|until| now >= until) {
                m.busy_until = None;
                m.size = m.in_use;
                m.finished += 1;
                m.done += 1;
            }
        }
    }

    pub(super) fn see(&self) -> Observation {
        let members = self
            .members
            .iter()
            .map(|m| MemberView {
                id: m.id,
                name: m.name.clone(),
                learner: m.learner,
                status: self.status(m),
                metrics: (self.metrics && m.up).then_some(DefragMetrics {
                    inflight: Some(m.busy_until.is_some()),
                    finished: m.finished,
                    process_start: m.process_start,
                }),
            })
            .collect();
        let quorum = self.members.iter().filter(|m| m.up && !m.learner).count() * 2
            > self.members.iter().filter(|m| !m.learner).count();
        Observation {
            at: self.now,
            members: Ok(members),
            alarms: if quorum {
                Ok(self.alarms.clone())
            } else {
                Err(trouble(Reason::AlarmsUnavailable))
            },
            cluster_ids: BTreeSet::from([self.id]),
            expected_voters: self.expected,
        }
    }

    fn status(&self, m: &SimMember) -> Result<MemberStatus, Trouble> {
        if !m.up || m.busy_until.is_some() {
            return Err(trouble(Reason::MemberUnreachable));
        }
        Ok(MemberStatus {
            version: m.version.to_owned(),
            db_size: m.size,
            db_size_in_use: Some(m.in_use),
            quota: self.quota,
            leader: self.leader,
            raft_term: 2 + u64::from(self.transfers),
            raft_index: 10_000,
            raft_applied_index: Some(10_000 - m.lag),
            revision: m.revision,
            alarms: BTreeSet::new(),
            errors: Vec::new(),
        })
    }

    /// The server's side of a call. Panics when an invariant is broken.
    pub(super) fn act(&mut self, act: &Act, fate: Fate) -> ActResult {
        match act {
            Act::Defragment { member, .. } => self.defragment(*member, fate),
            Act::MoveLeader { from, to } => {
                assert_eq!(
                    self.leader,
                    Some(*from),
                    "a transfer is asked of the leader"
                );
                if fate == Fate::Refused {
                    return ActResult::Refused(Note::new(
                        Reason::LeaderMoveFailed,
                        "bad transferee",
                    ));
                }
                self.leader = Some(*to);
                self.transfers += 1;
                self.pass(SignedDuration::from_millis(100));
                ActResult::Done
            }
            Act::Compact { revision, .. } => {
                assert!(*revision >= 1);
                self.pass(SignedDuration::from_secs(1));
                for m in &mut self.members {
                    m.in_use /= 2;
                }
                ActResult::Done
            }
            Act::Disarm { member, .. } => {
                if let Quota::Known { bytes, .. } = self.quota {
                    let full = self.members.iter().any(|m| m.size >= bytes);
                    assert!(!full, "disarmed while a member has no room");
                }
                let corrupt = self.alarms.iter().any(|a| a.kind == AlarmKind::Corrupt);
                assert!(!corrupt, "disarmed while CORRUPT is raised");
                if !self.disarms_ignored {
                    self.alarms.remove(&Alarm {
                        member: *member,
                        kind: AlarmKind::NoSpace,
                    });
                }
                ActResult::Done
            }
        }
    }

    fn defragment(&mut self, id: MemberId, fate: Fate) -> ActResult {
        if matches!(fate, Fate::NotSent | Fate::Refused | Fate::LostUnsent) {
            self.pass(SignedDuration::from_secs(1));
            let note = Note::new(Reason::MemberUnreachable, "the call failed");
            return match fate {
                Fate::NotSent => ActResult::NotSent(note),
                Fate::Refused => ActResult::Refused(note),
                _ => ActResult::Unknown(note),
            };
        }
        let busy: Vec<_> = self
            .members
            .iter()
            .filter(|m| m.busy_until.is_some())
            .map(|m| m.id)
            .collect();
        assert!(
            busy.is_empty(),
            "{id} is asked while {busy:?} is being defragmented"
        );
        let now = self.now;
        let member = self
            .members
            .iter_mut()
            .find(|m| m.id == id)
            .expect("a member of the cluster");
        assert!(!member.learner, "a learner is asked");
        assert_eq!(member.done, 0, "{id} is asked again after it has finished");
        member.begun += 1;
        assert!(member.begun <= MAX_ATTEMPTS, "{id} is asked once too often");
        let (work, answer) = match fate {
            Fate::Done(s) => (s, Some(s)),
            Fate::Lost(s) => (s, None),
            _ => (5, None),
        };
        if fate == Fate::Killed {
            member.process_start += 1.0;
            member.finished = 0;
        } else {
            member.busy_until = Some(now.checked_add(SignedDuration::from_secs(work)).unwrap());
        }
        self.pass(SignedDuration::from_secs(answer.unwrap_or(1)));
        match answer {
            Some(_) => ActResult::Done,
            None => ActResult::Unknown(Note::new(Reason::MemberUnreachable, "the answer was lost")),
        }
    }
}

/// Three members with about a GiB to give back each; the first leads.
pub(super) fn fragmented() -> Sim {
    Sim::new(&[(1200, 100), (1100, 100), (1300, 100)])
}

pub(super) fn trouble(reason: Reason) -> Trouble {
    Trouble {
        reason,
        message: "no answer within 5s".to_owned(),
    }
}

/// Runs to the end and writes a line for each step that is news.
pub(super) struct Script {
    pub(super) sim: Sim,
    pub(super) spec: RunSpec,
    pub(super) record: RunRecord,
    pub(super) lines: Vec<String>,
    last: String,
}

impl Script {
    pub(super) fn new(sim: Sim, spec: RunSpec) -> Self {
        Script {
            sim,
            spec,
            record: RunRecord::default(),
            lines: Vec::new(),
            last: String::new(),
        }
    }

    pub(super) fn say(&mut self, line: impl Into<String>) {
        let line = line.into();
        if self.last != line {
            let at = self.sim.now.duration_since(t(0)).as_secs();
            self.lines.push(format!("{at:>5}s {line}"));
            self.last = line;
        }
    }

    pub(super) fn look(&mut self) -> Step {
        let before = self.record.phase;
        let next = next(
            &self.spec,
            self.record.clone(),
            &self.sim.see(),
            &Control::default(),
        );
        assert!(next.record.phase >= before, "phases go forward only");
        self.record = next.record;
        next.step
    }

    /// One step, with the given fate if it is a Defragment.
    pub(super) fn step(&mut self, fate: Fate) -> bool {
        match self.look() {
            Step::Finish => {
                let note = self
                    .record
                    .result
                    .clone()
                    .expect("a finished run has a result");
                self.say(format!(
                    "{} {}: {}",
                    self.record.phase.as_str(),
                    note.reason,
                    note.message
                ));
                return false;
            }
            Step::Observe { after, note } => {
                self.say(format!("observe {}: {}", note.reason, note.message));
                self.sim.pass(after);
            }
            Step::Hold { after, note } => {
                self.say(format!("hold {}: {}", note.reason, note.message));
                self.sim.pass(after);
            }
            Step::Act(act) => {
                self.say(format!("act {}", describe(&act)));
                let result = self.sim.act(&act, fate);
                self.record = conclude(self.record.clone(), &act, &result, self.sim.now);
            }
        }
        true
    }

    pub(super) fn run(&mut self, mut fate: impl FnMut(MemberId) -> Fate) -> &mut Self {
        for _ in 0..5_000 {
            let next_up = self.sim.see();
            let fate = match next(
                &self.spec,
                self.record.clone(),
                &next_up,
                &Control::default(),
            )
            .step
            {
                Step::Act(Act::Defragment { member, .. }) => fate(member),
                _ => Fate::Done(1),
            };
            if !self.step(fate) {
                return self;
            }
        }
        panic!("the run does not end:\n{}", self.lines.join("\n"));
    }

    pub(super) fn text(&self) -> String {
        let mut text = self.lines.join("\n");
        for m in &self.record.members {
            text.push_str(&format!(
                "\n{:>6} {} {} {}: {}",
                m.name,
                m.role.as_str(),
                m.outcome.as_str(),
                m.reason,
                m.message
            ));
        }
        text
    }
}

fn describe(act: &Act) -> String {
    match act {
        Act::Compact { member, revision } => format!("compact to {revision} at {member}"),
        Act::Defragment { member, timeout } => {
            format!(
                "defragment {member} within {}",
                crate::core::duration::format(*timeout)
            )
        }
        Act::MoveLeader { from, to } => format!("move leader {from} -> {to}"),
        Act::Disarm { member, via } => format!("disarm NOSPACE of {member} via {via}"),
    }
}

pub(super) fn all_done(_: MemberId) -> Fate {
    Fate::Done(2)
}
