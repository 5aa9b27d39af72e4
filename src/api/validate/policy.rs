//! The verdict on a policy.

use jiff::{SignedDuration, Timestamp};

use super::check::{Check, Span, days};
use super::fleet;
use super::metric::metric;
use super::run::{positive, rule, template};
use super::{FieldError, Place, blockers, quoted};
use crate::api::policy::{
    AlertSignalSpec, BackoffSpec, EmergencySpec, EtcdDefragPolicy, EtcdDefragPolicySpec,
    FallbackSpec, HistoryLimitSpec, OnSilenceSpec, PrometheusSignalSpec, SignalSpec,
    SuppressedSpec, WindowSpec,
};
use crate::core::alert::{AlertSignal, MAX_MATCHERS, Matcher, Matchers};
use crate::core::decide::{
    Backoff, DEFAULT_BACKOFF_MAX, DEFAULT_COOLDOWN, DEFAULT_INTERVAL, Emergency, Fallback,
    HistoryLimit, OnSilence, Policy,
};
use crate::core::duration;
use crate::core::promql::PromQuery;
use crate::core::rule::Rule;
use crate::core::run::RunSpec;
use crate::core::signal::{PrometheusSignal, Signal, Threshold};
use crate::core::window::{Schedule, Window};

/// Longest text of `trigger`, in characters.
const MAX_TRIGGER: usize = 256;
/// Most windows, and most blackouts, of one policy.
const MAX_WINDOWS: usize = 64;

/// The policy, with every default filled in.
///
/// # Errors
/// Everything that is wrong with the object.
pub fn policy(object: &EtcdDefragPolicy, place: Place) -> Result<Policy, Vec<FieldError>> {
    let EtcdDefragPolicySpec {
        cluster_ref,
        cluster_selector,
        max_concurrent_runs,
        signal,
        hold_for,
        interval,
        no_data,
        on_error,
        fallback,
        windows,
        blackouts,
        blockers,
        max_blocked_for,
        cooldown,
        backoff,
        max_runs_per_day,
        emergency,
        suspend,
        paused_until,
        dry_run,
        trigger,
        history_limit,
        run_template,
    } = &object.spec;
    let mut check = Check::at(place);
    let c = &mut check;
    c.name("metadata.name", object.metadata.name.as_deref());
    let fleet = fleet::fleet(
        c,
        cluster_ref.as_ref(),
        cluster_selector.as_ref(),
        *max_concurrent_runs,
    );
    let series = fleet::series(c, signal, cluster_selector.is_some());
    let signal = signal_of(c, signal, fallback.is_some());
    let hold_for = c.duration(
        "spec.for",
        hold_for.as_deref(),
        &Span {
            min: SignedDuration::ZERO,
            max: days(30),
            example: "5m",
        },
    );
    let interval = c.duration(
        "spec.interval",
        interval.as_deref(),
        &Span {
            min: SignedDuration::from_secs(1),
            max: SignedDuration::from_hours(1),
            example: "30s",
        },
    );
    let (no_data, on_error) = silence(c, *no_data, *on_error, fallback.is_some());
    let fallback = fallback
        .as_ref()
        .map(|FallbackSpec { after, probe }| Fallback {
            after: c
                .duration(
                    "spec.fallback.after",
                    Some(after),
                    &positive(days(30), "10m"),
                )
                .unwrap_or_default(),
            rule: rule(
                c,
                "spec.fallback.probe.rule",
                probe.as_ref().and_then(|p| p.rule.as_ref()),
            ),
        });
    let schedule = Schedule {
        windows: windows_of(c, "spec.windows", windows),
        blackouts: windows_of(c, "spec.blackouts", blackouts),
    };
    let max_blocked_for = blockers::max_blocked_for(c, max_blocked_for.as_deref(), blockers);
    let blockers = blockers::blockers(c, blockers);
    let cooldown_given = cooldown.as_deref();
    let cooldown = c
        .duration("spec.cooldown", cooldown_given, &positive(days(30), "1h"))
        .unwrap_or(DEFAULT_COOLDOWN);
    let backoff = backoff_of(c, backoff.as_ref(), cooldown);
    let max_runs_per_day = c.count("spec.maxRunsPerDay", *max_runs_per_day, 1..=48);
    let emergency = emergency
        .as_ref()
        .map(|emergency| emergency_of(c, emergency));
    let paused_until = paused_until.as_deref().and_then(|text| {
        text.parse::<Timestamp>()
            .map_err(|_| {
                c.fail(
                    "spec.pausedUntil",
                    quoted(text),
                    "is not a time",
                    "write it as RFC 3339 does, such as \"2026-01-31T22:00:00Z\"",
                );
            })
            .ok()
    });
    if let Some(text) = trigger
        .as_deref()
        .filter(|t| t.chars().count() > MAX_TRIGGER)
    {
        let problem = format!("is longer than {MAX_TRIGGER} characters");
        c.fail(
            "spec.trigger",
            quoted(text),
            problem,
            "shorten it, a date will do",
        );
    }
    let history = history_of(c, history_limit.as_ref());
    let template = run_template
        .as_ref()
        .map_or_else(RunSpec::default, |t| template(c, "spec.runTemplate", t));
    check.finish(Policy {
        signal,
        fleet,
        series,
        hold_for: hold_for.unwrap_or_default(),
        interval: interval.unwrap_or(DEFAULT_INTERVAL),
        no_data,
        on_error,
        fallback,
        schedule,
        blockers,
        max_blocked_for,
        cooldown,
        backoff,
        max_runs_per_day,
        emergency,
        suspend: suspend.unwrap_or_default(),
        paused_until,
        dry_run: dry_run.unwrap_or_default(),
        // An empty text says as little as none.
        trigger: trigger.clone().filter(|t| !t.is_empty()),
        history,
        template,
    })
}

