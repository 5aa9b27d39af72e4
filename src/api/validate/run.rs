//! The verdict on a run, and on a policy's `runTemplate`.

use jiff::SignedDuration;

use super::check::{Check, LEAST, Span, shown};
use super::{FieldError, Place};
use crate::api::defrag::{EtcdDefrag, RuleSpec, RunTemplate, SettleSpec};
use crate::core::rule::{DEFAULT_MIN_RECLAIM, Expression, Rule};
use crate::core::run::{RunSpec, Settle};

/// The run's spec, with every default filled in.
///
/// # Errors
/// Everything that is wrong with the object.
pub fn run(object: &EtcdDefrag, place: Place) -> Result<RunSpec, Vec<FieldError>> {
    let mut check = Check::at(place);
    check.name("metadata.name", object.metadata.name.as_deref());
    check.cluster_ref("spec.clusterRef", &object.spec.cluster_ref);
    let spec = template(&mut check, "spec", &object.spec.run);
    check.finish(spec)
}

/// `path` is the spec's own, such as `spec.runTemplate`.
pub(super) fn template(check: &mut Check, path: &str, template: &RunTemplate) -> RunSpec {
    let RunTemplate {
        rule: rule_spec,
        compaction,
        leader,
        disarm_no_space,
        settle,
        member_timeout,
        active_deadline,
        allow_single_member,
        dry_run,
        suspend,
        ttl_seconds_after_finished,
    } = template;
    let default = RunSpec::default();
    let keep_revisions = compaction.as_ref().and_then(|compaction| {
        let path = format!("{path}.compaction.keepRevisions");
        let keep = compaction.keep_revisions;
        if keep < 1 {
            check.fail(
                path,
                keep.to_string(),
                "would compact to the head and break watchers and paged lists that still read older revisions",
                "keep at least 1, better 1000 or more",
            );
        }
        u64::try_from(keep).ok()
    });
    let member_timeout = check.duration(
        &format!("{path}.memberTimeout"),
        member_timeout.as_deref(),
        &Span {
            min: SignedDuration::from_secs(5),
            max: SignedDuration::from_hours(6),
            example: "10m",
        },
    );
    let active_deadline = check.duration(
        &format!("{path}.activeDeadline"),
        active_deadline.as_deref(),
        &Span {
            min: SignedDuration::from_mins(1),
            max: SignedDuration::from_hours(24),
            example: "45m",
        },
    );
    let ttl = check.number(
        &format!("{path}.ttlSecondsAfterFinished"),
        *ttl_seconds_after_finished,
        // Ten years.
        0..=315_360_000,
    );
    RunSpec {
        rule: rule(check, &format!("{path}.rule"), rule_spec.as_ref()),
        keep_revisions,
        leader: leader.map_or(default.leader, Into::into),
        disarm_no_space: disarm_no_space.unwrap_or(default.disarm_no_space),
        settle: settle_spec(check, &format!("{path}.settle"), settle.as_ref()),
        member_timeout,
        active_deadline: active_deadline.unwrap_or(default.active_deadline),
        allow_single_member: allow_single_member.unwrap_or(default.allow_single_member),
        dry_run: dry_run.unwrap_or(default.dry_run),
        suspend: suspend.unwrap_or(default.suspend),
        ttl_after_finished: ttl.map(SignedDuration::from_secs),
    }
}

fn settle_spec(check: &mut Check, path: &str, settle: Option<&SettleSpec>) -> Settle {
    let default = Settle::default();
    let Some(SettleSpec {
        max_raft_lag,
        timeout,
    }) = settle
    else {
        return default;
    };
    // Above 5000 entries etcd itself answers "too many requests".
    let lag = check.number(&format!("{path}.maxRaftLag"), *max_raft_lag, 0..=5000);
    let timeout = check.duration(
        &format!("{path}.timeout"),
        timeout.as_deref(),
        &Span {
            min: SignedDuration::from_secs(1),
            max: SignedDuration::from_hours(1),
            example: "2m",
        },
    );
    Settle {
        max_raft_lag: lag
            .and_then(|n| u64::try_from(n).ok())
            .unwrap_or(default.max_raft_lag),
        timeout: timeout.unwrap_or(default.timeout),
    }
}

