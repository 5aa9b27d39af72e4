//! The one closed list of reasons.
//!
//! A [`Reason`] feeds the condition, the event, the metric label and the log
//! field alike. Its name never comes from `Debug` and never carries data: what
//! is particular (sizes, times, members) goes into the message beside it.

use std::fmt;
use std::str::FromStr;

macro_rules! reasons {
    ($( $(#[doc = $doc:literal])+ $name:ident => $sentence:literal; )+) => {
        /// Why something happened, or did not. See the module's text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason {
            $( $(#[doc = $doc])+ $name, )+
        }

        impl Reason {
            /// Every reason there is, in the order of declaration.
            pub const ALL: &'static [Reason] = &[ $( Reason::$name, )+ ];

            /// The name as it stands in conditions, events, labels and logs.
            pub const fn as_str(self) -> &'static str {
                match self { $( Reason::$name => stringify!($name), )+ }
            }

            /// One sentence for a person, without particulars.
            pub const fn sentence(self) -> &'static str {
                match self { $( Reason::$name => $sentence, )+ }
            }
        }
    };
}

reasons! {
    // What a signal said.
    /// The threshold is crossed or the alert expression returns series.
    SignalFiring => "the signal fires";
    /// The source answered and the condition is false.
    SignalNotFiring => "the signal does not fire";
    /// The source answered, but no series speaks about the question.
    NoData => "the signal has no data";
    /// NaN, infinity, or a warning that may hide firing series.
    Inconclusive => "the signal's value proves nothing";
    /// The source refused the query itself (400, 422); retrying cannot help.
    QueryInvalid => "the source refuses the query";
    /// The answer cannot be compared: several series without `reduce`, a matrix, a string, a histogram.
    ResultUnsuitable => "the query's result cannot be compared with the threshold";
    /// 401 or 403 from the source.
    AuthFailed => "the source refuses the credentials";
    /// 429 from the source.
    RateLimited => "the source asks to slow down";
    /// Refused, reset, timed out, 5xx.
    SourceUnavailable => "the source cannot be reached";
    /// The answer is not what a Prometheus says (HTML, truncated, too large).
    SourceAnswerUnusable => "the source's answer cannot be used";
    /// The policy names a source that the administrator's file does not have.
    SourceUnknown => "the source is not configured";
    /// The source is of a kind that cannot answer this signal.
    SourceUnsuitable => "the source is of another kind";
    /// 404 from a metrics API, and not only for a moment.
    MetricNotFound => "the metric is not served";
    /// Two clusters of a fleet would have the same series.
    SeriesAmbiguous => "two clusters claim the same series";
    /// A cluster lacks the label that says by what its series are known.
    SeriesNameMissing => "a cluster does not say by what its series are known";
    /// Series speak about clusters that the policy does not have.
    SeriesUnmatched => "some series are about no cluster of the policy";
    /// Every series is about a cluster of the policy.
    SeriesMatched => "every series is about a cluster of the policy";
    /// A probe got numbers from some members only.
    ProbePartial => "some members did not answer the probe";
    /// A probe got no numbers at all.
    ProbeFailed => "no member answered the probe";

    // When: what a policy decided.
    /// A run was created for this firing.
    RunCreated => "a run was created";
    /// A run of this policy is going on.
    RunInProgress => "a run is in progress";
    /// Another run holds the cluster or waits for it.
    ClusterBusy => "another run has the cluster";
    /// Firing, but not yet for as long as `for` asks.
    HoldingFor => "the signal has not fired for long enough";
    /// The last run on this cluster ended too recently.
    CoolingDown => "the cluster is cooling down after the last run";
    /// The last run gave back too little; waiting longer each time.
    BackingOff => "backing off after a run that gave back too little";
    /// The last run failed; waiting longer each time.
    FailureBackingOff => "backing off after a failed run";
    /// `maxRunsPerDay` runs were started within the last 24 hours.
    DailyLimit => "the limit of runs a day is reached";
    /// As many runs of the policy go on as its `maxConcurrentRuns` allows.
    PolicyBusy => "as many runs of this policy go on as it allows";
    /// No window is open.
    OutsideWindow => "no window is open";
    /// A blackout is on.
    Blackout => "a blackout is on";
    /// A blocker fires, or cannot be read.
    Blocked => "a blocker holds the run back";
    /// A blocker has held a run back for longer than `maxBlockedFor`.
    BlockedTooLong => "a blocker has held the run back for too long";
    /// As many runs were created lately as the administrator allows.
    CreationLimited => "as many runs as allowed were created lately; waiting in line";
    /// `spec.suspend` of the policy, or of the run between two members.
    Suspended => "suspended";
    /// `spec.pausedUntil` lies in the future.
    Paused => "paused until a given time";
    /// `spec.dryRun`: a run would have been created.
    DryRun => "dry run: nothing is changed";
    /// The newest sample is older than the end of the last run.
    SampleTooOld => "the newest sample is older than the end of the last run";
    /// The run was asked for by a changed `spec.trigger`.
    Triggered => "the trigger changed";
    /// Windows or cooldown were passed, as `spec.emergency` declares.
    Emergency => "an emergency passes windows and cooldown";
    /// The primary source has failed for `fallback.after`; the probe decides.
    FallbackActive => "the fallback decides while the source fails";
    /// The primary source answers again.
    FallbackEnded => "the source answers again";
    /// The source fails, and the policy says to hold.
    SignalFailing => "the signal fails and the policy holds";
    /// The object is not valid; its message names the field.
    InvalidSpec => "the object is not valid";
    /// The referenced cluster does not exist.
    ClusterNotFound => "the referenced cluster does not exist";
    /// The selector matches no cluster.
    NoClusters => "no cluster matches the selector";
    /// The selector matches more clusters than one policy can serve.
    TooManyClusters => "more clusters match than one policy can serve";
    /// Clusters of a kind cannot be listed, so nobody knows which match.
    ClustersUnlisted => "clusters of a kind cannot be listed";
    /// The cluster matches the selector no longer, or is gone.
    ClusterLeft => "the cluster is not among the policy's any more";
    /// The cluster's members cannot be told from the objects that describe it.
    MembersUnresolved => "the cluster's members cannot be told";
    /// The cluster's own operator is changing it: it scales, upgrades or defragments.
    ClusterChanging => "the cluster's own operator is changing it";
    /// A Secret is missing, lacks a key, or may not be read.
    SecretUnusable => "a Secret cannot be used";
    /// A run of that name exists and belongs to somebody else.
    NameConflict => "a run of that name belongs to somebody else";
    /// The existing runs cannot be listed, so none is created.
    RunsUnreadable => "the existing runs cannot be read";
    /// The new run could not be stored.
    CreateFailed => "the run could not be stored";
    /// What was decided or seen could not be stored, so nothing was done.
    NotStored => "it could not be stored";
    /// The object is valid and evaluated.
    Accepted => "the object is valid";
    /// Several runs in a row failed.
    Degraded => "several runs in a row failed";

    // Whether: the gate before each step of a run.
    /// The cluster passes every check.
    ClusterHealthy => "the cluster is healthy";
    /// An older run has the cluster.
    Queued => "waiting for an older run on the same cluster";
    /// As many runs as the administrator allows are going on.
    TooManyRuns => "as many runs as allowed are going on";
    /// Another replica leads, or nobody can tell.
    NotLeading => "this replica does not lead";
    /// Somebody else changed what was to be written.
    WriteConflict => "somebody else changed it meanwhile";
    /// This run has the cluster to itself.
    Admitted => "the run holds the cluster";
    /// The member list cannot be read.
    MemberListUnavailable => "the member list cannot be read";
    /// A voter does not answer.
    MemberUnreachable => "a member does not answer";
    /// Fewer or more voters than `memberCount`.
    MemberCountMismatch => "the number of voters is not the expected one";
    /// Members joined or left since the run was planned.
    MembershipChanged => "the cluster's members changed";
    /// No leader, or members disagree about it.
    NoLeader => "the members do not agree on a leader";
    /// Answers carry different cluster ids.
    ClusterIdMismatch => "the endpoints belong to different clusters";
    /// An answer carries an unexpected member id.
    MemberIdMismatch => "the endpoint belongs to another member";
    /// A CORRUPT alarm is raised.
    CorruptAlarm => "a CORRUPT alarm is raised";
    /// The alarms cannot be listed.
    AlarmsUnavailable => "the alarms cannot be read";
    /// A member has not applied what it has received.
    ApplyLag => "a member lags behind in applying";
    /// Members at one applied index have different revisions.
    RevisionMismatch => "members have different revisions at the same index";
    /// Somebody else is defragmenting a member.
    OtherDefragmentation => "another defragmentation is in flight";
    /// An etcd version with a known fault in defragmentation.
    VersionRefused => "the etcd version cannot be defragmented safely";
    /// A cluster of one member without `allowSingleMember`.
    SingleMember => "a single member: every defragmentation is downtime";
    /// A client URL does not work from here.
    EndpointUnusable => "an endpoint cannot be used";
    /// etcd refuses the user, or wants one.
    PermissionDenied => "etcd refuses the credentials";

    // What: steps and waits of a run.
    /// Waiting for a compaction to become physical.
    Compacting => "compacting";
    /// A compaction failed.
    CompactionFailed => "the compaction failed";
    /// A member is being defragmented.
    Defragmenting => "a member is being defragmented";
    /// What became of a call whose answer was lost is being observed.
    OutcomeUnknown => "the outcome of a call is not known yet";
    /// Waiting for the member just defragmented to catch up.
    Settling => "waiting for the member to catch up";
    /// Leadership is being moved.
    MovingLeader => "moving leadership";
    /// Leadership could not be moved.
    LeaderMoveFailed => "leadership could not be moved";
    /// A NOSPACE alarm is being disarmed.
    Disarming => "disarming a NOSPACE alarm";

    // Outcomes of members.
    /// The member was defragmented.
    Defragmented => "the member was defragmented";
    /// Waiting for its turn.
    WaitingForTurn => "waiting for its turn";
    /// The rule does not ask for this member.
    BelowThreshold => "the rule does not ask for it";
    /// Above the quota threshold, but nothing to give back.
    FullButNotFragmented => "full but not fragmented: raise the quota, delete keys or compact";
    /// A number the rule needs is unknown.
    NumbersUnknown => "a number that the rule needs is not known";
    /// `leader: Skip`.
    LeaderSkipped => "the leader is left alone";
    /// A learner.
    Learner => "a learner takes no defragmentation";
    /// The member left the cluster.
    MemberGone => "the member left the cluster";
    /// The member joined after the run was planned.
    JustJoined => "the member joined during the run";
    /// The call failed with a definite answer.
    CallFailed => "the call failed";
    /// The call never reached the member, as far as can be observed.
    CallNotExecuted => "the call did not take place";
    /// The process restarted while it was being defragmented.
    MemberRestarted => "the member restarted during its defragmentation";
    /// The member did not catch up within `settle.timeout`.
    SettleTimeout => "the member did not catch up in time";
    /// The sweep ended before this member's turn.
    SweepEnded => "the sweep ended before its turn";

    // Outcomes of runs.
    /// All that was due was defragmented.
    SweepComplete => "every member that was due was defragmented";
    /// No member was due.
    NothingDue => "no member was due";
    /// One member failed, the others were done.
    MemberFailed => "a member failed";
    /// Two members failed.
    TooManyFailures => "a second member failed, the sweep stopped";
    /// `activeDeadline` passed before anything was touched.
    Deferred => "the cluster was not fit before the deadline";
    /// `activeDeadline` passed during the sweep.
    DeadlineExceeded => "the deadline passed";
    /// The alarm could not be disarmed.
    NoSpaceStillArmed => "a NOSPACE alarm is still armed";
    /// All alarms due were disarmed.
    NoSpaceDisarmed => "NOSPACE was disarmed";
    /// A person interrupted the sweep.
    Interrupted => "interrupted";
    /// The run object vanished before its end was seen.
    RunVanished => "the run's object vanished before its end was seen";

    // Of other releases.
    /// What is stored carries a reason that only another release knows.
    UnknownReason => "a reason that this release does not know";
}

impl Reason {
    /// True when the object or the administrator's file must change before a
    /// retry can help. The fallback never masks these.
    pub const fn is_configuration(self) -> bool {
        matches!(
            self,
            Reason::QueryInvalid
                | Reason::ResultUnsuitable
                | Reason::SourceUnknown
                | Reason::SourceUnsuitable
                | Reason::SeriesAmbiguous
                | Reason::SeriesNameMissing
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not one of [`Reason::ALL`].
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a known reason")]
pub struct NotAReason(pub String);

impl FromStr for Reason {
    type Err = NotAReason;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Reason::ALL
            .iter()
            .copied()
            .find(|r| r.as_str() == s)
            .ok_or_else(|| NotAReason(s.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_sentences_read_as_sentences() {
        for reason in Reason::ALL {
            assert_eq!(reason.as_str().parse::<Reason>().unwrap(), *reason);
            let sentence = reason.sentence();
            assert!(
                !sentence.ends_with('.'),
                "{reason}: no full stop, it is put into other text"
            );
            assert!(!sentence.is_empty());
        }
    }
}