/// When something is wrong the value returned does not matter: the check fails.
pub(super) fn signal_of(check: &mut Check, spec: &SignalSpec, has_fallback: bool) -> Signal {
    let SignalSpec {
        prometheus,
        metric: metric_spec,
        alert,
        probe,
    } = spec;
    let given = [
        ("prometheus", prometheus.is_some()),
        ("metric", metric_spec.is_some()),
        ("alert", alert.is_some()),
        ("probe", probe.is_some()),
    ];
    let names: Vec<&str> = (given.iter())
        .filter_map(|(name, given)| given.then_some(*name))
        .collect();
    match names[..] {
        [_] => {}
        [] => check.fail(
            "spec.signal",
            "",
            "the signal is missing",
            "give prometheus, metric, alert or probe",
        ),
        _ => check.fail(
            "spec.signal",
            "",
            format_args!("{} exclude one another", names.join(" and ")),
            "give exactly one; a probe beside another signal goes into spec.fallback",
        ),
    }
    let nothing = || Signal::Probe(Rule::default());
    if let Some(prometheus) = prometheus {
        return prometheus_of(check, prometheus).map_or_else(nothing, Signal::Prometheus);
    }
    if let Some(alert) = alert {
        return alert_of(check, alert).map_or_else(nothing, Signal::Alert);
    }
    if let Some(spec) = metric_spec {
        return metric(check, spec).map_or_else(nothing, Signal::Metric);
    }
    if probe.is_some() && has_fallback {
        check.fail(
            "spec.fallback",
            "",
            "a probe has no fallback: it is what a fallback would ask",
            "remove spec.fallback",
        );
    }
    Signal::Probe(rule(
        check,
        "spec.signal.probe.rule",
        probe.as_ref().and_then(|p| p.rule.as_ref()),
    ))
}

fn alert_of(check: &mut Check, spec: &AlertSignalSpec) -> Option<AlertSignal> {
    const PATH: &str = "spec.signal.alert";
    let AlertSignalSpec {
        source,
        matchers,
        include,
    } = spec;
    if source.trim().is_empty() {
        check.fail(
            format!("{PATH}.source"),
            quoted(source),
            "names no source",
            "write the name of one of the sources in defragd's configuration",
        );
    }
    let path = format!("{PATH}.matchers");
    if matchers.len() > MAX_MATCHERS {
        let problem = format!(
            "has {} entries, at most {MAX_MATCHERS} are read",
            matchers.len()
        );
        check.fail(&path, "", problem, "remove some");
        return None;
    }
    let mut parsed = Vec::with_capacity(matchers.len());
    for (index, text) in matchers.iter().enumerate() {
        match Matcher::parse(text) {
            Ok(matcher) => parsed.push(matcher),
            Err(error) => check.said(
                format!("{path}[{index}]"),
                text,
                &error,
                "correct the matcher",
            ),
        }
    }
    if parsed.len() < matchers.len() {
        return None;
    }
    let parsed = Matchers::new(parsed);
    if parsed.match_nothing_in_particular() {
        check.fail(
            &path,
            "",
            "match every alert, also those about something else",
            "add one that names the alert, such as alertname=\"etcdFragmented\"",
        );
    }
    Some(AlertSignal {
        source: source.clone(),
        matchers: parsed,
        silenced: include.contains(&SuppressedSpec::Silenced),
        inhibited: include.contains(&SuppressedSpec::Inhibited),
    })
}