/// A rule of a run or a probe; absent, the default one.
pub(super) fn rule(check: &mut Check, path: &str, spec: Option<&RuleSpec>) -> Rule {
    let Some(RuleSpec {
        all,
        free_space_above,
        quota_usage_above,
        min_reclaim,
        expression,
    }) = spec
    else {
        return Rule::default();
    };
    let thresholds: Vec<&str> = [
        ("freeSpaceAbove", free_space_above.is_some()),
        ("quotaUsageAbove", quota_usage_above.is_some()),
        ("minReclaim", min_reclaim.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, given)| given.then_some(name))
    .collect();
    let mut given: Vec<&str> = Vec::new();
    given.extend(all.map(|_| "all"));
    given.extend(expression.as_ref().map(|_| "expression"));
    let exclusive = given.len() + usize::from(!thresholds.is_empty());
    given.extend(&thresholds);

    if exclusive == 0 {
        check.fail(
            path,
            "",
            "the rule is empty",
            "give all, expression, freeSpaceAbove or quotaUsageAbove, or leave the rule out",
        );
    } else if exclusive > 1 {
        check.fail(
            path,
            "",
            format!("{} exclude one another", given.join(" and ")),
            "give all, or expression, or the thresholds",
        );
    }
    if *all == Some(false) {
        check.fail(
            format!("{path}.all"),
            "false",
            "asks for nothing",
            "write true, or leave it out and give thresholds",
        );
    }
    if thresholds == ["minReclaim"] {
        check.fail(
            format!("{path}.minReclaim"),
            min_reclaim.as_ref().map(shown).unwrap_or_default(),
            "alone asks for nothing",
            "add freeSpaceAbove or quotaUsageAbove",
        );
    }

    let free = check.size(&format!("{path}.freeSpaceAbove"), free_space_above.as_ref());
    let quota = check.percent(
        &format!("{path}.quotaUsageAbove"),
        quota_usage_above.as_deref(),
    );
    let least = check.size(&format!("{path}.minReclaim"), min_reclaim.as_ref());
    if let (Some(free), Some(least)) = (free, least)
        && least > free
    {
        check.fail(
            format!("{path}.minReclaim"),
            min_reclaim.as_ref().map(shown).unwrap_or_default(),
            format!(
                "is larger than freeSpaceAbove ({})",
                free_space_above.as_ref().map(shown).unwrap_or_default()
            ),
            "lower it, or raise freeSpaceAbove",
        );
    }
    let parsed = expression.as_deref().and_then(|text| {
        Expression::parse(text)
            .map_err(|error| {
                check.said(
                    format!("{path}.expression"),
                    text,
                    &error,
                    "write one such as \"dbQuotaUsage > 0.8 || dbSizeFree > 200*1024*1024\"",
                );
            })
            .ok()
    });
    if let Some(expression) = parsed {
        Rule::Expression(expression)
    } else if all.is_some() {
        Rule::All
    } else {
        Rule::Threshold {
            free_space_above: free,
            quota_usage_above: quota,
            // A freeSpaceAbove below the default floor means that so little is
            // worth a run; the floor follows it.
            min_reclaim: least.unwrap_or_else(|| {
                free.map_or(DEFAULT_MIN_RECLAIM, |f| f.min(DEFAULT_MIN_RECLAIM))
            }),
        }
    }
}

/// Any duration that is not zero, up to `max`.
pub(super) const fn positive(max: SignedDuration, example: &'static str) -> Span {
    Span {
        min: LEAST,
        max,
        example,
    }
}
