//! One run: what it is asked to do ([`RunSpec`]) and what has been recorded of
//! it ([`RunRecord`]).

use jiff::{SignedDuration, Timestamp};

use super::reason::Reason;
use super::rule::Rule;
use super::view::{ClusterId, DefragMetrics, MemberId};

/// Apply lag in raft entries below which a member counts as caught up.
/// etcd itself refuses requests above 5000; healthy members stay below 100.
pub const DEFAULT_MAX_RAFT_LAG: u64 = 500;
/// How long a member may take to catch up after its defragmentation.
pub const DEFAULT_SETTLE_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
/// How long a run may hold a cluster.
pub const DEFAULT_ACTIVE_DEADLINE: SignedDuration = SignedDuration::from_mins(45);

/// What a run is asked to do: a validated `EtcdDefrag` spec.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpec {
    pub rule: Rule,
    /// Revisions to keep; `None`: no compaction.
    pub keep_revisions: Option<u64>,
    pub leader: LeaderMode,
    pub disarm_no_space: bool,
    pub settle: Settle,
    /// `None`: computed from the live bytes of each member.
    pub member_timeout: Option<SignedDuration>,
    /// Counted from the moment the run holds the cluster.
    pub active_deadline: SignedDuration,
    pub allow_single_member: bool,
    pub dry_run: bool,
    pub suspend: bool,
    /// `None`: kept until the history limit or a person removes it.
    pub ttl_after_finished: Option<SignedDuration>,
}

impl Default for RunSpec {
    fn default() -> Self {
        RunSpec {
            rule: Rule::default(),
            keep_revisions: None,
            leader: LeaderMode::Move,
            disarm_no_space: true,
            settle: Settle::default(),
            member_timeout: None,
            active_deadline: DEFAULT_ACTIVE_DEADLINE,
            allow_single_member: false,
            dry_run: false,
            suspend: false,
            ttl_after_finished: None,
        }
    }
}

/// What to do about the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaderMode {
    /// Move leadership to a caught-up voter that is done, then take its turn.
    Move,
    /// Defragment it while it leads.
    InPlace,
    /// Leave it alone.
    Skip,
}

/// When a member counts as caught up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settle {
    /// Raft entries.
    pub max_raft_lag: u64,
    pub timeout: SignedDuration,
}

impl Default for Settle {
    fn default() -> Self {
        Settle {
            max_raft_lag: DEFAULT_MAX_RAFT_LAG,
            timeout: DEFAULT_SETTLE_TIMEOUT,
        }
    }
}

/// Phases go forward only; the last two stick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Waiting for the cluster, or for the cluster to be healthy. Nothing was touched.
    Pending,
    Running,
    Complete,
    Failed,
}

impl Phase {
    pub const fn is_terminal(self) -> bool {
        matches!(self, Phase::Complete | Phase::Failed)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Phase::Pending => "Pending",
            Phase::Running => "Running",
            Phase::Complete => "Complete",
            Phase::Failed => "Failed",
        }
    }
}

/// What is recorded of a run. Written before each act that it announces.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRecord {
    pub phase: Phase,
    /// When the run got hold of the cluster.
    pub started_at: Option<Timestamp>,
    /// `started_at + activeDeadline`, stamped once.
    pub deadline: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub cluster_id: Option<ClusterId>,
    /// Empty until planned.
    pub members: Vec<MemberRecord>,
    pub compaction: Option<CompactionRecord>,
    pub transfers: Vec<TransferRecord>,
    pub disarms: Vec<DisarmRecord>,
    /// The last verdict of the gate; `ClusterHealthy` when it was open.
    pub gate: Option<Note>,
    /// Why the sweep ends early, once decided; the ending (disarm) follows.
    pub stopping: Option<Note>,
    /// The result, with a terminal phase.
    pub result: Option<Note>,
    /// What a person should know: version advice, assumed quotas.
    pub warnings: Vec<String>,
    /// Counters that need not survive a restart: losing them only means to look again.
    pub transient: Transient,
}