fn prometheus_of(check: &mut Check, spec: &PrometheusSignalSpec) -> Option<PrometheusSignal> {
    const PATH: &str = "spec.signal.prometheus";
    let PrometheusSignalSpec {
        source,
        query,
        above,
        below,
        reduce,
        cluster_label: _,
        cluster_label_from: _,
        same_for_all: _,
    } = spec;
    if source.trim().is_empty() {
        check.fail(
            format!("{PATH}.source"),
            quoted(source),
            "names no source",
            "write the name of one of the sources in defragd's configuration",
        );
    }
    let query = PromQuery::parse(query)
        .map_err(|error| {
            check.said(
                format!("{PATH}.query"),
                query,
                &error,
                "correct the expression",
            );
        })
        .ok();
    let above = check.quantity(&format!("{PATH}.above"), above.as_ref());
    let below = check.quantity(&format!("{PATH}.below"), below.as_ref());
    if spec.above.is_some() && spec.below.is_some() {
        check.fail(
            PATH,
            "",
            "above and below exclude one another",
            "give only one of them",
        );
    }
    let compared = spec.above.is_some() || spec.below.is_some();
    if reduce.is_some() && !compared {
        check.fail(
            format!("{PATH}.reduce"),
            "",
            "without above or below there is nothing to reduce to",
            "add above or below, or remove reduce",
        );
    }
    if !compared && query.as_ref().is_some_and(PromQuery::is_scalar) {
        check.fail(
            format!("{PATH}.query"),
            query.as_ref().map(|q| quoted(q.text())).unwrap_or_default(),
            "always has a value, so it would always fire",
            "add above or below",
        );
    }
    Some(PrometheusSignal {
        source: source.clone(),
        query: query?,
        threshold: above.map(Threshold::Above).or(below.map(Threshold::Below)),
        reduce: reduce.map(Into::into),
    })
}

fn silence(
    check: &mut Check,
    no_data: Option<OnSilenceSpec>,
    on_error: Option<OnSilenceSpec>,
    has_fallback: bool,
) -> (OnSilence, OnSilence) {
    let uses = |field: Option<OnSilenceSpec>| field == Some(OnSilenceSpec::Fallback);
    if !has_fallback {
        for (path, field) in [("spec.noData", no_data), ("spec.onError", on_error)] {
            if uses(field) {
                check.fail(
                    path,
                    "Fallback",
                    "needs spec.fallback",
                    "add spec.fallback, or write Hold",
                );
            }
        }
    } else if on_error.is_some() && !uses(on_error) && !uses(no_data) {
        check.fail(
            "spec.fallback",
            "",
            "the fallback is never used",
            "set spec.onError or spec.noData to Fallback, or remove spec.fallback",
        );
    }
    let on_error_default = if has_fallback {
        OnSilence::Fallback
    } else {
        OnSilence::Hold
    };
    (
        no_data.map_or(OnSilence::Hold, Into::into),
        on_error.map_or(on_error_default, Into::into),
    )
}

fn windows_of(check: &mut Check, path: &str, specs: &[WindowSpec]) -> Vec<Window> {
    if specs.len() > MAX_WINDOWS {
        check.fail(
            path,
            specs.len().to_string(),
            "are too many",
            format!("give at most {MAX_WINDOWS}"),
        );
    }
    let mut windows = Vec::new();
    for (i, spec) in specs.iter().take(MAX_WINDOWS).enumerate() {
        windows.extend(window_of(check, &format!("{path}[{i}]"), spec));
    }
    windows
}

