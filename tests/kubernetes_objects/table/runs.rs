//! Manifests of runs.

use super::Verdict::{Bad, Good, LintOnly};
use super::{BYTES, EXPRESSION, Row, SPAN};

/// For `clusterRef: {name: a}`.
pub(crate) const RUNS: &[Row] = &[
    ("plain", "{}", Good),
    (
        "whole",
        "{rule: {quotaUsageAbove: 80%, minReclaim: 50Mi, freeSpaceAbove: 200Mi}, compaction: {keepRevisions: 1}, leader: Skip, \
         disarmNoSpace: true, settle: {maxRaftLag: 0, timeout: 1s}, memberTimeout: 5s, activeDeadline: 24h, \
         allowSingleMember: true, dryRun: true, suspend: true, ttlSecondsAfterFinished: 0}",
        Good,
    ),
    ("all", "{rule: {all: true}}", Good),
    (
        "expression",
        "{rule: {expression: 'dbQuotaUsage > 0.8 || dbSizeFree > 200*1024*1024'}}",
        Good,
    ),
    ("bytes", "{rule: {freeSpaceAbove: 104857600}}", Good),
    ("no-cluster", "{clusterRef: null}", Bad("clusterRef")),
    (
        "no-api",
        "{clusterRef: {kind: EtcdCluster, name: a}}",
        Bad("kind EtcdCluster needs apiVersion"),
    ),
    (
        "wrong-api",
        "{clusterRef: {apiVersion: defragd.dev/v1alpha1, kind: EtcdCluster, name: a}}",
        Bad("apiVersion and kind do not fit each other"),
    ),
    (
        "rule-empty",
        "{rule: {}}",
        Bad("exclude one another; one of them is needed"),
    ),
    (
        "rule-two",
        "{rule: {all: true, freeSpaceAbove: 1Mi}}",
        Bad("exclude one another; one of them is needed"),
    ),
    (
        "rule-not-all",
        "{rule: {all: false}}",
        Bad("all can only be true"),
    ),
    (
        "rule-least-alone",
        "{rule: {minReclaim: 1Mi}}",
        Bad("minReclaim alone asks for nothing"),
    ),
    (
        "rule-least-larger",
        "{rule: {minReclaim: 2Gi, freeSpaceAbove: 1Gi}}",
        Bad("minReclaim must not be larger than freeSpaceAbove"),
    ),
    (
        "rule-negative",
        "{rule: {freeSpaceAbove: -1Mi}}",
        Bad("must be a positive size"),
    ),
    (
        "rule-percent",
        "{rule: {quotaUsageAbove: 80}}",
        Bad("quotaUsageAbove"),
    ),
    (
        "rule-all-percent",
        "{rule: {quotaUsageAbove: 0%}}",
        Bad("quotaUsageAbove"),
    ),
    (
        "rule-no-expression",
        "{rule: {expression: ''}}",
        Bad("expression"),
    ),
    (
        "rule-odd-expression",
        "{rule: {expression: 'dbSize >'}}",
        LintOnly(EXPRESSION),
    ),
    (
        "rule-odd-name",
        "{rule: {expression: 'dbSizes > 5'}}",
        LintOnly(EXPRESSION),
    ),
    (
        "rule-half-byte",
        "{rule: {freeSpaceAbove: 500m}}",
        LintOnly(BYTES),
    ),
    (
        "compact-head",
        "{compaction: {keepRevisions: 0}}",
        Bad("greater than or equal to 1"),
    ),
    ("compact-nothing", "{compaction: {}}", Bad("keepRevisions")),
    ("odd-leader", "{leader: Kill}", Bad("Unsupported value")),
    (
        "settle-lag",
        "{settle: {maxRaftLag: 5001}}",
        Bad("less than or equal to 5000"),
    ),
    (
        "settle-never",
        "{settle: {timeout: 0s}}",
        Bad("must be longer than zero"),
    ),
    ("settle-long", "{settle: {timeout: 2h}}", LintOnly(SPAN)),
    ("member-short", "{memberTimeout: 1s}", LintOnly(SPAN)),
    ("deadline-short", "{activeDeadline: 30s}", LintOnly(SPAN)),
    (
        "deadline-odd",
        "{activeDeadline: 1h1d}",
        Bad("activeDeadline"),
    ),
    (
        "ttl-negative",
        "{ttlSecondsAfterFinished: -1}",
        Bad("greater than or equal to 0"),
    ),
    (
        "ttl-for-ever",
        "{ttlSecondsAfterFinished: 315360001}",
        Bad("less than or equal to 315360000"),
    ),
    ("flag-word", "{dryRun: 'yes'}", Bad("dryRun")),
];
