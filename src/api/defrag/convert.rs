//! Between a run's record and its status.
//!
//! Hosts store the status and nothing else, so the conversions lose nothing but
//! [`RunRecord::transient`], which is made to be lost, and what is finer than a
//! millisecond in a time.

use jiff::Timestamp;

use super::status::{
    AlarmDisarm, CompactionStatus, DefragCall, DefragMetricsStatus, EtcdDefragStatus,
    LeaderTransfer, MemberStatus, NoteStatus,
};
use crate::api::StatusError;
use crate::api::conditions::{self, ConditionStatus, types};
use crate::api::scalar::{Number, Time};
use crate::core::quantity::human_bytes;
use crate::core::reason::Reason;
use crate::core::run::{
    CallRecord, CompactionRecord, DisarmRecord, MemberRecord, Note, Outcome, Phase, RunRecord,
    TransferRecord, Transient,
};
use crate::core::view::DefragMetrics;

impl From<&Note> for NoteStatus {
    fn from(note: &Note) -> Self {
        let Note { reason, message } = note;
        NoteStatus {
            reason: reason.as_str().to_owned(),
            message: message.clone(),
        }
    }
}

impl NoteStatus {
    pub(crate) fn to_note(&self) -> Note {
        Note {
            reason: reason(&self.reason),
            message: self.message.clone(),
        }
    }
}

/// A reason that is stored. One of a newer release is no reason to forget
/// everything beside it: its message still tells.
pub(crate) fn reason(text: &str) -> Reason {
    text.parse().unwrap_or(Reason::UnknownReason)
}

fn id<T: std::str::FromStr>(path: String, text: &str) -> Result<T, StatusError> {
    text.parse()
        .map_err(|_| StatusError::new(path, text, "an id in hexadecimal"))
}

impl From<&RunRecord> for EtcdDefragStatus {
    /// Everything but the conditions and the generation, which need the status
    /// before; see [`EtcdDefragStatus::from_record`].
    fn from(record: &RunRecord) -> Self {
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
        } = record;
        let headline = result.as_ref().or(stopping.as_ref()).or(gate.as_ref());
        let defragmented = record.count(Outcome::Defragmented);
        let known = members.iter().any(|m| m.reclaimed().is_some());
        // R83: absent, not zero, when what was given back could not be read.
        let reclaimed =
            (known || (phase.is_terminal() && defragmented == 0)).then(|| record.reclaimed_bytes());
        EtcdDefragStatus {
            observed_generation: None,
            phase: Some((*phase).into()),
            reason: headline.map(|note| note.reason.as_str().to_owned()),
            message: headline.map(|note| note.message.clone()),
            started_at: started_at.map(Time::from),
            deadline: deadline.map(Time::from),
            completed_at: completed_at.map(Time::from),
            cluster_id: cluster_id.map(|id| id.to_string()),
            defragmented: (!members.is_empty())
                .then(|| u32::try_from(defragmented).unwrap_or(u32::MAX)),
            reclaimed_bytes: reclaimed,
            reclaimed: reclaimed.map(human_bytes),
            members: members.iter().map(MemberStatus::from).collect(),
            compaction: compaction.as_ref().map(CompactionStatus::from),
            leader_transfers: transfers.iter().map(LeaderTransfer::from).collect(),
            alarms_disarmed: disarms.iter().map(AlarmDisarm::from).collect(),
            gate: gate.as_ref().map(NoteStatus::from),
            stopping: stopping.as_ref().map(NoteStatus::from),
            result: result.as_ref().map(NoteStatus::from),
            warnings: warnings.clone(),
            conditions: Vec::new(),
        }
    }
}

