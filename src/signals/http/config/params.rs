//! Further parameters of each request.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use crate::core::signal::bounded;

/// What a request says itself, whatever the kind of source.
const OWN_PARAMS: &[&str] = &[
    "query",
    "time",
    "timeout",
    "filter",
    "active",
    "silenced",
    "inhibited",
    "unprocessed",
    "receiver",
];
const MOST_PARAMS: usize = 32;
const LONGEST_NAME: usize = 64;
const LONGEST_VALUE: usize = 1024;

/// The value of a parameter as it is written; a list repeats the parameter.
#[derive(Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "wanted a text, a number, true or false, or a list of these"
)]
pub enum ParamSpec {
    One(ParamValue),
    Several(Vec<ParamValue>),
}

/// One value.
#[derive(Clone, Deserialize)]
#[serde(untagged, expecting = "wanted a text, a number, true or false")]
pub enum ParamValue {
    Text(String),
    Switch(bool),
    Number(serde_json::Number),
}

impl ParamValue {
    fn text(self) -> String {
        match self {
            ParamValue::Text(text) => text,
            ParamValue::Switch(switch) => switch.to_string(),
            ParamValue::Number(number) => number.to_string(),
        }
    }
}

/// Parameters that every request carries besides its own.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Params(pub Vec<(String, String)>);

/// Their names only.
impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

/// The parameters, or the field and what is wrong with it.
pub(super) fn ready(params: BTreeMap<String, ParamSpec>) -> Result<Params, (String, String)> {
    let mut ready = Vec::new();
    for (name, value) in params {
        let fail = |problem: String| {
            let shown = bounded(&name, LONGEST_NAME);
            Err((format!("params.{shown}"), problem))
        };
        if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
            return fail(format!(
                "not the name of a parameter, wanted 1 to {LONGEST_NAME} characters"
            ));
        }
        if OWN_PARAMS.contains(&name.as_str()) {
            return fail("is set by each request itself: remove it".to_owned());
        }
        let values = match value {
            ParamSpec::One(value) => vec![value],
            ParamSpec::Several(values) => values,
        };
        if values.is_empty() {
            return fail("an empty list, wanted at least one value: remove it".to_owned());
        }
        for value in values {
            let value = value.text();
            if value.len() > LONGEST_VALUE {
                return fail(format!(
                    "{} bytes long, wanted at most {LONGEST_VALUE}",
                    value.len()
                ));
            }
            ready.push((name.clone(), value));
        }
        if ready.len() > MOST_PARAMS {
            return Err((
                "params".to_owned(),
                format!("more than {MOST_PARAMS} parameters: remove some"),
            ));
        }
    }
    Ok(Params(ready))
}
