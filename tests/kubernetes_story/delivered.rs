//! Alerts that a real Alertmanager delivers to a defragd with the chart's rights.

use std::fs;

use defragd_harness::{
    Alertmanager, AlertmanagerServer, Error, KubeApi, RunningController, eventually, objects,
};
use serde_json::{Value, json};

use crate::play::policy;
use crate::support::WAIT;

/// The source that is delivered to, and the policy that follows it.
const PUSHED: &str = "pushed";
const ALERT: &str = "etcdDatabaseHighFragmentationRatio";
const TOKEN: &str = "open-sesame-4c19";

/// The source, as an administrator configures it.
pub(crate) fn source(api: &KubeApi) -> Value {
    let token = api.scratch().join("delivery-token");
    fs::write(&token, TOKEN).expect("a file of the test's own");
    json!({ "name": PUSHED, "webhook": { "bearerTokenFile": token } })
}

/// An Alertmanager that delivers one alert to one defragd, each second again.
pub(crate) struct Deliveries<'a> {
    api: &'a KubeApi,
    namespace: &'a str,
    defragd: &'a RunningController,
    url: String,
    _alertmanager: AlertmanagerServer,
}

impl<'a> Deliveries<'a> {
    /// They begin, and a policy in this namespace follows them.
    pub(crate) async fn begin(
        api: &'a KubeApi,
        namespace: &'a str,
        defragd: &'a RunningController,
    ) -> Result<Self, Error> {
        let matchers = json!([format!("alertname=\"{ALERT}\"")]);
        let signal = json!({ "alert": { "source": PUSHED, "matchers": matchers } });
        let object = objects::object("EtcdDefragPolicy", PUSHED, &policy(&signal));
        let list = KubeApi::defragd_path(namespace, "etcddefragpolicies");
        api.create(&list, &object).await?;
        let url = format!("{}/api/v1/alerts/{PUSHED}", defragd.url());
        let alertmanager = Alertmanager::default().config(route(&url)).start().await?;
        alertmanager
            .post(&json!([{ "labels": { "alertname": ALERT } }]))
            .await?;
        Ok(Self {
            api,
            namespace,
            defragd,
            url,
            _alertmanager: alertmanager,
        })
    }

    /// Waits until the policy's signal says this, in these words among others.
    pub(crate) async fn signal_says(&self, reason: &str, words: &str) -> Result<(), Error> {
        let what = format!("the delivered alerts to say {reason}: {words}");
        eventually(WAIT, what, async || {
            let status = self.api.defragd(self.namespace).await;
            let status = status.map_err(|e| e.to_string())?;
            let signal = &status.policy(PUSHED)["signal"];
            let message = signal["message"].as_str().unwrap_or_default();
            if signal["reason"] == reason && message.contains(words) {
                Ok(())
            } else {
                Err(signal.to_string())
            }
        })
        .await
    }

    /// How many were stored so far.
    async fn stored(&self) -> Result<f64, Error> {
        let name = format!(
            "defragd_webhook_deliveries_total{{source=\"{PUSHED}\",result=\"stored\",code=\"200\"}}"
        );
        Ok(self.defragd.metric(&name).await?.unwrap_or(0.0))
    }

    /// Without the right to do this with the ConfigMap a delivery is answered in words that say so, and
    /// with a status that has Alertmanager repeat it.
    pub(crate) async fn are_refused(&self, verb: &str) -> Result<(), Error> {
        let namespace = self.namespace;
        let wanted = [
            format!("unable to {verb} the ConfigMap {namespace}/defragd-alerts-{PUSHED}"),
            format!(
                "let defragd's service account get, create and update ConfigMaps in {namespace}, \
                 see docs/rbac.md"
            ),
        ];
        let began = jiff::Timestamp::now().to_string();
        let message = json!({
            "version": "4", "status": "firing", "truncatedAlerts": 0,
            "alerts": [{
                "status": "firing", "labels": { "alertname": ALERT }, "annotations": {},
                "startsAt": began, "endsAt": "0001-01-01T00:00:00Z",
            }],
        });
        let http = reqwest::Client::new();
        // Without `update` the first one is stored.
        eventually(WAIT, "a delivery to be refused", async || {
            let request = http.post(&self.url).bearer_auth(TOKEN);
            let answer = request.body(message.to_string()).send().await;
            let answer = answer.map_err(|e| e.to_string())?;
            let status = answer.status();
            let said = answer.text().await.map_err(|e| e.to_string())?;
            if status == 503 && wanted.iter().all(|words| said.contains(words)) {
                Ok(())
            } else {
                Err(format!("{status}: {said}"))
            }
        })
        .await?;
        // What was stored before can still be read.
        match verb {
            "get" => self.signal_says("SourceUnavailable", &wanted[0]).await,
            "create" => {
                self.signal_says("NoData", "no alert has been delivered")
                    .await
            }
            _ => self.signal_says("SignalFiring", ALERT).await,
        }
    }

    /// Alertmanager delivers again what was refused, and it counts.
    pub(crate) async fn arrive(&self) -> Result<(), Error> {
        let before = self.stored().await?;
        eventually(WAIT, "a delivery to be stored", async || {
            match self.stored().await {
                Ok(stored) if stored > before => Ok(()),
                other => Err(format!("{other:?}, before {before}")),
            }
        })
        .await?;
        self.signal_says("SignalFiring", ALERT).await
    }
}

/// A route to this webhook, all of it quick.
fn route(url: &str) -> Value {
    json!({
        "route": {
            "receiver": "defragd", "group_by": ["alertname"],
            "group_wait": "100ms", "group_interval": "1s", "repeat_interval": "1s",
        },
        "receivers": [{ "name": "defragd", "webhook_configs": [{
            "url": url,
            "http_config": { "authorization": { "type": "Bearer", "credentials": TOKEN } },
        }] }],
    })
}
