//! Gathers errors while the fields of an object are parsed, so that all of them
//! are told at once.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

use jiff::SignedDuration;

use super::{FieldError, Place, quoted};
use crate::api::defrag::{CLUSTER_APIS, ClusterRef};
use crate::api::scalar::IntOrString;
use crate::core::duration;
use crate::core::key::ClusterKind;
use crate::core::quantity::Quantity;
use crate::core::rule::Percent;

/// Longest name of an object.
pub(super) const MAX_NAME: usize = 253;

pub(super) struct Check {
    errors: Vec<FieldError>,
    place: Place,
}

/// What a duration may be.
pub(super) struct Span {
    pub(super) min: SignedDuration,
    pub(super) max: SignedDuration,
    /// For the remedy.
    pub(super) example: &'static str,
}

/// The least duration that is not zero.
pub(super) const LEAST: SignedDuration = SignedDuration::from_millis(1);

pub(super) const fn days(days: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * days)
}

impl Check {
    /// For an object that is going to be used there.
    pub(super) const fn at(place: Place) -> Self {
        Check {
            errors: Vec::new(),
            place,
        }
    }

    /// The value, when nothing was wrong.
    pub(super) fn finish<T>(self, value: T) -> Result<T, Vec<FieldError>> {
        if self.errors.is_empty() {
            Ok(value)
        } else {
            Err(self.errors)
        }
    }

    /// What `part` finds wrong below the field `from` is told as of the field `to`:
    /// the same shape stands in several places.
    pub(super) fn moved<T>(
        &mut self,
        from: &str,
        to: &str,
        part: impl FnOnce(&mut Check) -> T,
    ) -> T {
        let mut inner = Check::at(self.place);
        let value = part(&mut inner);
        self.errors.extend(inner.errors.into_iter().map(|error| {
            let rest = error.path.strip_prefix(from).map(str::to_owned);
            FieldError {
                path: rest.map_or_else(|| error.path.clone(), |rest| format!("{to}{rest}")),
                ..error
            }
        }));
        value
    }

    pub(super) fn fail(
        &mut self,
        path: impl Into<String>,
        value: impl Into<String>,
        problem: impl Display,
        remedy: impl Into<String>,
    ) {
        self.errors
            .push(FieldError::new(path, value, problem, remedy));
    }

    pub(super) fn said(
        &mut self,
        path: impl Into<String>,
        value: &str,
        error: &dyn Display,
        remedy: &str,
    ) {
        self.errors
            .push(FieldError::said(path, value, error, remedy));
    }

    /// RFC 1123: what Kubernetes accepts as the name of an object. Names also
    /// become file names of the standalone host.
    pub(super) fn name(&mut self, path: &str, name: Option<&str>) {
        const REMEDY: &str = "use lower-case letters, digits, '-' and '.', such as \"prod-etcd\"";
        let Some(name) = name.filter(|n| !n.is_empty()) else {
            return self.fail(path, "", "the name is missing", REMEDY);
        };
        if !is_dns_name(name) {
            self.fail(path, quoted(name), "is not a name by RFC 1123", REMEDY);
        } else if name.len() > MAX_NAME {
            self.fail(
                path,
                quoted(name),
                format_args!("is longer than {MAX_NAME} characters"),
                "shorten it",
            );
        }
    }

    pub(super) fn cluster_ref(&mut self, path: &str, cluster: &ClusterRef) {
        let ClusterRef {
            api_version,
            kind,
            name,
        } = cluster;
        let kind_path = format!("{path}.kind");
        let version_path = format!("{path}.apiVersion");
        let target = ClusterKind::EtcdTarget.kind();
        let meant = kind.as_deref().unwrap_or(target);
        match (cluster.cluster_kind(), api_version.as_deref()) {
            (Some(ClusterKind::EtcdTarget), _) => {}
            (Some(known), _) => self.only(
                Place::Kubernetes,
                kind_path,
                quoted(known.kind()),
                "describe the cluster by an EtcdTarget with endpoints",
            ),
            (None, version) => {
                // The kinds, and the APIs that have the one that is meant.
                let kinds: BTreeSet<&str> = CLUSTER_APIS.iter().map(|(_, k)| k.kind()).collect();
                let apis: Vec<String> = CLUSTER_APIS
                    .iter()
                    .filter(|(_, known)| known.kind() == meant)
                    .map(|(api, _)| format!("{api:?}"))
                    .collect();
                match version {
                    _ if apis.is_empty() => {
                        let kinds: Vec<String> = kinds.iter().map(|k| format!("{k:?}")).collect();
                        let remedy = format!("write {}", kinds.join(" or "));
                        self.fail(kind_path, quoted(meant), "is not supported", remedy);
                    }
                    None => self.fail(
                        version_path,
                        "",
                        format!("{meant} is a kind of two operators, and none is named"),
                        format!("write {}", apis.join(" or ")),
                    ),
                    Some(version) => self.fail(
                        version_path,
                        quoted(version),
                        format!("has no {meant}"),
                        match CLUSTER_APIS.iter().find(|(api, _)| *api == version) {
                            Some((_, known)) => format!(
                                "write kind: {}, or apiVersion: {}",
                                known.kind(),
                                apis.join(" or ")
                            ),
                            None => format!("write {}", apis.join(" or ")),
                        },
                    ),
                }
            }
        }
        self.name(&format!("{path}.name"), Some(name));
    }

