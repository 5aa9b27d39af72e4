//! Why a question got no usable answer.

use jiff::SignedDuration;

use crate::core::reason::Reason;
use crate::core::signal::Reading;

/// What went wrong, as the reading will say it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    pub(super) message: String,
    /// The source asked not to be called again before this has passed.
    pub(super) retry_after: Option<SignedDuration>,
}

impl Failure {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Failure {
            reason,
            message: message.into(),
            retry_after: None,
        }
    }

    pub(super) fn reading(&self) -> Reading {
        Reading {
            retry_after: self.retry_after,
            ..Reading::error(self.reason, self.message.clone())
        }
    }
}