/// A reason and its particulars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub reason: Reason,
    pub message: String,
}

impl Note {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Note {
            reason,
            message: message.into(),
        }
    }
}

/// See [`RunRecord::transient`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transient {
    /// Consecutive observations with different revisions at one applied index.
    pub revision_suspicions: u8,
    /// In-use sizes seen after the compaction, to notice when they stand still.
    pub in_use_seen: Vec<(MemberId, Option<u64>)>,
    /// Compactions made only so that members show what the first one freed.
    pub flushes: u8,
    /// Consecutive observations in which the unknown call looked not executed.
    pub not_executed_seen: u8,
    /// When the ending first could not read what it needs.
    pub ending_blocked_since: Option<Timestamp>,
}

impl Default for RunRecord {
    fn default() -> Self {
        RunRecord {
            phase: Phase::Pending,
            started_at: None,
            deadline: None,
            completed_at: None,
            cluster_id: None,
            members: Vec::new(),
            compaction: None,
            transfers: Vec::new(),
            disarms: Vec::new(),
            gate: None,
            stopping: None,
            result: None,
            warnings: Vec::new(),
            transient: Transient::default(),
        }
    }
}

impl RunRecord {
    /// Bytes given back by all members whose sizes are known.
    pub fn reclaimed_bytes(&self) -> u64 {
        self.members
            .iter()
            .filter_map(MemberRecord::reclaimed)
            .sum()
    }

    pub fn count(&self, outcome: Outcome) -> usize {
        self.members.iter().filter(|m| m.outcome == outcome).count()
    }

    /// True once a mutating call may have reached the cluster.
    pub fn touched(&self) -> bool {
        self.members.iter().any(|m| m.attempts > 0)
            || !self.transfers.is_empty()
            || !self.disarms.is_empty()
            || self.compaction.as_ref().is_some_and(|c| c.attempts > 0)
    }

    /// True while it has one of the places that runs on all clusters share: from the
    /// look that finds its cluster healthy, or its first call, to its end. Before that
    /// it waits, and keeps nobody from going on.
    pub fn holds_place(&self) -> bool {
        let gate = self.gate.as_ref();
        let waits = gate.is_some_and(|gate| gate.reason != Reason::ClusterHealthy);
        self.started_at.is_some() && !self.phase.is_terminal() && (self.touched() || !waits)
    }

    /// True when both are the same once stored: what need not survive is not looked at.
    pub fn is_stored_as(&self, other: &RunRecord) -> bool {
        let RunRecord {
            phase,
            started_at,
            deadline,
            completed_at,
            cluster_id,
            members,
            compaction,
            transfers,
            disarms,
            gate,
            stopping,
            result,
            warnings,
            transient: _,
        } = other;
        (self.phase, self.started_at, self.deadline) == (*phase, *started_at, *deadline)
            && (self.completed_at, self.cluster_id) == (*completed_at, *cluster_id)
            && (&self.members, &self.compaction) == (members, compaction)
            && (&self.transfers, &self.disarms) == (transfers, disarms)
            && (&self.gate, &self.stopping, &self.result) == (gate, stopping, result)
            && self.warnings == *warnings
    }

    pub fn member_mut(&mut self, id: MemberId) -> Option<&mut MemberRecord> {
        self.members.iter_mut().find(|m| m.id == id)
    }

    pub fn member(&self, id: MemberId) -> Option<&MemberRecord> {
        self.members.iter().find(|m| m.id == id)
    }

    /// The member whose call is under way or whose outcome is not known yet.
    pub fn in_flight(&self) -> Option<&MemberRecord> {
        self.members.iter().find(|m| m.call.is_some())
    }

    /// How many times the run has tried to move leadership without success.
    pub fn failed_transfers(&self) -> usize {
        self.transfers
            .iter()
            .filter(|t| t.outcome == TransferOutcome::Failed)
            .count()
    }
}

