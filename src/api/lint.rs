//! The verdict of `defragd lint`: what the hosts refuse, and what they accept
//! although it is probably not what its author meant.

mod sources;

pub use self::sources::{KnownSource, SourceKind};

use std::fmt;

use jiff::SignedDuration;
use url::Url;

use self::sources::{ALERTS, QUERIES};
use super::defrag::{LeaderModeSpec, RuleSpec, RunTemplate};
use super::document::{Located, Object, Parsed};
use super::policy::{BlockerSpec, EtcdDefragPolicy, ProbeSpec};
use super::target::EtcdTarget;
use super::validate::{self, Place, quoted};
use crate::core::alert::AlertSignal;
use crate::core::decide::{OnSilence, Policy};
use crate::core::duration;
use crate::core::key::ClusterKind;
use crate::core::promql;
use crate::core::rule::Rule;
use crate::core::run::RunSpec;
use crate::core::signal::{MetricSignal, PrometheusSignal, Signal};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The hosts refuse it.
    Error,
    /// The hosts accept it.
    Warning,
}

impl Severity {
    /// The word in front of the finding.
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// One thing to say about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    pub file: String,
    /// From 1.
    pub line: usize,
    /// The field; empty when the document as a whole is meant.
    pub path: String,
    /// What it is and what to do.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: ",
            self.file,
            self.line,
            self.severity.as_str()
        )?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Looks at all objects together. `sources` are those of the administrator's
/// file; without them, names of sources are not checked. `place` is where the
/// objects are going to be used. Findings come file by file, and by line.
pub fn lint(parsed: &Parsed, sources: Option<&[KnownSource]>, place: Place) -> Vec<Finding> {
    let mut findings: Vec<Finding> = parsed
        .errors
        .iter()
        .map(|error| Finding {
            severity: Severity::Error,
            file: error.file.clone(),
            line: error.line,
            path: error.path.clone(),
            message: error.message.clone(),
        })
        .collect();
    for object in &parsed.objects {
        let mut look = Look {
            object,
            findings: Vec::new(),
        };
        look.errors(place);
        look.cluster(&parsed.objects);
        match &object.value {
            Object::Target(target) => look.target(target),
            Object::Policy(spec) => {
                if let Ok(policy) = validate::policy(spec, place) {
                    look.policy(spec, &policy, sources);
                }
            }
            Object::Run(spec) => {
                if let Ok(run) = validate::run(spec, place) {
                    look.run("spec", &spec.spec.run, &run);
                }
            }
        }
        findings.append(&mut look.findings);
    }
    // Stable: files keep the order in which they were first seen.
    let mut files: Vec<String> = Vec::new();
    for finding in &findings {
        if !files.contains(&finding.file) {
            files.push(finding.file.clone());
        }
    }
    findings.sort_by_key(|f| (files.iter().position(|name| *name == f.file), f.line));
    findings
}

/// One object and what is found in it.
struct Look<'a> {
    object: &'a Located<Object>,
    findings: Vec<Finding>,
}

