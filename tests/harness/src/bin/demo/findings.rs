//! What has to be seen, and what was.

use std::time::{Duration, Instant};

use defragd_harness::{Cluster, Status};
use serde_json::Value;

use crate::Failure;
use crate::host::Answer;
use crate::screen::{Screen, mib};
use crate::stage::{HOLD, POLICY};

/// How long a firing signal must be held back: longer than `for`, so that only the cooldown does it.
const HELD: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) quiet_before: bool,
    /// The signal's own words when it first fired.
    fired: String,
    pub(crate) fired_at: Option<Instant>,
    held_for: bool,
    created_after: Option<Duration>,
    runs: Vec<Value>,
    pub(crate) run_ended: bool,
    leader_before: Option<String>,
    leader_after: Option<String>,
    terms: Option<(u64, u64)>,
    /// What each member counts of its own defragmentations.
    counts: Vec<f64>,
    cooling: String,
    held_back_since: Option<Instant>,
    answers: Vec<Answer>,
}

impl Findings {
    pub(crate) async fn note_start(&mut self, cluster: &Cluster) -> Result<(), Failure> {
        let leader = cluster.leader().await?;
        self.leader_before = Some(cluster.member(leader).name().to_owned());
        let term = cluster.term().await?;
        self.terms = Some((term, term));
        Ok(())
    }

    pub(crate) async fn note_end(&mut self, cluster: &Cluster) -> Result<(), Failure> {
        let leader = cluster.leader().await?;
        self.leader_after = Some(cluster.member(leader).name().to_owned());
        let term = cluster.term().await?;
        self.terms = self.terms.map(|(before, _)| (before, term));
        self.counts = cluster.defragmentations().await?;
        Ok(())
    }

    pub(crate) fn take_in(&mut self, status: &Status) {
        let policy = status.policy(POLICY);
        let firing = policy["signal"]["state"] == "Firing";
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match self.fired_at {
            None if firing => {
                self.fired = text(&policy["signal"]["message"]);
                self.fired_at = Some(Instant::now());
            }
            None => self.quiet_before |= policy["signal"]["state"] == "NotFiring",
            Some(_) => {}
        }
        self.held_for |= status.decision(POLICY) == "HoldingFor";
        self.runs = status.runs().into_iter().cloned().collect();
        if let (Some(run), None) = (self.runs.first(), self.created_after) {
            self.created_after = self.fired_at.map(|at| at.elapsed());
            self.run_ended = terminal(run);
        }
        self.run_ended |= self.runs.first().is_some_and(terminal);
        if self.run_ended && firing && status.decision(POLICY) == "CoolingDown" {
            self.cooling = text(&policy["decision"]["message"]);
            self.held_back_since.get_or_insert_with(Instant::now);
        } else {
            self.held_back_since = None;
        }
    }

    /// What a person was told in the end.
    pub(crate) fn note_answers(&mut self, answers: Vec<Answer>) {
        self.answers = answers;
    }

    pub(crate) fn held_back(&self) -> bool {
        self.held_back_since
            .is_some_and(|since| since.elapsed() >= HELD)
    }

    fn run(&self) -> &Value {
        self.runs.first().unwrap_or(&Value::Null)
    }

