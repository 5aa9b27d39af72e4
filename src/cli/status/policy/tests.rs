//! What a policy is told as.

use super::*;
use crate::api::defrag::NoteStatus;
use crate::api::policy::{SignalOrigin, SignalStateStatus};
use crate::api::scalar::Number;

fn at(second: i64) -> Time {
    Timestamp::from_second(1_800_000_000 + second)
        .unwrap()
        .into()
}

fn spell(reason: Reason, since: i64, until: Option<i64>, times: u32) -> SpellStatus {
    SpellStatus {
        reason: reason.as_str().to_owned(),
        message: String::new(),
        since: at(since),
        until: until.map(at),
        times,
    }
}

#[test]
fn a_fleet_is_told_in_counts_and_by_those_that_are_not_quiet() {
    let with = |name: &str, reason: Reason| ClusterStatus {
        name: name.to_owned(),
        decision: Some(NoteStatus {
            reason: reason.as_str().to_owned(),
            message: String::new(),
        }),
        ..ClusterStatus::default()
    };
    let left = ClusterStatus {
        absent_since: Some(at(0)),
        ..ClusterStatus::default()
    };
    let summary = SummaryStatus {
        cluster: "2 clusters".to_owned(),
        decision: "1 PolicyBusy, 1 SignalNotFiring".to_owned(),
        ..SummaryStatus::default()
    };
    let status = EtcdDefragPolicyStatus {
        clusters: vec![
            with("a", Reason::PolicyBusy),
            with("b", Reason::SignalNotFiring),
            left,
        ],
        ..EtcdDefragPolicyStatus::default()
    };
    let mut text = String::new();
    fleet(&mut text, &status, &summary, None, at(100).timestamp());
    let expected = "  clusters   2 clusters
  decisions  1 PolicyBusy, 1 SignalNotFiring
  cluster    a
  decision   PolicyBusy: as many runs of this policy go on as it allows
  signal     not read yet
  last run   none known
  quiet      1 clusters
  left       1 clusters that match no longer and are remembered for a while
";
    assert_eq!(text, expected);
}

/// T60, T63: what a person asks first, "why did it not run?", in words.
#[test]
fn a_policy_says_why_it_did_not_run() {
    let cluster = ClusterStatus {
        name: "demo".to_owned(),
        signal: Some(SignalStatus {
            state: SignalStateStatus::Firing,
            reason: Reason::SignalFiring.as_str().to_owned(),
            value: Some(Number(209_715_200.0)),
            message: "above 100Mi".to_owned(),
            sampled_at: Some(at(98)),
            origin: SignalOrigin::Primary,
        }),
        firing_since: Some(at(40)),
        last_run: Some(LastRunStatus {
            name: "fragmented-1".to_owned(),
            outcome: RunOutcome::Complete,
            reason: Reason::SweepComplete.as_str().to_owned(),
            reclaimed_bytes: Some(3 << 20),
            reclaimed: None,
            finished_at: at(10),
            own: false,
            touched: true,
        }),
        backoff_level: 1,
        next_eligible_time: Some(at(7210)),
        decision: Some(NoteStatus {
            reason: Reason::BackingOff.as_str().to_owned(),
            message: String::new(),
        }),
        timeline: vec![
            spell(Reason::Blocked, -3600, Some(10), 3),
            spell(Reason::BackingOff, 10, None, 1),
        ],
        ..ClusterStatus::default()
    };
    let mut text = String::new();
    policy_on(&mut text, &cluster, Some("30s"), at(100).timestamp());
    let expected = "  cluster    demo
  decision   BackingOff: backing off after a run that gave back too little
  signal     Firing at 209715200 (sampled 2s ago): SignalFiring: above 100Mi
  firing     since 2027-01-15T08:00:40.000Z (1m ago), must hold for 30s
  eligible   not before 2027-01-15T10:00:10.000Z (in 1h 58m 30s)
  last run   fragmented-1: complete (SweepComplete), 3 MiB given back, ended 1m 30s ago, made by somebody else
  back-off   runs in a row that gave back too little: 1; that failed: 0
  time line  2027-01-15T07:00:00.000Z for 1h 10s, 3 times  Blocked: a blocker holds the run back
             2027-01-15T08:00:10.000Z for 1m 30s so far  BackingOff: backing off after a run that gave back too little
";
    assert_eq!(text, expected);
}