impl EtcdDefragStatus {
    /// The record as it is stored. Times of conditions that did not change are
    /// taken from `previous`.
    pub fn from_record(
        record: &RunRecord,
        generation: Option<i64>,
        previous: &EtcdDefragStatus,
        now: Timestamp,
    ) -> EtcdDefragStatus {
        let mut status = EtcdDefragStatus::from(record);
        status.observed_generation = generation;
        let mut list = previous.conditions.clone();
        let mut set = |type_: &str, holds: ConditionStatus, reason: Reason, message: &str| {
            conditions::set(&mut list, type_, holds, reason, message, now, generation);
        };

        let gate = record.gate.as_ref();
        if record.started_at.is_some() {
            set(
                types::ADMITTED,
                true.into(),
                Reason::Admitted,
                Reason::Admitted.sentence(),
            );
        } else {
            let waiting = gate.or(record.result.as_ref());
            let (reason, message) = waiting.map_or((Reason::Queued, "not looked at yet"), |n| {
                (n.reason, n.message.as_str())
            });
            set(types::ADMITTED, false.into(), reason, message);
        }
        // Waiting for another run, or for a person, says nothing about health.
        if let Some(note) = gate.filter(|n| !is_about_the_queue(n.reason)) {
            let healthy = note.reason == Reason::ClusterHealthy;
            set(types::HEALTHY, healthy.into(), note.reason, &note.message);
        }
        let succeeded = match record.phase {
            Phase::Complete => ConditionStatus::True,
            Phase::Failed => ConditionStatus::False,
            Phase::Pending | Phase::Running => ConditionStatus::Unknown,
        };
        let pending = if record.phase == Phase::Pending {
            Reason::Queued
        } else {
            Reason::RunInProgress
        };
        let (reason, message) = match record.result.as_ref().or(record.stopping.as_ref()) {
            Some(note) => (note.reason, note.message.as_str()),
            None => gate
                .filter(|n| n.reason != Reason::ClusterHealthy)
                .map_or((pending, pending.sentence()), |n| {
                    (n.reason, n.message.as_str())
                }),
        };
        set(types::SUCCEEDED, succeeded, reason, message);
        status.conditions = list;
        status
    }
}

fn is_about_the_queue(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Queued
            | Reason::ClusterBusy
            | Reason::Suspended
            | Reason::TooManyRuns
            | Reason::ClusterNotFound
            | Reason::MembersUnresolved
            | Reason::InvalidSpec
    )
}

impl TryFrom<&EtcdDefragStatus> for RunRecord {
    type Error = StatusError;

    /// The record that was stored. What is derived (`reason`, `message`,
    /// `defragmented`, `reclaimedBytes`, `reclaimed`, conditions) is not read.
    ///
    /// # Errors
    /// The first field that no release of defragd would have written.
    fn try_from(status: &EtcdDefragStatus) -> Result<Self, StatusError> {
        let note = |note: &Option<NoteStatus>| note.as_ref().map(NoteStatus::to_note);
        Ok(RunRecord {
            phase: status.phase.map_or(Phase::Pending, Phase::from),
            started_at: status.started_at.map(Time::timestamp),
            deadline: status.deadline.map(Time::timestamp),
            completed_at: status.completed_at.map(Time::timestamp),
            cluster_id: status
                .cluster_id
                .as_deref()
                .map(|text| id("status.clusterID".to_owned(), text))
                .transpose()?,
            members: status
                .members
                .iter()
                .enumerate()
                .map(|(i, m)| m.to_record(&format!("status.members[{i}]")))
                .collect::<Result<_, _>>()?,
            compaction: status.compaction.as_ref().map(CompactionRecord::from),
            transfers: status
                .leader_transfers
                .iter()
                .enumerate()
                .map(|(i, t)| t.to_record(&format!("status.leaderTransfers[{i}]")))
                .collect::<Result<_, _>>()?,
            disarms: status
                .alarms_disarmed
                .iter()
                .enumerate()
                .map(|(i, d)| d.to_record(&format!("status.alarmsDisarmed[{i}]")))
                .collect::<Result<_, _>>()?,
            gate: note(&status.gate),
            stopping: note(&status.stopping),
            result: note(&status.result),
            warnings: status.warnings.clone(),
            transient: Transient::default(),
        })
    }
}

impl From<&MemberRecord> for MemberStatus {
    fn from(member: &MemberRecord) -> Self {
        let MemberRecord {
            id,
            name,
            role,
            outcome,
            reason,
            message,
            db_size_before,
            db_size_after,
            in_use_before,
            in_use_after,
            started_at,
            finished_at,
            attempts,
            call,
        } = member;
        MemberStatus {
            member_id: id.to_string(),
            name: name.clone(),
            role: (*role).into(),
            outcome: (*outcome).into(),
            reason: reason.as_str().to_owned(),
            message: message.clone(),
            db_size_before: *db_size_before,
            db_size_after: *db_size_after,
            db_size_in_use_before: *in_use_before,
            db_size_in_use_after: *in_use_after,
            reclaimed_bytes: member.reclaimed(),
            started_at: started_at.map(Time::from),
            finished_at: finished_at.map(Time::from),
            attempts: *attempts,
            call: call.as_ref().map(DefragCall::from),
        }
    }
}

