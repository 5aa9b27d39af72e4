//! What hosts tell of their objects.

use std::time::Duration;

use serde_json::Value;

use crate::objects::is_complete;
use crate::{Error, eventually_while};

/// Objects with their status, in the words of `defragd status --output json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Status(pub Value);

impl Status {
    /// Looks until it is as wanted, and returns it.
    ///
    /// # Errors
    /// Those of `alive`, and [`Error::Timeout`] with the outline of what was last seen.
    pub async fn until(
        alive: impl Fn() -> Result<(), Error>,
        deadline: Duration,
        what: &str,
        look: impl AsyncFn() -> Result<Self, Error>,
        wanted: impl Fn(&Self) -> bool,
    ) -> Result<Self, Error> {
        eventually_while(alive, deadline, what, async || {
            let status = look().await.map_err(|e| e.to_string())?;
            if wanted(&status) {
                Ok(status)
            } else {
                Err(status.outline())
            }
        })
        .await
    }

    /// The objects of a kind, in the order of the answer.
    pub fn items(&self, kind: &str) -> impl Iterator<Item = &Value> {
        let items = self.0["items"].as_array().map_or(&[][..], Vec::as_slice);
        items.iter().filter(move |item| item["kind"] == kind)
    }

    /// An object by kind and name; null when there is none.
    #[must_use]
    pub fn item(&self, kind: &str, name: &str) -> &Value {
        self.items(kind)
            .find(|item| item["metadata"]["name"] == name)
            .unwrap_or(&Value::Null)
    }

    /// What a policy remembers of its cluster; null before its first evaluation.
    #[must_use]
    pub fn policy(&self, name: &str) -> &Value {
        &self.item("EtcdDefragPolicy", name)["status"]["clusters"][0]
    }

    /// The reason of a policy's last decision; empty before its first evaluation.
    #[must_use]
    pub fn decision(&self, policy: &str) -> &str {
        self.policy(policy)["decision"]["reason"]
            .as_str()
            .unwrap_or_default()
    }

    /// The runs, oldest first.
    #[must_use]
    pub fn runs(&self) -> Vec<&Value> {
        let mut runs: Vec<&Value> = self.items("EtcdDefrag").collect();
        let created = |run: &Value| run["metadata"]["creationTimestamp"].to_string();
        runs.sort_by_key(|run| created(run));
        runs
    }

    /// Whether there is one run and it is complete.
    #[must_use]
    pub fn one_is_complete(&self) -> bool {
        matches!(self.runs()[..], [run] if is_complete(run))
    }

    /// A condition of an object: its status and reason.
    #[must_use]
    pub fn condition(&self, kind: &str, name: &str, condition: &str) -> Option<(&str, &str)> {
        let conditions = self.item(kind, name)["status"]["conditions"].as_array()?;
        let found = conditions.iter().find(|c| c["type"] == condition)?;
        Some((found["status"].as_str()?, found["reason"].as_str()?))
    }

    /// The most telling of it in one line, for a wait that failed.
    #[must_use]
    pub fn outline(&self) -> String {
        let targets = self.items("EtcdTarget").map(|target| {
            let conditions = &target["status"]["conditions"];
            format!("{}: {conditions}", target["metadata"]["name"])
        });
        let policies = self.items("EtcdDefragPolicy").map(|policy| {
            let cluster = &policy["status"]["clusters"][0];
            format!(
                "{}: {} on {}; {}",
                policy["metadata"]["name"],
                cluster["decision"],
                cluster["signal"],
                policy["status"]["conditions"]
            )
        });
        let runs = self.items("EtcdDefrag").map(|run| {
            format!(
                "{}: {} {}",
                run["metadata"]["name"], run["status"]["phase"], run["status"]["message"]
            )
        });
        let errors = ["documentErrors", "stateErrors"].map(|field| &self.0[field]);
        let errors = errors.into_iter().filter(|errors| !errors.is_null());
        let errors = errors.map(|errors| format!("errors: {errors}"));
        let all = targets.chain(policies).chain(runs).chain(errors);
        all.collect::<Vec<_>>().join(" | ")
    }
}