/// What became of one member.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberRecord {
    pub id: MemberId,
    pub name: String,
    pub role: Role,
    pub outcome: Outcome,
    pub reason: Reason,
    pub message: String,
    /// Bytes. Absent when it could not be read, never zero instead.
    pub db_size_before: Option<u64>,
    pub db_size_after: Option<u64>,
    pub in_use_before: Option<u64>,
    pub in_use_after: Option<u64>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// Defragment calls that were announced.
    pub attempts: u32,
    /// The call under way; `None` before and after it is settled what became of it.
    pub call: Option<CallRecord>,
}

impl MemberRecord {
    /// Bytes given back; `None` when a size is not known. A file that grew
    /// meanwhile gave back nothing.
    pub fn reclaimed(&self) -> Option<u64> {
        match (self.outcome, self.db_size_before, self.db_size_after) {
            (Outcome::Defragmented, Some(before), Some(after)) => {
                Some(before.saturating_sub(after))
            }
            _ => None,
        }
    }

    pub fn label(&self) -> String {
        if self.name.is_empty() {
            self.id.to_string()
        } else {
            format!("{} ({})", self.name, self.id)
        }
    }

    pub(crate) fn settle(&mut self, outcome: Outcome, reason: Reason, message: impl Into<String>) {
        self.outcome = outcome;
        self.reason = reason;
        self.message = message.into();
        self.call = None;
    }
}

/// The intent of a Defragment call, recorded before it leaves.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    /// Until when the call is waited for.
    pub deadline: Timestamp,
    /// What the metrics said before, to compare with afterwards.
    pub metrics_before: Option<DefragMetrics>,
    /// When a positive answer came; the sizes are read next.
    pub answered_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Leader,
    Follower,
    Learner,
}

impl Role {
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Leader => "Leader",
            Role::Follower => "Follower",
            Role::Learner => "Learner",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    Pending,
    InProgress,
    Defragmented,
    Skipped,
    Failed,
    Unknown,
}

impl Outcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Pending => "Pending",
            Outcome::InProgress => "InProgress",
            Outcome::Defragmented => "Defragmented",
            Outcome::Skipped => "Skipped",
            Outcome::Failed => "Failed",
            Outcome::Unknown => "Unknown",
        }
    }
}

/// A compaction, asked for once before the first member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionRecord {
    pub revision: i64,
    pub state: CompactionState,
    pub attempts: u32,
    pub message: String,
    /// When the state was reached.
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompactionState {
    InProgress,
    /// Answered. Members show what was freed only after a later commit, which an
    /// idle cluster may not have for long: the last revision is compacted
    /// separately, a few times, to make some.
    Flushing,
    /// Answered; the members' in-use sizes are still moving.
    Settling,
    Done,
    Skipped,
    Failed,
}

impl CompactionState {
    pub const fn as_str(self) -> &'static str {
        match self {
            CompactionState::InProgress => "InProgress",
            CompactionState::Flushing => "Flushing",
            CompactionState::Settling => "Settling",
            CompactionState::Done => "Done",
            CompactionState::Skipped => "Skipped",
            CompactionState::Failed => "Failed",
        }
    }
}

/// A transfer of leadership that the run asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferRecord {
    pub from: MemberId,
    pub to: MemberId,
    pub at: Timestamp,
    pub outcome: TransferOutcome,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransferOutcome {
    InProgress,
    Done,
    Failed,
}

impl TransferOutcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            TransferOutcome::InProgress => "InProgress",
            TransferOutcome::Done => "Done",
            TransferOutcome::Failed => "Failed",
        }
    }
}

/// An alarm that the run asked to disarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisarmRecord {
    pub member: MemberId,
    pub at: Timestamp,
    pub attempts: u32,
    /// Set when the alarm was seen to be gone.
    pub gone: bool,
    pub message: String,
}

/// What became of an act, as the caller of the RPC saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActResult {
    Done,
    /// A definite answer: it did not, or will not, take place.
    Refused(Note),
    /// The request never left.
    NotSent(Note),
    /// The answer was lost; the server may be at it.
    Unknown(Note),
}
