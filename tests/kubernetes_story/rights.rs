//! What a service account may, and what it was seen to do.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Value, json};

use crate::play::METRIC;

/// One verb on one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Right {
    pub(crate) group: String,
    /// With its subresource.
    pub(crate) resource: String,
    pub(crate) verb: String,
    /// Of the only object that it is about.
    name: Option<String>,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        match self.group.as_str() {
            "" => Ok(()),
            group => write!(f, ".{group}"),
        }
    }
}

impl Right {
    /// Each right that the rules of a Role or ClusterRole give.
    pub(crate) fn of_role(role: &Value) -> Vec<Self> {
        let words = |value: &Value| -> Vec<String> {
            let list = value.as_array().into_iter().flatten();
            list.filter_map(|word| Some(word.as_str()?.to_owned()))
                .collect()
        };
        let mut rights = Vec::new();
        for rule in role["rules"].as_array().into_iter().flatten() {
            // Without names it is about every object.
            let names = words(&rule["resourceNames"]).into_iter().map(Some);
            let mut names: Vec<Option<String>> = names.collect();
            if names.is_empty() {
                names.push(None);
            }
            for group in words(&rule["apiGroups"]) {
                for resource in words(&rule["resources"]) {
                    for verb in words(&rule["verbs"]) {
                        rights.extend(names.iter().map(|name| Self {
                            group: group.clone(),
                            resource: resource.clone(),
                            verb: verb.clone(),
                            name: name.clone(),
                        }));
                    }
                }
            }
        }
        rights
    }

    /// What the API server says when this right is missing.
    pub(crate) fn refusal(&self) -> String {
        if self.resource.ends_with("/finalizers") {
            return "cannot set blockOwnerDeletion".to_owned();
        }
        let Self { resource, verb, .. } = self.request();
        format!("cannot {verb} resource \"{resource}\"")
    }

    /// A rule that gives this right alone.
    pub(crate) fn rule(&self) -> Value {
        let Self {
            group,
            resource,
            verb,
            name,
        } = self;
        let names: Vec<&String> = name.iter().collect();
        json!({ "apiGroups": [group], "resources": [resource], "verbs": [verb], "resourceNames": names })
    }

    /// The same about any object, as a request shows it.
    fn nameless(&self) -> Self {
        Self {
            name: None,
            ..self.clone()
        }
    }

    /// What the API server answers with 403 when this right is missing. To say that a run blocks the
    /// deletion of its policy is no request of its own.
    pub(crate) fn request(&self) -> Self {
        if self.resource.ends_with("/finalizers") {
            let request = ("etcddefrags".to_owned(), "create".to_owned());
            return Self {
                resource: request.0,
                verb: request.1,
                ..self.nameless()
            };
        }
        // What stands for a resource is the metric, or the object with its metric.
        let resource = match (self.group.as_str(), self.resource.as_str()) {
            ("external.metrics.k8s.io", "*") => METRIC.to_owned(),
            ("custom.metrics.k8s.io", "*") => format!("pods/{METRIC}"),
            (_, resource) => resource.to_owned(),
        };
        Self {
            resource,
            ..self.nameless()
        }
    }
}

/// Requests by who made them, as far as anybody looked.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    answered: BTreeSet<(String, Right)>,
    forbidden: BTreeSet<(String, Right)>,
}

impl Seen {
    pub(crate) fn take(&mut self, request: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let about = &request["objectRef"];
        // What is served may be looked up by every account.
        if about["resource"].is_null() {
            return;
        }
        let resource = match about["subresource"].as_str() {
            Some(part) => format!("{}/{part}", text(&about["resource"])),
            None => text(&about["resource"]),
        };
        let right = Right {
            group: text(&about["apiGroup"]),
            resource,
            verb: text(&request["verb"]),
            name: None,
        };
        let seen = match request["responseStatus"]["code"].as_u64() {
            Some(403) => &mut self.forbidden,
            _ => &mut self.answered,
        };
        seen.insert((text(&request["user"]["username"]), right));
    }

    /// Whether the user made a request that needs this right, and was let.
    pub(crate) fn used(&self, user: &str, right: &Right) -> bool {
        let request = (user.to_owned(), right.request());
        self.answered.contains(&request)
    }

    /// Whether the user was refused what needs this right.
    pub(crate) fn refused(&self, user: &str, right: &Right) -> bool {
        let request = (user.to_owned(), right.request());
        self.forbidden.contains(&request)
    }

    /// Everything that was refused to the user.
    pub(crate) fn refusals(&self, user: &str) -> Vec<String> {
        let own = self.forbidden.iter().filter(|(who, _)| who == user);
        own.map(|(_, right)| right.to_string()).collect()
    }

    /// Everything that the user did.
    pub(crate) fn acts(&self, user: &str) -> BTreeSet<Right> {
        let own = self.answered.iter().filter(|(who, _)| who == user);
        own.map(|(_, right)| right.clone()).collect()
    }
}
