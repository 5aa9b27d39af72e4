//! Why a question got no usable answer.

use crate::core::reason::Reason;
use crate::core::signal::Reading;

/// What went wrong, as the reading will say it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Failure {
            reason,
            message: message.into(),
        }
    }

    pub(super) fn reading(&self) -> Reading {
        Reading::error(self.reason, self.message.clone())
    }
}