    /// The name of the run; empty when there was none.
    pub(crate) fn run_name(&self) -> &str {
        self.run()["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// The members of the run in the order of their turns.
    fn turns(&self) -> Vec<&Value> {
        let members = self.run()["status"]["members"].as_array();
        let mut turns: Vec<&Value> = members.into_iter().flatten().collect();
        turns.sort_by_key(|member| member["startedAt"].to_string());
        turns
    }

    fn transfers(&self) -> &[Value] {
        self.run()["status"]["leaderTransfers"]
            .as_array()
            .map_or(&[], Vec::as_slice)
    }

    /// Everything that the demo promises and that was not seen.
    pub(crate) fn missing(&self) -> Vec<String> {
        let turns = self.turns();
        let last = turns.last().and_then(|member| member["name"].as_str());
        let owner = &self.run()["metadata"]["ownerReferences"][0]["name"];
        let shrunk = |member: &&Value| match (
            member["dbSizeBefore"].as_u64(),
            member["dbSizeAfter"].as_u64(),
        ) {
            (Some(before), Some(after)) => {
                member["outcome"] == "Defragmented" && after < before / 2
            }
            _ => false,
        };
        let (term_before, term_after) = self.terms.unwrap_or_default();
        let checks = [
            (
                self.quiet_before,
                "a signal that does not fire while nothing is fragmented".to_owned(),
            ),
            (
                self.fired_at.is_some(),
                "the signal firing on the value from Prometheus".to_owned(),
            ),
            (
                self.held_for,
                format!("the signal being held for {} s", HOLD.as_secs()),
            ),
            (
                // What is seen is seen up to a second late.
                self.created_after
                    .is_some_and(|after| after + Duration::from_secs(1) >= HOLD),
                format!(
                    "the run created once the signal had held for {} s",
                    HOLD.as_secs()
                ),
            ),
            (
                self.runs.len() == 1,
                format!("exactly one run, but {}", self.runs.len()),
            ),
            (
                *owner == POLICY,
                format!("the run belonging to the policy {POLICY}, but to {owner}"),
            ),
            (
                self.run()["status"]["phase"] == "Complete",
                format!("the run complete: {}", self.run()["status"]["message"]),
            ),
            (
                turns.len() == 3 && turns.iter().all(shrunk),
                "three members defragmented to less than half".to_owned(),
            ),
            (
                last.is_some() && last == self.leader_before.as_deref(),
                format!(
                    "the leader {:?} taking its turn last, but {last:?}",
                    self.leader_before
                ),
            ),
            (
                self.transfers().len() == 1 && self.transfers()[0]["outcome"] == "Done",
                "exactly one transfer of leadership".to_owned(),
            ),
            (
                self.leader_before != self.leader_after,
                "another leader after the run".to_owned(),
            ),
            (
                term_after == term_before + 1,
                format!("one term more, but {term_before} and then {term_after}"),
            ),
            (
                self.counts == [1.0; 3],
                format!(
                    "every member counting one defragmentation, but {:?}",
                    self.counts
                ),
            ),
            (
                self.held_back(),
                "the cooldown holding a firing signal back".to_owned(),
            ),
            (
                !self.answers.is_empty(),
                "the answers to what a person asks in the end".to_owned(),
            ),
        ];
        let missing = checks.into_iter().filter(|(seen, _)| !seen);
        let lacking = self.answers.iter().flat_map(|answer| {
            let lacking = answer.lacking();
            lacking.map(|words| {
                format!(
                    "{words:?} in what `{}` says:\n{}",
                    answer.command, answer.text
                )
            })
        });
        missing.map(|(_, what)| what).chain(lacking).collect()
    }

    pub(crate) fn summary(&self, screen: &mut Screen) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        screen.title("\nwhat happened");
        screen.say(&format!("signal      {}", self.fired));
        if let Some(after) = self.created_after {
            screen.say(&format!(
                "run         {} was created {:.1} s after that",
                self.run_name(),
                after.as_secs_f64()
            ));
        }
        for (place, member) in self.turns().into_iter().enumerate() {
            let size = |field: &str| member[field].as_u64().map_or("?".to_owned(), mib);
            let leads = if member["name"].as_str() == self.leader_before.as_deref() {
                ", leader before the run"
            } else {
                ""
            };
            screen.say(&format!(
                "turn {}      {}  {:>10} -> {:>9}{leads}",
                place + 1,
                text(&member["name"]),
                size("dbSizeBefore"),
                size("dbSizeAfter"),
            ));
        }
        let reclaimed = self.run()["status"]["reclaimedBytes"]
            .as_u64()
            .map_or("?".to_owned(), mib);
        screen.say(&format!("given back  {reclaimed}"));
        let or_none = |name: &Option<String>| name.clone().unwrap_or_else(|| "nobody".to_owned());
        let (term_before, term_after) = self.terms.unwrap_or_default();
        screen.say(&format!(
            "leadership  {} -> {}, asked for by defragd; term {term_before} -> {term_after}",
            or_none(&self.leader_before),
            or_none(&self.leader_after),
        ));
        screen.say(&format!(
            "no 2nd run  the signal fires again, but CoolingDown: {}",
            self.cooling
        ));
        for answer in &self.answers {
            screen.title(&format!("\n$ {}", answer.command));
            screen.say(answer.text.trim_end());
        }
    }
}

fn terminal(run: &Value) -> bool {
    run["status"]["phase"] == "Complete" || run["status"]["phase"] == "Failed"
}
