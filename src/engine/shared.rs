//! What workers have at hand.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::signals::Sources;
use crate::telemetry::Telemetry;

use super::claim::Claims;
use super::create::Creating;
use super::pace::Paces;
use super::turn::Places;

/// What every worker has at hand.
pub(super) struct Shared<H> {
    pub(super) host: Arc<H>,
    pub(super) telemetry: Arc<Telemetry>,
    /// Which run has which cluster.
    pub(super) claims: Claims,
    /// How many runs may go on at a time.
    pub(super) places: Places,
    /// Told when a run has ended: another one may be one too many now.
    pub(super) ended: Notify,
}

/// What policies have at hand.
pub(super) struct PolicyShared<H> {
    pub(super) base: Shared<H>,
    pub(super) sources: Arc<Sources>,
    pub(super) creating: Creating,
    pub(super) paces: Paces,
}
