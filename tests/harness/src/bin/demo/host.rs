//! Where defragd works: over files, or over a Kubernetes API server.

use std::path::PathBuf;
use std::time::Duration;

use defragd_harness::{Error, PrometheusServer, Status};

use crate::Failure;
use crate::screen::Screen;

/// A place with the demo's objects, and the defragd that works by them.
pub(crate) trait Host: Sized {
    const TITLE: &'static str;
    /// The limit for everything after the build.
    const LIMIT: Duration;
    /// How the reader does the same.
    const ADVICE: &'static [&'static str];

    /// Has defragd work by these objects and ask this Prometheus.
    async fn start(
        objects: &str,
        prometheus: &PrometheusServer,
        screen: &mut Screen,
    ) -> Result<Self, Failure>;

    /// Fails when defragd has ended by itself.
    fn check(&self) -> Result<(), Error>;

    async fn status(&self) -> Result<Status, Error>;

    fn log_tail(&self) -> String;

    /// What a person sees in the end who asks about the run of this name.
    async fn answers(&self, run: &str) -> Result<Vec<Answer>, Error>;
}

/// What a command of a person printed.
pub(crate) struct Answer {
    pub(crate) command: String,
    pub(crate) text: String,
    /// What must be found in it.
    pub(crate) wanted: Vec<String>,
}

impl Answer {
    pub(crate) fn lacking(&self) -> impl Iterator<Item = &str> {
        let wanted = self.wanted.iter().map(String::as_str);
        wanted.filter(|words| !self.text.contains(words))
    }
}

/// The binary that make has built beside this one.
pub(crate) fn binary() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe()?;
    let binary = own.with_file_name("defragd");
    if binary.is_file() {
        Ok(binary)
    } else {
        Err(format!(
            "there is no {}: start the demo with `make demo` or `make demo-kubernetes`, which build it",
            binary.display()
        )
        .into())
    }
}