fn window_of(check: &mut Check, path: &str, spec: &WindowSpec) -> Option<Window> {
    let WindowSpec {
        days,
        start,
        cron,
        length,
        time_zone,
    } = spec;
    if let Some(zone) = time_zone.as_deref().filter(|z| z.is_empty()) {
        // Core reads an empty name as UTC; in a manifest it is a slip.
        let remedy = "write an IANA name such as \"Europe/Berlin\", or leave it out for UTC";
        check.fail(
            format!("{path}.timeZone"),
            quoted(zone),
            "names no zone",
            remedy,
        );
        return None;
    }
    let zone = time_zone.as_deref().unwrap_or_default();
    let window = match (start, cron) {
        (Some(_), Some(_)) => {
            check.fail(
                path,
                "",
                "start and cron exclude one another",
                "give only one of them",
            );
            return None;
        }
        (None, None) => {
            check.fail(
                path,
                "",
                "start or cron is missing",
                "give start, such as \"22:00\", or cron",
            );
            return None;
        }
        (Some(start), None) => {
            let days: Vec<&str> = days.iter().map(String::as_str).collect();
            Window::weekly(&days, start, length, zone)
        }
        (None, Some(cron)) => {
            if !days.is_empty() {
                check.fail(
                    format!("{path}.days"),
                    quoted(&days.join(", ")),
                    "has no effect beside cron",
                    "put the days into the cron expression",
                );
            }
            Window::cron(cron, length, zone)
        }
    };
    window
        .map_err(|error| {
            let field = error.field();
            let value = match field {
                "days" => &days.join(", "),
                "start" => start.as_deref().unwrap_or_default(),
                "cron" => cron.as_deref().unwrap_or_default(),
                "timeZone" => zone,
                _ => length.as_str(),
            };
            check.said(format!("{path}.{field}"), value, &error, "correct it");
        })
        .ok()
}

fn backoff_of(check: &mut Check, spec: Option<&BackoffSpec>, cooldown: SignedDuration) -> Backoff {
    let default = Backoff {
        max: DEFAULT_BACKOFF_MAX.max(cooldown),
        ..Backoff::default()
    };
    let Some(BackoffSpec {
        factor,
        max,
        min_reclaim,
    }) = spec
    else {
        return default;
    };
    let factor = check.count("spec.backoff.factor", *factor, 1..=10);
    let longest = check.duration(
        "spec.backoff.max",
        max.as_deref(),
        &positive(days(90), "1d"),
    );
    if let Some(longest) = longest.filter(|l| *l < cooldown) {
        check.fail(
            "spec.backoff.max",
            quoted(&duration::format(longest)),
            format!(
                "is shorter than spec.cooldown ({})",
                duration::format(cooldown)
            ),
            "raise it, or shorten the cooldown",
        );
    }
    let min_reclaim = check.size("spec.backoff.minReclaim", min_reclaim.as_ref());
    Backoff {
        factor: factor.unwrap_or(default.factor),
        max: longest.unwrap_or(default.max),
        min_reclaim: min_reclaim.unwrap_or(default.min_reclaim),
    }
}

fn emergency_of(check: &mut Check, spec: &EmergencySpec) -> Emergency {
    let EmergencySpec {
        quota_usage_above,
        no_space,
    } = spec;
    let no_space = no_space.unwrap_or_default();
    if quota_usage_above.is_none() && !no_space {
        check.fail(
            "spec.emergency",
            "",
            "nothing is declared to be an emergency",
            "give quotaUsageAbove or noSpace: true, or remove spec.emergency",
        );
    }
    Emergency {
        quota_usage_above: check.percent(
            "spec.emergency.quotaUsageAbove",
            quota_usage_above.as_deref(),
        ),
        no_space,
    }
}

fn history_of(check: &mut Check, spec: Option<&HistoryLimitSpec>) -> HistoryLimit {
    let default = HistoryLimit::default();
    let Some(HistoryLimitSpec { successful, failed }) = spec else {
        return default;
    };
    let successful = check.count("spec.historyLimit.successful", *successful, 0..=100);
    let failed = check.count("spec.historyLimit.failed", *failed, 0..=100);
    HistoryLimit {
        successful: successful.unwrap_or(default.successful),
        failed: failed.unwrap_or(default.failed),
    }
}
