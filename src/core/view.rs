//! What is seen of a cluster: plain values, gathered by the `etcd` module and
//! judged by [`super::sweep`].

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;

use super::reason::Reason;
use super::rule::Quota;

/// An etcd member id. Displayed as etcd shows it, in lower-case hexadecimal
/// without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId(pub u64);

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl std::str::FromStr for MemberId {
    type Err = std::num::ParseIntError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(s, 16).map(MemberId)
    }
}

/// An etcd cluster id, displayed like a member id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterId(pub u64);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl std::str::FromStr for ClusterId {
    type Err = std::num::ParseIntError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(s, 16).map(ClusterId)
    }
}

/// The kinds of alarm that etcd knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AlarmKind {
    NoSpace,
    Corrupt,
}

/// A raised alarm. The member may no longer exist; the alarm still counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Alarm {
    pub member: MemberId,
    pub kind: AlarmKind,
}

/// Why something could not be read from a cluster or a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub reason: Reason,
    /// Names the endpoint, the call and what the other side said.
    pub message: String,
}

/// Everything seen of one cluster at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// When it was made.
    pub at: Timestamp,
    /// Voters and learners as the member list names them, with what each said.
    /// An error when no endpoint gave a list.
    pub members: Result<Vec<MemberView>, Trouble>,
    /// Raised alarms as listed through raft. An error without quorum.
    pub alarms: Result<BTreeSet<Alarm>, Trouble>,
    /// Every cluster id that an answer carried. More than one means that the
    /// endpoints belong to different clusters.
    pub cluster_ids: BTreeSet<ClusterId>,
    /// `memberCount` of the target: voters expected.
    pub expected_voters: Option<u32>,
}

impl Observation {
    /// The voters that told their status, and what they told.
    pub fn statuses(&self) -> impl Iterator<Item = (&MemberView, &MemberStatus)> {
        self.members
            .iter()
            .flatten()
            .filter(|m| !m.learner)
            .filter_map(|m| Some((m, m.status.as_ref().ok()?)))
    }

    /// The voter that the first of them calls the leader, when it told its
    /// status. That all agree is for the gate to see to.
    pub fn leader(&self) -> Option<(&MemberView, &MemberStatus)> {
        let id = self.statuses().next()?.1.leader?;
        self.statuses().find(|(member, _)| member.id == id)
    }
}

/// One member as seen.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberView {
    pub id: MemberId,
    /// Empty while a member has been added but never started.
    pub name: String,
    pub learner: bool,
    /// Its answer to Status.
    pub status: Result<MemberStatus, Trouble>,
    /// Its defragmentation metrics, when its `/metrics` answered.
    pub metrics: Option<DefragMetrics>,
}

impl MemberView {
    /// `name (id)` for messages.
    pub fn label(&self) -> String {
        if self.name.is_empty() {
            self.id.to_string()
        } else {
            format!("{} ({})", self.name, self.id)
        }
    }
}

/// What Status said. A number that the server's version does not report is
/// `None`, never zero.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberStatus {
    pub version: String,
    /// The file's size in bytes.
    pub db_size: u64,
    /// Bytes in use within the file; unknown before 3.4.
    pub db_size_in_use: Option<u64>,
    pub quota: Quota,
    /// `None` when the member knows no leader.
    pub leader: Option<MemberId>,
    pub raft_term: u64,
    pub raft_index: u64,
    /// Unknown before 3.4.
    pub raft_applied_index: Option<u64>,
    /// The store's revision.
    pub revision: i64,
    /// Alarms that `Status.errors` names, known without raft.
    pub alarms: BTreeSet<Alarm>,
    /// What else `Status.errors` says.
    pub errors: Vec<String>,
}

impl MemberStatus {
    /// Entries received and not yet applied; unknown before 3.4.
    pub fn apply_lag(&self) -> Option<u64> {
        self.raft_applied_index
            .map(|applied| self.raft_index.saturating_sub(applied))
    }

    /// What a defragmentation would give back, in bytes.
    pub fn reclaimable(&self) -> Option<u64> {
        self.db_size_in_use
            .map(|used| self.db_size.saturating_sub(used))
    }
}

/// What a member's `/metrics` tells about defragmentations. These answer while
/// one runs, and settle what became of a call whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DefragMetrics {
    /// `etcd_disk_defrag_inflight`; absent before 3.4.18, 3.5.2.
    pub inflight: Option<bool>,
    /// `etcd_disk_backend_defrag_duration_seconds_count`: finished since the process started.
    pub finished: u64,
    /// `process_start_time_seconds`.
    pub process_start: f64,
}