    /// Refuses what only `needed` can do where that is not the place.
    pub(super) fn only(
        &mut self,
        needed: Place,
        path: impl Into<String>,
        value: impl Into<String>,
        remedy: &str,
    ) {
        if self.place == Place::Anywhere || self.place == needed {
            return;
        }
        let value = value.into();
        let it = if value.is_empty() { "it " } else { "" };
        let problem = match needed {
            Place::Kubernetes => "works in Kubernetes only, not in defragd standalone",
            Place::Standalone => "works in defragd standalone only, not in Kubernetes",
            Place::Anywhere => return,
        };
        self.fail(path, value, format!("{it}{problem}"), remedy);
    }

    /// The remedy that can be carried out here, or both.
    pub(super) fn remedy(&self, kubernetes: &str, standalone: &str) -> String {
        match self.place {
            Place::Kubernetes => kubernetes.to_owned(),
            Place::Standalone => standalone.to_owned(),
            Place::Anywhere => format!("{kubernetes}, or in standalone {standalone}"),
        }
    }

    pub(super) fn duration(
        &mut self,
        path: &str,
        text: Option<&str>,
        span: &Span,
    ) -> Option<SignedDuration> {
        let text = text?;
        let value = match duration::parse(text) {
            Ok(value) => value,
            Err(error) => {
                self.said(
                    path,
                    text,
                    &error,
                    &format!("write a duration such as {:?}", span.example),
                );
                return None;
            }
        };
        let range = || {
            if span.min <= LEAST {
                format!(
                    "write a duration of at most {:?}",
                    duration::format(span.max)
                )
            } else {
                format!(
                    "write a duration from {:?} to {:?}",
                    duration::format(span.min),
                    duration::format(span.max)
                )
            }
        };
        if value.is_zero() && !span.min.is_zero() {
            let remedy = format!("write a duration such as {:?}", span.example);
            self.fail(path, quoted(text), "is not positive", remedy);
        } else if value < span.min {
            let problem = format!("is shorter than {}", duration::format(span.min));
            self.fail(path, quoted(text), problem, range());
        } else if value > span.max {
            let problem = format!("is longer than {}", duration::format(span.max));
            self.fail(path, quoted(text), problem, range());
        } else {
            return Some(value);
        }
        None
    }

    pub(super) fn quantity(&mut self, path: &str, value: Option<&IntOrString>) -> Option<Quantity> {
        let text = value?.to_string();
        Quantity::parse(&text)
            .map_err(|error| self.said(path, &text, &error, "write a quantity such as \"100Mi\""))
            .ok()
    }

    /// Whole bytes, at least one: zero would turn a guard off.
    pub(super) fn size(&mut self, path: &str, value: Option<&IntOrString>) -> Option<u64> {
        const REMEDY: &str = "write a size such as \"200Mi\"";
        let quantity = self.quantity(path, value)?;
        let shown = value.map_or_else(String::new, shown);
        if !quantity.is_positive() {
            self.fail(path, shown, "is not positive", REMEDY);
            return None;
        }
        let bytes = quantity.to_bytes();
        if bytes.is_none() {
            self.fail(path, shown, "is not a whole number of bytes", REMEDY);
        }
        bytes
    }

    pub(super) fn percent(&mut self, path: &str, text: Option<&str>) -> Option<Percent> {
        let text = text?;
        Percent::parse(text)
            .map_err(|error| self.said(path, text, &error, "write one such as \"80%\""))
            .ok()
    }

    /// A whole number within `range`.
    pub(super) fn number(
        &mut self,
        path: &str,
        value: Option<i64>,
        range: RangeInclusive<i64>,
    ) -> Option<i64> {
        let value = value?;
        if range.contains(&value) {
            return Some(value);
        }
        let remedy = format!("write a number from {} to {}", range.start(), range.end());
        self.fail(path, value.to_string(), "is out of range", remedy);
        None
    }

    /// Like [`Check::number`], for ranges within `u32`.
    pub(super) fn count(
        &mut self,
        path: &str,
        value: Option<i64>,
        range: RangeInclusive<i64>,
    ) -> Option<u32> {
        self.number(path, value, range)
            .and_then(|n| u32::try_from(n).ok())
    }
}

/// A value as it was written: texts in quotes, numbers bare.
pub(super) fn shown(value: &IntOrString) -> String {
    match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => quoted(text),
    }
}

/// Labels of RFC 1123 with dots between them, of any length.
pub(super) fn is_dns_name(text: &str) -> bool {
    text.split('.').all(|label| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    })
}
