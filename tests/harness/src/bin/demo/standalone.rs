//! `defragd standalone`: objects are files.

use std::time::Duration;

use defragd_harness::{Defragd, Error, PrometheusServer, Status};
use serde_json::json;

use crate::Failure;
use crate::host::{Answer, Host, binary};
use crate::screen::Screen;

pub(crate) struct Standalone(Defragd);

impl Host for Standalone {
    const TITLE: &'static str = "defragd: a PromQL policy sweeps a real etcd cluster";
    const LIMIT: Duration = Duration::from_secs(115);
    const ADVICE: &'static [&'static str] = &[
        "defragd standalone --config defragd.yaml --objects DIR --state DIR",
        "defragd status --state DIR",
    ];

    async fn start(
        objects: &str,
        prometheus: &PrometheusServer,
        screen: &mut Screen,
    ) -> Result<Self, Failure> {
        screen.step("starting defragd standalone on an EtcdTarget and an EtcdDefragPolicy");
        let defragd = Defragd::new(binary()?)?;
        defragd.configure(&json!({
            "sources": [{ "name": "main", "prometheus": { "url": prometheus.url() } }]
        }))?;
        defragd.put("demo.yaml", objects)?;
        defragd.start().await?;
        screen.event(&format!("its objects: {}", defragd.objects().display()));
        screen.event(&format!("its status:  {}", defragd.status_command()));
        Ok(Self(defragd))
    }

    fn check(&self) -> Result<(), Error> {
        self.0.check()
    }

    async fn status(&self) -> Result<Status, Error> {
        self.0.status().await
    }

    fn log_tail(&self) -> String {
        self.0.log_tail()
    }

    async fn answers(&self, run: &str) -> Result<Vec<Answer>, Error> {
        Ok(vec![Answer {
            command: "defragd status --state DIR".to_owned(),
            text: self.0.status_text().await?,
            wanted: [run, "Firing", "CoolingDown", "SweepComplete"]
                .map(str::to_owned)
                .into(),
        }])
    }
}