impl Look<'_> {
    fn say(&mut self, severity: Severity, path: impl Into<String>, message: impl Into<String>) {
        let path = path.into();
        self.findings.push(Finding {
            severity,
            file: self.object.file.clone(),
            line: self.object.line_of(&path),
            path,
            message: message.into(),
        });
    }

    fn warn(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.say(Severity::Warning, path, message);
    }

    fn errors(&mut self, place: Place) {
        for error in self.object.value.errors(place) {
            self.say(
                Severity::Error,
                error.path,
                format!("{}; {}", error.problem, error.remedy),
            );
        }
    }

    /// The target may well live elsewhere: only a warning. Other operators'
    /// clusters always do.
    fn cluster(&mut self, objects: &[Located<Object>]) {
        let cluster = match &self.object.value {
            Object::Target(_) => return,
            Object::Policy(policy) => match &policy.spec.cluster_ref {
                Some(named) => named,
                None => return self.fleet(policy, objects),
            },
            Object::Run(run) => &run.spec.cluster_ref,
        };
        if cluster.cluster_kind() != Some(ClusterKind::EtcdTarget) {
            return;
        }
        let name = cluster.name.as_str();
        let namespace = self.object.value.namespace();
        let key = ("EtcdTarget", namespace, name);
        if !name.is_empty() && !objects.iter().any(|o| o.value.key() == key) {
            let message = format!(
                "no EtcdTarget {} is among these files; check the name, or give its file too",
                quoted(name)
            );
            self.warn("spec.clusterRef.name", message);
        }
    }

    /// Targets that a policy selects may live elsewhere too.
    fn fleet(&mut self, policy: &EtcdDefragPolicy, objects: &[Located<Object>]) {
        const PATH: &str = "spec.clusterSelector";
        let Some(fleet) = validate::policy(policy, Place::Anywhere)
            .ok()
            .and_then(|policy| policy.fleet)
        else {
            return;
        };
        let namespace = self.object.value.namespace();
        let selected = objects.iter().any(|object| match &object.value {
            Object::Target(target) if object.value.namespace() == namespace => {
                let labels = target.metadata.labels.clone().unwrap_or_default();
                fleet.selector.labels.matches(&labels)
            }
            Object::Target(_) | Object::Policy(_) | Object::Run(_) => false,
        });
        if !selected && fleet.selector.kinds.contains(&ClusterKind::EtcdTarget) {
            let place = match namespace {
                "" => String::new(),
                named => format!(" of the namespace {named}"),
            };
            let message = format!(
                "no EtcdTarget{place} among these files has such labels; check them, or give the targets' files too"
            );
            self.warn(PATH, message);
        }
        let prometheus = policy.spec.signal.prometheus.as_ref();
        if let Some(prometheus) = prometheus
            && let Some(label) = prometheus.cluster_label.as_deref()
            && !prometheus.query.contains(label)
            && aggregates(&prometheus.query)
        {
            let message = format!(
                "the query does not mention clusterLabel {}, and aggregates: its series may have lost the label; \
                 aggregate by ({label})",
                quoted(label)
            );
            self.warn("spec.signal.prometheus.query", message);
        }
    }

    fn target(&mut self, target: &EtcdTarget) {
        for (i, text) in target.spec.endpoints.iter().flatten().enumerate() {
            let explicit = [":80", ":443"]
                .iter()
                .any(|port| text.trim_end_matches('/').ends_with(port));
            if !explicit && Url::parse(text).is_ok_and(|url| url.has_host() && url.port().is_none())
            {
                let message = format!("{} has no port; etcd's is usually 2379", quoted(text));
                self.warn(format!("spec.endpoints[{i}]"), message);
            }
        }
    }

    fn policy(
        &mut self,
        object: &EtcdDefragPolicy,
        policy: &Policy,
        sources: Option<&[KnownSource]>,
    ) {
        match &policy.signal {
            Signal::Prometheus(signal) => {
                self.prometheus("spec.signal", signal, policy, sources);
            }
            Signal::Alert(signal) => self.alert("spec.signal", signal, sources),
            Signal::Metric(signal) => self.metric("spec.signal", signal),
            Signal::Probe(rule) => self.probe(
                "spec.signal",
                object.spec.signal.probe.as_ref(),
                rule,
                "a run starts after every cooldown, whether or not there is anything to give back",
            ),
        }
        self.blockers(&object.spec.blockers, policy, sources);
        if let (Some(spec), Some(fallback)) = (&object.spec.fallback, &policy.fallback) {
            self.probe(
                "spec.fallback",
                spec.probe.as_ref(),
                &fallback.rule,
                "while the source is silent, a run starts after every cooldown",
            );
        }
        if !policy.hold_for.is_zero() && policy.hold_for < policy.interval {
            let message = format!(
                "{} is shorter than the interval ({}), so two evaluations decide; lengthen it, or shorten the interval",
                duration::format(policy.hold_for),
                duration::format(policy.interval),
            );
            self.warn("spec.for", message);
        } else if let Some(message) = short_for_samples(policy) {
            self.warn("spec.for", message);
        }
        for (path, on) in [
            ("spec.noData", policy.no_data),
            ("spec.onError", policy.on_error),
        ] {
            if on == OnSilence::Fire {
                self.warn(
                    path,
                    "Fire starts runs while nothing is known about the cluster; prefer Fallback",
                );
            }
        }
        for (i, window) in policy.schedule.windows.iter().enumerate() {
            if window.length() < policy.template.active_deadline {
                let message = format!(
                    "{} is shorter than the run's activeDeadline ({}), so a run can go on after the window has closed; \
                     lengthen it, or set spec.runTemplate.activeDeadline",
                    duration::format(window.length()),
                    duration::format(policy.template.active_deadline),
                );
                self.warn(format!("spec.windows[{i}].length"), message);
            }
        }
        if let Some(template) = &object.spec.run_template {
            self.run("spec.runTemplate", template, &policy.template);
            if policy.template.suspend {
                self.warn(
                    "spec.runTemplate.suspend",
                    "every run waits until a person resumes it; to stop the policy, set spec.suspend",
                );
            }
        }
    }

    fn blockers(
        &mut self,
        specs: &[BlockerSpec],
        policy: &Policy,
        sources: Option<&[KnownSource]>,
    ) {
        for (i, (blocker, spec)) in policy.blockers.iter().zip(specs).enumerate() {
            let path = format!("spec.blockers[{i}].signal");
            if blocker.signal == policy.signal {
                self.warn(
                    &path,
                    "it is the policy's own signal, so it blocks whenever a run is due; ask something else",
                );
                continue;
            }
            match &blocker.signal {
                Signal::Prometheus(signal) => {
                    let path = format!("{path}.prometheus");
                    self.source(&path, &signal.source, QUERIES, sources);
                    self.query(&path, signal);
                }
                Signal::Alert(signal) => {
                    let path = format!("{path}.alert");
                    self.source(&path, &signal.source, ALERTS, sources);
                    self.alertname(&path, signal, "hold runs back");
                }
                Signal::Metric(signal) => self.metric(&path, signal),
                Signal::Probe(rule) => {
                    self.probe(
                        &path,
                        spec.signal.probe.as_ref(),
                        rule,
                        "no run ever starts",
                    );
                }
            }
        }
        if let Some(max) = policy.max_blocked_for.filter(|max| *max < policy.interval) {
            let message = format!(
                "{} is shorter than the interval ({}), so it is over before blockers are asked twice; lengthen it",
                duration::format(max),
                duration::format(policy.interval),
            );
            self.warn("spec.maxBlockedFor", message);
        }
    }

    fn prometheus(
        &mut self,
        path: &str,
        signal: &PrometheusSignal,
        policy: &Policy,
        sources: Option<&[KnownSource]>,
    ) {
        let path = format!("{path}.prometheus");
        self.source(&path, &signal.source, QUERIES, sources);
        self.query(&path, signal);
        // What fires when there is little to give back is right for a blocker.
        if let Some(hint) = signal.query.direction_hint(signal.threshold.as_ref()) {
            self.warn(format!("{path}.query"), hint.message);
        }
        self.look_back(signal, policy);
    }

    /// The administrator's file has it, and it is of such a kind.
    fn source(
        &mut self,
        path: &str,
        source: &str,
        wanted: &[SourceKind],
        sources: Option<&[KnownSource]>,
    ) {
        let problem = sources.and_then(|known| sources::problem(source, wanted, known));
        if let Some(message) = problem {
            self.say(Severity::Error, format!("{path}.source"), message);
        }
    }

    fn alert(&mut self, path: &str, signal: &AlertSignal, sources: Option<&[KnownSource]>) {
        let path = format!("{path}.alert");
        self.source(&path, &signal.source, ALERTS, sources);
        self.alertname(&path, signal, "start runs");
        if signal.silenced {
            self.warn(
                format!("{path}.include"),
                "Silenced lets runs start although somebody silenced the alert; a blackout or pausedUntil stops them then",
            );
        }
    }

    /// Alerts about something else may do what this one is to do.
    fn alertname(&mut self, path: &str, signal: &AlertSignal, does: &str) {
        let mut matchers = signal.matchers.iter();
        if !matchers.any(|matcher| matcher.name() == "alertname") {
            let message = format!(
                "none is about alertname, so alerts about something else may {does}; add one such as \
                 alertname=\"etcdFragmented\""
            );
            self.warn(format!("{path}.matchers"), message);
        }
    }

    fn metric(&mut self, path: &str, signal: &MetricSignal) {
        if let Some(hint) = promql::name_hint(signal.metric.name(), &signal.threshold) {
            self.warn(format!("{path}.metric"), hint.message);
        }
    }

    /// `outcome` is what follows when it always fires.
    fn probe(&mut self, path: &str, spec: Option<&ProbeSpec>, rule: &Rule, outcome: &str) {
        let path = format!("{path}.probe.rule");
        self.rule(&path, spec.and_then(|probe| probe.rule.as_ref()));
        if *rule == Rule::All {
            let message = format!("all always fires: {outcome}; give freeSpaceAbove");
            self.warn(path, message);
        }
    }

    fn query(&mut self, path: &str, signal: &PrometheusSignal) {
        let hint = match &signal.threshold {
            Some(threshold) => signal.query.unit_hint(threshold),
            None => signal.query.alert_hint(),
        };
        if let Some(hint) = hint {
            self.warn(format!("{path}.query"), hint.message);
        }
    }

    fn look_back(&mut self, signal: &PrometheusSignal, policy: &Policy) {
        if let Some(range) = signal.query.max_range()
            && policy.cooldown < range
        {
            let message = format!(
                "{} is shorter than the query's look-back ({}), so what was seen before a run can start the next one; \
                 set it to at least {}",
                duration::format(policy.cooldown),
                duration::format(range),
                duration::format(range),
            );
            self.warn("spec.cooldown", message);
        }
    }

    /// `path` is that of the run's spec.
    fn run(&mut self, path: &str, template: &RunTemplate, run: &RunSpec) {
        self.rule(&format!("{path}.rule"), template.rule.as_ref());
        if template.leader == Some(LeaderModeSpec::Skip) {
            self.warn(
                format!("{path}.leader"),
                "Skip never defragments the leader, whose file grows until leadership moves by chance; \
                 Move gives it its turn",
            );
        }
        if let Some(timeout) = run.member_timeout.filter(|t| *t > run.active_deadline) {
            let message = format!(
                "{} is longer than activeDeadline ({}), which ends the run first; shorten it",
                duration::format(timeout),
                duration::format(run.active_deadline),
            );
            self.warn(format!("{path}.memberTimeout"), message);
        }
    }

    fn rule(&mut self, path: &str, rule: Option<&RuleSpec>) {
        if rule.is_some_and(|r| r.min_reclaim.is_some() && r.quota_usage_above.is_none()) {
            self.warn(
                format!("{path}.minReclaim"),
                "without quotaUsageAbove it has no effect; remove it, or add quotaUsageAbove",
            );
        }
    }
}

/// How often a source has something new is not known here; Prometheus scrapes
/// every minute unless told otherwise.
const USUAL_SCRAPE: SignedDuration = SignedDuration::from_mins(1);

fn short_for_samples(policy: &Policy) -> Option<String> {
    let sampled = matches!(policy.signal, Signal::Prometheus(_) | Signal::Metric(_));
    let short = !policy.hold_for.is_zero() && policy.hold_for < USUAL_SCRAPE;
    (sampled && short).then(|| {
        format!(
            "{} may be shorter than the scrape interval ({} unless Prometheus is told otherwise), \
             so one sample decides; lengthen it to at least twice the scrape interval",
            duration::format(policy.hold_for),
            duration::format(USUAL_SCRAPE),
        )
    })
}

/// True when the query makes one series of all, as `max(x)` does.
fn aggregates(query: &str) -> bool {
    let words: String = query.split_whitespace().collect();
    let all = ["max(", "min(", "sum(", "avg(", "count("];
    all.iter().any(|aggregation| words.contains(aggregation))
}

#[cfg(test)]
mod tests;
