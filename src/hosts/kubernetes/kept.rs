//! A status between two looks at it.
//!
//! Ten thousand statuses are kept and one at a time is looked at. As values of their type
//! they take several times the room of their text: each has its own small allocations, and
//! all the fields that are absent.

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A status, kept as JSON. Equal statuses are equal here: both were written the same way.
pub(super) struct Kept<S> {
    text: Box<[u8]>,
    of: PhantomData<fn() -> S>,
}

impl<S: Serialize + DeserializeOwned> Kept<S> {
    /// # Errors
    /// None in practice: whatever can be stored by the API server can be kept.
    pub(super) fn new(status: &S) -> Result<Self, String> {
        let text = serde_json::to_vec(status).map_err(|error| error.to_string())?;
        Ok(Kept {
            text: text.into_boxed_slice(),
            of: PhantomData,
        })
    }

    /// The status as it was given.
    ///
    /// # Errors
    /// None in practice, as in [`Kept::new`].
    pub(super) fn status(&self) -> Result<S, String> {
        serde_json::from_slice(&self.text).map_err(|error| error.to_string())
    }
}

impl<S> PartialEq for Kept<S> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<S> fmt::Debug for Kept<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::api::policy::EtcdDefragPolicyStatus;
    use crate::core::decide::{ClusterState, Origin, SignalRecord};
    use crate::core::reason::Reason;
    use crate::core::signal::SignalState;

    fn status(value: f64) -> EtcdDefragPolicyStatus {
        let state = ClusterState {
            signal: Some(SignalRecord {
                state: SignalState::Inconclusive,
                reason: Reason::Inconclusive,
                value: Some(value),
                message: "\u{1f980} \"quoted\"\nsecond line".to_owned(),
                sampled_at: Some(Timestamp::UNIX_EPOCH),
                origin: Origin::Primary,
            }),
            observed_trigger: Some(None),
            ..ClusterState::default()
        };
        let nothing = EtcdDefragPolicyStatus::default();
        EtcdDefragPolicyStatus::from_state("c", &state, Some(3), &nothing, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_status_comes_back_as_it_was_given() {
        for value in [0.1, -0.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE] {
            let given = status(value);
            let kept = Kept::new(&given).unwrap();
            assert_eq!(kept.status().unwrap(), given);
            assert_eq!(kept, Kept::new(&given).unwrap());
            assert_ne!(kept, Kept::new(&status(7.0)).unwrap());
        }
    }
}