impl MemberStatus {
    fn to_record(&self, path: &str) -> Result<MemberRecord, StatusError> {
        Ok(MemberRecord {
            id: id(format!("{path}.memberID"), &self.member_id)?,
            name: self.name.clone(),
            role: self.role.into(),
            outcome: self.outcome.into(),
            reason: reason(&self.reason),
            message: self.message.clone(),
            db_size_before: self.db_size_before,
            db_size_after: self.db_size_after,
            in_use_before: self.db_size_in_use_before,
            in_use_after: self.db_size_in_use_after,
            started_at: self.started_at.map(Time::timestamp),
            finished_at: self.finished_at.map(Time::timestamp),
            attempts: self.attempts,
            call: self.call.as_ref().map(CallRecord::from),
        })
    }
}

impl From<&CallRecord> for DefragCall {
    fn from(call: &CallRecord) -> Self {
        let CallRecord {
            deadline,
            metrics_before,
            answered_at,
        } = call;
        DefragCall {
            deadline: (*deadline).into(),
            metrics_before: metrics_before.map(|metrics| {
                let DefragMetrics {
                    inflight,
                    finished,
                    process_start,
                } = metrics;
                DefragMetricsStatus {
                    inflight,
                    finished,
                    process_start_seconds: Number(process_start),
                }
            }),
            answered_at: answered_at.map(Time::from),
        }
    }
}

impl From<&DefragCall> for CallRecord {
    fn from(call: &DefragCall) -> Self {
        CallRecord {
            deadline: call.deadline.into(),
            metrics_before: call.metrics_before.as_ref().map(|metrics| DefragMetrics {
                inflight: metrics.inflight,
                finished: metrics.finished,
                process_start: metrics.process_start_seconds.0,
            }),
            answered_at: call.answered_at.map(Time::timestamp),
        }
    }
}

impl From<&CompactionRecord> for CompactionStatus {
    fn from(compaction: &CompactionRecord) -> Self {
        let CompactionRecord {
            revision,
            state,
            attempts,
            message,
            at,
        } = compaction;
        CompactionStatus {
            revision: *revision,
            state: (*state).into(),
            attempts: *attempts,
            message: message.clone(),
            at: (*at).into(),
        }
    }
}

impl From<&CompactionStatus> for CompactionRecord {
    fn from(compaction: &CompactionStatus) -> Self {
        CompactionRecord {
            revision: compaction.revision,
            state: compaction.state.into(),
            attempts: compaction.attempts,
            message: compaction.message.clone(),
            at: compaction.at.into(),
        }
    }
}

impl From<&TransferRecord> for LeaderTransfer {
    fn from(transfer: &TransferRecord) -> Self {
        let TransferRecord {
            from,
            to,
            at,
            outcome,
            message,
        } = transfer;
        LeaderTransfer {
            from: from.to_string(),
            to: to.to_string(),
            at: (*at).into(),
            outcome: (*outcome).into(),
            message: message.clone(),
        }
    }
}

impl LeaderTransfer {
    fn to_record(&self, path: &str) -> Result<TransferRecord, StatusError> {
        Ok(TransferRecord {
            from: id(format!("{path}.from"), &self.from)?,
            to: id(format!("{path}.to"), &self.to)?,
            at: self.at.into(),
            outcome: self.outcome.into(),
            message: self.message.clone(),
        })
    }
}

impl From<&DisarmRecord> for AlarmDisarm {
    fn from(disarm: &DisarmRecord) -> Self {
        let DisarmRecord {
            member,
            at,
            attempts,
            gone,
            message,
        } = disarm;
        AlarmDisarm {
            member_id: member.to_string(),
            at: (*at).into(),
            attempts: *attempts,
            gone: *gone,
            message: message.clone(),
        }
    }
}

impl AlarmDisarm {
    fn to_record(&self, path: &str) -> Result<DisarmRecord, StatusError> {
        Ok(DisarmRecord {
            member: id(format!("{path}.memberID"), &self.member_id)?,
            at: self.at.into(),
            attempts: self.attempts,
            gone: self.gone,
            message: self.message.clone(),
        })
    }
}
