//! What a host stores is all that survives a restart: record → status → JSON →
//! status → record loses nothing.

use jiff::Timestamp;
use proptest::option::of;
use proptest::prelude::*;

use super::defrag::EtcdDefragStatus;
use super::policy::EtcdDefragPolicyStatus;
use crate::core::decide::{ClusterState, LastRun, Origin, RunStart, SignalRecord};
use crate::core::reason::Reason;
use crate::core::run::{
    CallRecord, CompactionRecord, CompactionState, DisarmRecord, MemberRecord, Note, Outcome,
    Phase, Role, RunRecord, TransferOutcome, TransferRecord, Transient,
};
use crate::core::signal::SignalState;
use crate::core::view::{ClusterId, DefragMetrics, MemberId};

fn time() -> impl Strategy<Value = Timestamp> {
    (-1_000_000_000_000_i64..9_000_000_000_000)
        .prop_map(|ms| Timestamp::from_millisecond(ms).unwrap())
}

fn reason() -> impl Strategy<Value = Reason> {
    (0..Reason::ALL.len()).prop_map(|i| Reason::ALL[i])
}

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,24}"
}

fn note() -> impl Strategy<Value = Note> {
    (reason(), text()).prop_map(|(reason, message)| Note { reason, message })
}

fn size() -> impl Strategy<Value = Option<u64>> {
    of(0..=i64::MAX.cast_unsigned())
}

fn call() -> impl Strategy<Value = CallRecord> {
    let metrics = (
        any::<Option<bool>>(),
        0..=i64::MAX.cast_unsigned(),
        any::<f64>(),
    )
        .prop_map(|(inflight, finished, process_start)| DefragMetrics {
            inflight,
            finished,
            process_start,
        });
    (time(), of(metrics), of(time())).prop_map(|(deadline, metrics_before, answered_at)| {
        CallRecord {
            deadline,
            metrics_before,
            answered_at,
        }
    })
}

fn member() -> impl Strategy<Value = MemberRecord> {
    let role = prop_oneof![
        Just(Role::Leader),
        Just(Role::Follower),
        Just(Role::Learner)
    ];
    let outcome = prop_oneof![
        Just(Outcome::Pending),
        Just(Outcome::InProgress),
        Just(Outcome::Defragmented),
        Just(Outcome::Skipped),
        Just(Outcome::Failed),
        Just(Outcome::Unknown),
    ];
    let sizes = (size(), size(), size(), size());
    let times = (of(time()), of(time()));
    (
        any::<u64>(),
        text(),
        role,
        outcome,
        note(),
        sizes,
        times,
        any::<u32>(),
        of(call()),
    )
        .prop_map(
            |(id, name, role, outcome, note, sizes, times, attempts, call)| MemberRecord {
                id: MemberId(id),
                name,
                role,
                outcome,
                reason: note.reason,
                message: note.message,
                db_size_before: sizes.0,
                db_size_after: sizes.1,
                in_use_before: sizes.2,
                in_use_after: sizes.3,
                started_at: times.0,
                finished_at: times.1,
                attempts,
                call,
            },
        )
}

fn compaction() -> impl Strategy<Value = CompactionRecord> {
    let state = prop_oneof![
        Just(CompactionState::InProgress),
        Just(CompactionState::Flushing),
        Just(CompactionState::Settling),
        Just(CompactionState::Done),
        Just(CompactionState::Skipped),
        Just(CompactionState::Failed),
    ];
    (any::<i64>(), state, any::<u32>(), text(), time()).prop_map(
        |(revision, state, attempts, message, at)| CompactionRecord {
            revision,
            state,
            attempts,
            message,
            at,
        },
    )
}

fn transfer() -> impl Strategy<Value = TransferRecord> {
    let outcome = prop_oneof![
        Just(TransferOutcome::InProgress),
        Just(TransferOutcome::Done),
        Just(TransferOutcome::Failed),
    ];
    (any::<u64>(), any::<u64>(), time(), outcome, text()).prop_map(
        |(from, to, at, outcome, message)| TransferRecord {
            from: MemberId(from),
            to: MemberId(to),
            at,
            outcome,
            message,
        },
    )
}

fn disarm() -> impl Strategy<Value = DisarmRecord> {
    (any::<u64>(), time(), any::<u32>(), any::<bool>(), text()).prop_map(
        |(member, at, attempts, gone, message)| DisarmRecord {
            member: MemberId(member),
            at,
            attempts,
            gone,
            message,
        },
    )
}

fn record() -> impl Strategy<Value = RunRecord> {
    let phase = prop_oneof![
        Just(Phase::Pending),
        Just(Phase::Running),
        Just(Phase::Complete),
        Just(Phase::Failed),
    ];
    let lists = (
        prop::collection::vec(member(), 0..4),
        of(compaction()),
        prop::collection::vec(transfer(), 0..3),
        prop::collection::vec(disarm(), 0..3),
    );
    let notes = (
        of(note()),
        of(note()),
        of(note()),
        prop::collection::vec(text(), 0..3),
    );
    let times = (of(time()), of(time()), of(time()));
    (phase, times, of(any::<u64>()), lists, notes).prop_map(
        |(phase, times, cluster, lists, notes)| RunRecord {
            phase,
            started_at: times.0,
            deadline: times.1,
            completed_at: times.2,
            cluster_id: cluster.map(ClusterId),
            members: lists.0,
            compaction: lists.1,
            transfers: lists.2,
            disarms: lists.3,
            gate: notes.0,
            stopping: notes.1,
            result: notes.2,
            warnings: notes.3,
            transient: Transient::default(),
        },
    )
}

