//! Counting what became of deliveries.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::core::alert::Outcome;

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Delivery {
    Stored,
    /// The token or password is wrong, or there is none.
    Unauthorized,
    /// No source of that name takes deliveries.
    UnknownSource,
    TooLarge,
    /// Not what Alertmanager writes.
    Malformed,
    WrongVersion,
    /// The sender left alerts out.
    Truncated,
    /// More alerts fire than are kept.
    Full,
    /// The delivery did not arrive as a whole in time.
    Incomplete,
    /// The file with the secret cannot be read.
    NoSecret,
    NotStored,
}

impl Delivery {
    /// Every one there is.
    pub const ALL: [Delivery; 11] = [
        Delivery::Stored,
        Delivery::Unauthorized,
        Delivery::UnknownSource,
        Delivery::TooLarge,
        Delivery::Malformed,
        Delivery::WrongVersion,
        Delivery::Truncated,
        Delivery::Full,
        Delivery::Incomplete,
        Delivery::NoSecret,
        Delivery::NotStored,
    ];

    /// The name as it stands in metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Delivery::Stored => "stored",
            Delivery::Unauthorized => "unauthorized",
            Delivery::UnknownSource => "unknown_source",
            Delivery::TooLarge => "too_large",
            Delivery::Malformed => "malformed",
            Delivery::WrongVersion => "wrong_version",
            Delivery::Truncated => "truncated",
            Delivery::Full => "full",
            Delivery::Incomplete => "incomplete",
            Delivery::NoSecret => "no_secret",
            Delivery::NotStored => "not_stored",
        }
    }

    /// The status code that it is answered with: 4xx for what a repetition cannot
    /// mend, 5xx for what it can.
    pub const fn code(self) -> u16 {
        match self {
            Delivery::Stored => 200,
            Delivery::Malformed | Delivery::WrongVersion => 400,
            Delivery::Unauthorized => 401,
            Delivery::UnknownSource => 404,
            Delivery::TooLarge => 413,
            Delivery::Truncated => 422,
            Delivery::Incomplete | Delivery::NoSecret | Delivery::NotStored => 503,
            Delivery::Full => 507,
        }
    }
}

/// Counts of one webhook since the start of the process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeliveryStats {
    pub deliveries: BTreeMap<Delivery, u64>,
    /// Alerts of stored deliveries: `new`, `repeated`, `resolved`, `late`, `too_long`.
    pub alerts: BTreeMap<&'static str, u64>,
}

#[derive(Debug)]
pub(super) struct Counts(Mutex<DeliveryStats>);

impl Default for Counts {
    /// All at zero: who looks at an increase would not see the first of a series
    /// that was not there before.
    fn default() -> Self {
        let deliveries = Delivery::ALL
            .into_iter()
            // Counted where no source is.
            .filter(|delivery| *delivery != Delivery::UnknownSource);
        let outcomes = [
            Outcome::New,
            Outcome::Repeated,
            Outcome::Resolved,
            Outcome::Late,
            Outcome::TooLong { bytes: 0 },
        ];
        Counts(Mutex::new(DeliveryStats {
            deliveries: deliveries.map(|delivery| (delivery, 0)).collect(),
            alerts: outcomes.map(|outcome| (name(outcome), 0)).into(),
        }))
    }
}

impl Counts {
    pub(super) fn delivery(&self, delivery: Delivery) {
        let mut stats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *stats.deliveries.entry(delivery).or_default() += 1;
    }

    pub(super) fn alerts(&self, outcomes: &[Outcome]) {
        let mut stats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for outcome in outcomes {
            *stats.alerts.entry(name(*outcome)).or_default() += 1;
        }
    }

    pub(super) fn snapshot(&self) -> DeliveryStats {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

const fn name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::New => "new",
        Outcome::Repeated => "repeated",
        Outcome::Resolved => "resolved",
        Outcome::Late => "late",
        Outcome::TooLong { bytes: _ } => "too_long",
    }
}
