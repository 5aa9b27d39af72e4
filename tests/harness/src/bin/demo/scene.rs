//! Watches what goes on, shows it, and tells the findings.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use defragd_harness::{Error, MemberStatus, Status};
use serde_json::Value;

use crate::Failure;
use crate::findings::Findings;
use crate::host::Host;
use crate::screen::{Screen, mib};
use crate::stage::{ABOVE, POLICY, QUERY, Stage};

/// How long one thing is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(150);
/// A member does not answer while it is being defragmented; the table must not wait for it.
const GLANCE: Duration = Duration::from_millis(100);

pub(crate) struct Scene<'a, H> {
    stage: &'a Stage<H>,
    /// The last known of each member.
    members: Vec<Option<MemberStatus>>,
    said: BTreeMap<String, String>,
}

impl<'a, H: Host> Scene<'a, H> {
    pub(crate) fn new(stage: &'a Stage<H>) -> Self {
        let members = vec![None; stage.cluster.members().len()];
        Self {
            stage,
            members,
            said: BTreeMap::new(),
        }
    }

    /// Watches until something is found.
    pub(crate) async fn watch(
        &mut self,
        screen: &mut Screen,
        findings: &mut Findings,
        what: &str,
        found: impl Fn(&Findings) -> bool,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        while !found(findings) {
            if begun.elapsed() > PATIENCE {
                return Err(format!("waited {} s for {what}", PATIENCE.as_secs()).into());
            }
            self.look(screen, findings).await?;
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Watches while something is being done.
    pub(crate) async fn watch_during(
        &mut self,
        screen: &mut Screen,
        findings: &mut Findings,
        work: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Failure> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done?),
                () = tokio::time::sleep(PAUSE) => self.look(screen, findings).await?,
            }
        }
    }

    async fn look(&mut self, screen: &mut Screen, findings: &mut Findings) -> Result<(), Failure> {
        self.stage.host.check()?;
        let value = self.stage.prometheus.query(QUERY).await;
        let value = value.ok().and_then(|samples| Some(samples.first()?.value));
        let status = self.stage.host.status().await?;
        for (i, member) in self.members.iter_mut().enumerate() {
            if let Ok(Ok(seen)) = tokio::time::timeout(GLANCE, self.stage.cluster.status(i)).await {
                *member = Some(seen);
            }
        }
        findings.take_in(&status);
        self.tell(screen, &status);
        screen.show(self.table(&status, value));
        Ok(())
    }

    /// Says each thing once, when it changes.
    fn tell(&mut self, screen: &mut Screen, status: &Status) {
        let policy = status.policy(POLICY);
        let stage = self.stage;
        let mut say = |topic: String, key: String, text: String| {
            if self.said.get(&topic) != Some(&key) {
                screen.event(&text);
                self.said.insert(topic, key);
            }
        };
        let signal = &policy["signal"];
        if let Some(state) = signal["state"].as_str() {
            say(
                "signal".to_owned(),
                state.to_owned(),
                format!("signal    {state}: {}", words(&signal["message"])),
            );
        }
        if let Some(reason) = policy["decision"]["reason"].as_str() {
            let message = words(&policy["decision"]["message"]);
            say(
                "decision".to_owned(),
                reason.to_owned(),
                format!("decision  {reason}: {message}"),
            );
        }
        for run in status.runs() {
            let name = words(&run["metadata"]["name"]);
            let phase = words(&run["status"]["phase"]);
            let list = |field: &str| run["status"][field].as_array().cloned().unwrap_or_default();
            // What was seen in one glance is told in the order in which it happened.
            let (at_work, settled): (Vec<_>, Vec<_>) = list("members")
                .into_iter()
                .partition(|member| member["outcome"] == "InProgress");
            let of_member = |member: &Value| {
                (
                    format!("turn {name} {}", member["name"]),
                    words(&member["outcome"]),
                    format!("member    {} {}", words(&member["name"]), turn(member)),
                )
            };
            let of_transfer = |transfer: &Value| {
                let from = stage.name_of(&transfer["from"]);
                let to = stage.name_of(&transfer["to"]);
                let outcome = words(&transfer["outcome"]);
                let text = format!("leader    moving leadership from {from} to {to}: {outcome}");
                (format!("transfer {name} {from}"), outcome, text)
            };
            let is_pending = |member: &&Value| member["outcome"] == "Pending";
            let of_run = (
                format!("run {name}"),
                phase.clone(),
                match phase.as_str() {
                    "" => format!("run       {name} is created"),
                    phase => format!("run       {name} is {phase}"),
                },
            );
            let (first, last) = match phase.as_str() {
                "Complete" | "Failed" => (None, Some(of_run)),
                _ => (Some(of_run), None),
            };
            let told = settled.iter().filter(|m| !is_pending(m)).map(of_member);
            let told = first.into_iter().chain(told);
            let transfers = list("leaderTransfers");
            let told = told.chain(transfers.iter().map(of_transfer));
            for (topic, key, text) in told.chain(at_work.iter().map(of_member)).chain(last) {
                say(topic, key, text);
            }
        }
    }

    fn table(&self, status: &Status, value: Option<f64>) -> Vec<String> {
        let policy = status.policy(POLICY);
        let shown = value.map_or("no answer".to_owned(), |bytes| mib(bytes.max(0.0) as u64));
        let mut lines = vec![
            String::new(),
            format!(
                "Prometheus  {shown} to give back, the policy asks for more than {}",
                mib(ABOVE)
            ),
            format!("signal      {}", words(&policy["signal"]["state"])),
            format!(
                "decision    {}: {}",
                words(&policy["decision"]["reason"]),
                words(&policy["decision"]["message"])
            ),
            format!(
                "{:<8}{:<10}{:>12}{:>12}  {}",
                "member", "role", "file", "in use", "turn"
            ),
        ];
        let runs = status.runs();
        let turns = runs
            .last()
            .and_then(|run| run["status"]["members"].as_array());
        for (i, seen) in self.members.iter().enumerate() {
            let name = self.stage.cluster.member(i).name();
            let record = turns.and_then(|turns| turns.iter().find(|m| m["name"] == name));
            let (role, file, used) = match seen {
                Some(seen) => (
                    if seen.leader == seen.member_id {
                        "leader"
                    } else {
                        "follower"
                    },
                    mib(seen.sizes.db),
                    mib(seen.sizes.in_use),
                ),
                None => ("", String::new(), String::new()),
            };
            let turn = record.map(turn).unwrap_or_default();
            lines.push(format!("{name:<8}{role:<10}{file:>12}{used:>12}  {turn}"));
        }
        lines
    }
}

/// What became of a member, in words.
fn turn(member: &Value) -> String {
    let outcome = words(&member["outcome"]);
    let (before, after) = (
        member["dbSizeBefore"].as_u64(),
        member["dbSizeAfter"].as_u64(),
    );
    match (outcome.as_str(), before, after) {
        ("Pending", ..) => "waits for its turn".to_owned(),
        ("InProgress", Some(before), _) => format!("is being defragmented ({})", mib(before)),
        ("Defragmented", Some(before), Some(after)) => {
            format!("is defragmented: {} -> {}", mib(before), mib(after))
        }
        _ => format!("{outcome}: {}", words(&member["reason"])),
    }
}

fn words(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