fn state() -> impl Strategy<Value = ClusterState> {
    let states = prop_oneof![
        Just(SignalState::Firing),
        Just(SignalState::NotFiring),
        Just(SignalState::NoData),
        Just(SignalState::Inconclusive),
        Just(SignalState::Error),
    ];
    let origin = prop_oneof![Just(Origin::Primary), Just(Origin::Fallback)];
    let value = of(prop_oneof![
        any::<f64>(),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY)
    ]);
    let signal = (states, reason(), value, text(), of(time()), origin).prop_map(
        |(state, reason, value, message, sampled_at, origin)| SignalRecord {
            state,
            reason,
            value,
            message,
            sampled_at,
            origin,
        },
    );
    let last_run = (
        text(),
        any::<bool>(),
        reason(),
        size(),
        time(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(name, succeeded, reason, reclaimed, finished_at, own, touched)| LastRun {
                name,
                succeeded,
                reason,
                reclaimed,
                finished_at,
                own,
                touched,
            },
        );
    let start = (text(), time()).prop_map(|(name, at)| RunStart { name, at });
    let times = (of(time()), of(time()), of(time()), of(time()), of(time()));
    let runs = (
        of(text()),
        (of(last_run), of(time())),
        prop::collection::vec(start, 0..4),
        prop::collection::vec(text(), 0..4),
    );
    let levels = (any::<u32>(), any::<u32>(), any::<bool>());
    let notes = (of(note()), of(note()));
    (of(signal), times, runs, levels, of(of(text())), notes).prop_map(
        |(signal, times, runs, levels, observed_trigger, (decision, resting))| ClusterState {
            signal,
            firing_since: times.0,
            gap_since: times.1,
            evidence_at: times.2,
            failing_since: times.3,
            next_eligible: times.4,
            fallback_active: levels.2,
            active_run: runs.0,
            last_run: runs.1.0,
            last_success: runs.1.1,
            run_starts: runs.2,
            accounted: runs.3,
            backoff_level: levels.0,
            failure_level: levels.1,
            observed_trigger,
            decision,
            resting,
        },
    )
}

proptest! {
    #[test]
    fn r75_a_run_survives_its_status(record in record(), now in time(), yaml in any::<bool>()) {
        let status = EtcdDefragStatus::from_record(&record, Some(3), &EtcdDefragStatus::default(), now);
        let read: EtcdDefragStatus = if yaml {
            serde_yaml::from_str(&serde_yaml::to_string(&status).unwrap()).unwrap()
        } else {
            serde_json::from_str(&serde_json::to_string(&status).unwrap()).unwrap()
        };
        prop_assert_eq!(&read, &status);
        prop_assert_eq!(&RunRecord::try_from(&read).unwrap(), &record);
        // Nothing changed: the same status, also later.
        let later = now + jiff::SignedDuration::from_secs(60);
        prop_assert_eq!(EtcdDefragStatus::from_record(&record, Some(3), &read, later), status);
    }

    #[test]
    fn t42_a_policys_memory_survives_its_status(state in state(), other in state(), now in time(), yaml in any::<bool>()) {
        let none = EtcdDefragPolicyStatus::default();
        let before = EtcdDefragPolicyStatus::from_state("b", &other, Some(1), &none, now);
        let status = EtcdDefragPolicyStatus::from_state("a", &state, Some(1), &before, now);
        let read: EtcdDefragPolicyStatus = if yaml {
            serde_yaml::from_str(&serde_yaml::to_string(&status).unwrap()).unwrap()
        } else {
            serde_json::from_str(&serde_json::to_string(&status).unwrap()).unwrap()
        };
        prop_assert_eq!(&read, &status);
        prop_assert_eq!(read.state("a"), Some(state));
        prop_assert_eq!(read.state("b"), Some(other));
        prop_assert_eq!(read.state("c"), None);
    }
}

#[test]
fn a_status_that_nobody_wrote_names_the_field() {
    let status: EtcdDefragStatus = serde_yaml::from_str(
        "phase: Running\nmembers: [{memberID: xyz, role: Leader, outcome: Pending, reason: WaitingForTurn}]",
    )
    .unwrap();
    assert_eq!(
        RunRecord::try_from(&status).unwrap_err().to_string(),
        "status.members[0].memberID: \"xyz\" is not an id in hexadecimal; restore it, or remove the status to start over"
    );
    let status: EtcdDefragStatus =
        serde_yaml::from_str("gate: {reason: Tired, message: x}").unwrap();
    let gate = RunRecord::try_from(&status).unwrap().gate;
    assert_eq!(
        gate,
        Some(Note::new(Reason::UnknownReason, "x")),
        "written by a later release"
    );
}

/// R83: what could not be read is absent, not zero.
#[test]
fn r83_unreadable_sizes_are_absent() {
    let mut record = RunRecord {
        phase: Phase::Complete,
        ..RunRecord::default()
    };
    assert_eq!(
        EtcdDefragStatus::from(&record).reclaimed_bytes,
        Some(0),
        "nothing was due"
    );
    record.members.push(MemberRecord {
        id: MemberId(1),
        name: "m1".to_owned(),
        role: Role::Follower,
        outcome: Outcome::Defragmented,
        reason: Reason::Defragmented,
        message: String::new(),
        db_size_before: Some(100),
        db_size_after: None,
        in_use_before: None,
        in_use_after: None,
        started_at: None,
        finished_at: None,
        attempts: 1,
        call: None,
    });
    let status = EtcdDefragStatus::from(&record);
    assert_eq!(
        (status.defragmented, status.reclaimed_bytes),
        (Some(1), None)
    );
    let json = serde_json::to_value(&status.members[0]).unwrap();
    assert_eq!(json.get("dbSizeAfter"), None);
    assert_eq!(json.get("reclaimedBytes"), None);
}
