//! The metrics: one table of what there is, and their rendering.

mod encode;
mod scrape;
#[cfg(test)]
mod tests;

use prometheus_client::metrics::MetricType;

pub(super) use self::encode::Histogram;
use self::encode::Metric;
pub(super) use self::scrape::Scrape;

macro_rules! metrics {
    ($($id:ident = $name:literal, $unit:expr, $kind:ident, $labels:expr, $help:literal;)+) => {
        $(const $id: Metric = Metric {
            name: $name,
            unit: $unit,
            kind: MetricType::$kind,
            #[cfg(test)]
            labels: &$labels,
            help: $help,
        };)+
        /// Every metric there is; `docs/metrics.md` holds the same table.
        #[cfg(test)]
        const ALL: &[Metric] = &[$($id),+];
    };
}

metrics! {
    // Policies.
    POLICY = "defragd_policy", None, Info, ["namespace", "name", "cluster", "cluster_kind"],
        "The cluster that the policy is about; one for each that it selects";
    SIGNAL_STATE = "defragd_policy_signal_state", None, Gauge, ["namespace", "name", "cluster", "cluster_kind", "state"],
        "1 for the state of the policy's signal, 0 for the other four";
    SIGNAL_VALUE = "defragd_policy_signal_value", None, Gauge, ["namespace", "name", "cluster", "cluster_kind"],
        "The number that the signal compared; absent without one";
    DECISION = "defragd_policy_decision", None, Gauge, ["namespace", "name", "cluster", "cluster_kind", "reason"],
        "1 for the reason of the policy's last decision; other reasons are absent";
    FIRING_SINCE = "defragd_policy_firing_since_timestamp", Some("seconds"), Gauge, ["namespace", "name", "cluster", "cluster_kind"],
        "Since when the signal fires; absent while it does not";
    BLOCKED_SINCE = "defragd_policy_blocked_since_timestamp", Some("seconds"), Gauge, ["namespace", "name", "cluster", "cluster_kind"],
        "Since when a run is due and something keeps it from starting, which the decision names; absent otherwise";
    BLOCKERS_SINCE = "defragd_policy_blockers_since_timestamp", Some("seconds"), Gauge, ["namespace", "name", "cluster", "cluster_kind"],
        "Since when the policy's blockers hold back a run that is due; absent while none does";
    NEXT_ELIGIBLE = "defragd_policy_next_eligible_timestamp", Some("seconds"), Gauge, ["namespace", "name", "cluster", "cluster_kind"],
        "Before this no run starts; absent when nothing holds one back";
    LAST_RUN = "defragd_policy_last_run_timestamp", Some("seconds"), Gauge, ["namespace", "name", "cluster", "cluster_kind"],
        "End of the last run on the policy's cluster, whoever made it";
    LAST_SUCCESS = "defragd_policy_last_success_timestamp", Some("seconds"), Gauge, ["namespace", "name", "cluster", "cluster_kind"],
        "End of the last run on the policy's cluster that succeeded, dry runs aside; absent when none is known";
    BACKOFF_LEVEL = "defragd_policy_backoff_level", None, Gauge, ["namespace", "name", "cluster", "cluster_kind"],
        "Runs in a row that gave back too little";
    FAILURE_LEVEL = "defragd_policy_failure_level", None, Gauge, ["namespace", "name", "cluster", "cluster_kind"],
        "Runs in a row that failed";
    FLEET_CLUSTERS = "defragd_policy_clusters", None, Gauge, ["namespace", "name"],
        "Clusters that the policy's selector gives it; absent without a selector";
    FLEET_EXCESS = "defragd_policy_excess_clusters", None, Gauge, ["namespace", "name"],
        "Clusters that match the selector beyond the most that one policy serves; nothing is done for them";
    FLEET_UNMATCHED = "defragd_policy_unmatched_series", None, Gauge, ["namespace", "name"],
        "Series of the policy's query that are about none of its clusters; absent when nobody can say";
    FALLBACK = "defragd_policy_fallback_active", None, Gauge, ["namespace", "name", "cluster", "cluster_kind"],
        "1 while the fallback's probe decides because the source fails";

    // Clusters.
    OBSERVED = "defragd_cluster_observed_timestamp", Some("seconds"), Gauge, ["namespace", "name", "kind"],
        "When the cluster was last looked at";
    HEALTH = "defragd_cluster_health", None, Gauge, ["namespace", "name", "kind", "reason"],
        "1 for ClusterHealthy, or for what is wrong with the cluster; other reasons are absent";
    MEMBER_UP = "defragd_cluster_member_up", None, Gauge,
        ["namespace", "name", "kind", "member", "member_id"],
        "1 when the member answered";
    MEMBER_DB_SIZE = "defragd_cluster_member_db_size", Some("bytes"), Gauge,
        ["namespace", "name", "kind", "member", "member_id"],
        "Size of the member's file; absent when unknown";
    MEMBER_IN_USE = "defragd_cluster_member_db_in_use", Some("bytes"), Gauge,
        ["namespace", "name", "kind", "member", "member_id"],
        "Bytes of the file in use; absent when unknown";
    MEMBER_QUOTA = "defragd_cluster_member_quota", Some("bytes"), Gauge,
        ["namespace", "name", "kind", "member", "member_id"],
        "Limit of the file's size; absent when nobody told it";
    MEMBER_LAG = "defragd_cluster_member_apply_lag_entries", None, Gauge,
        ["namespace", "name", "kind", "member", "member_id"],
        "Raft entries received and not yet applied; absent when unknown";
    MEMBER_ALARM = "defragd_cluster_member_alarm", None, Gauge,
        ["namespace", "name", "kind", "member", "member_id", "alarm"],
        "1 while the alarm is raised; absent when alarms cannot be read";
    CLUSTER_RUNS = "defragd_cluster_runs", None, Counter, ["namespace", "name", "kind", "outcome"],
        "Runs on the cluster that reached their end";
    CLUSTER_RECLAIMED = "defragd_cluster_reclaimed", Some("bytes"), Counter, ["namespace", "name", "kind"],
        "Bytes that runs on the cluster gave back";
    UNFINISHED = "defragd_cluster_unfinished_runs", None, Gauge, ["namespace", "name", "kind"],
        "Runs on the cluster that go on or wait; absent without one";
    UNFINISHED_CREATED = "defragd_cluster_unfinished_run_created_timestamp", Some("seconds"), Gauge,
        ["namespace", "name", "kind"],
        "When the oldest of them was created; absent without one";
    RUN_GATE = "defragd_cluster_run_gate", None, Gauge, ["namespace", "name", "kind", "reason"],
        "1 for ClusterHealthy, or for what the run whose turn it is waits for; other reasons are absent";

    // All runs together.
    RUNS = "defragd_runs", None, Counter, ["outcome", "reason"],
        "Runs that reached their end, by reason";
    MEMBER_SECONDS = "defragd_member_defragmentation_duration", Some("seconds"), Histogram, [],
        "Time from the call to the member that was seen to be defragmented";

    // Sources of signals.
    SOURCE_REQUESTS = "defragd_source_requests", None, Counter, ["source", "code"],
        "Requests to a source by status code, or by what kept it from answering";
    SOURCE_SHARED = "defragd_source_shared_answers", None, Counter, ["source"],
        "Questions answered by a request that another policy had sent";
    SOURCE_SECONDS = "defragd_source_request_duration", Some("seconds"), Histogram, ["source"],
        "Time of requests to a source";
    WEBHOOK_DELIVERIES = "defragd_webhook_deliveries", None, Counter, ["source", "result", "code"],
        "Deliveries of alerts by what became of them and the status code they were answered with";
    WEBHOOK_ALERTS = "defragd_webhook_alerts", None, Counter, ["source", "result"],
        "Alerts of stored deliveries: new, repeated, resolved, late, or left out as their labels are too long";

    // The process.
    OBJECTS = "defragd_objects", None, Gauge, ["kind"],
        "Objects that are known";
    LAST_ROUND = "defragd_engine_last_round_timestamp", Some("seconds"), Gauge, [],
        "When the engine last went over all objects; absent while another replica leads";
    LEADER = "defragd_leader", None, Gauge, [],
        "1 in the process that acts, 0 in one that waits to";
    LEADER_TRANSITIONS = "defragd_leader_transitions", None, Counter, [],
        "Times that the process began or ceased to lead";
    ERRORS = "defragd_errors", None, Counter, ["what"],
        "What went wrong and is no outcome of a run: state, document, policy, target, run, worker";
    STATE_WRITES = "defragd_state_writes", None, Counter, ["result"],
        "Writes of the state folder, done or failed; standalone only";
    API_REQUESTS = "defragd_api_requests", None, Counter, ["verb", "resource", "code"],
        "Requests to the Kubernetes API by status code; code is none without an answer";
    API_SECONDS = "defragd_api_request_duration", Some("seconds"), Histogram, ["verb"],
        "Time of requests to the Kubernetes API, but for watches";
    WATCH_RESTARTS = "defragd_watch_restarts", None, Counter, ["kind"],
        "Watches of the Kubernetes API that failed and were begun again";
    BUILD = "defragd_build", None, Info, ["version", "revision", "rustc"],
        "The release that runs, the commit it was built from, and the compiler";
    CPU = "process_cpu", Some("seconds"), Counter, [],
        "Processor time of the process, user and system";
    RESIDENT = "process_resident_memory", Some("bytes"), Gauge, [],
        "Resident memory of the process";
    VIRTUAL = "process_virtual_memory", Some("bytes"), Gauge, [],
        "Virtual memory of the process";
    START_TIME = "process_start_time", Some("seconds"), Gauge, [],
        "When the process started";
    OPEN_FDS = "process_open_fds", None, Gauge, [],
        "Open file descriptors";
    MAX_FDS = "process_max_fds", None, Gauge, [],
        "Limit of open file descriptors; absent without one";
    THREADS = "process_threads", None, Gauge, [],
        "Threads of the process";
}
