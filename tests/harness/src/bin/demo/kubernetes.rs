//! `defragd controller`: objects are custom resources of a real API server. There are no nodes, so
//! the pods of the chart's Deployment run as processes.

use std::time::Duration;

use defragd_harness::{
    Error, KubeApi, PrometheusServer, Release, RunningController, Status, servers,
};
use serde_json::json;

use crate::Failure;
use crate::host::{Answer, Host, binary};
use crate::screen::Screen;
use crate::stage::POLICY;

/// Where the chart is installed.
const RELEASE: &str = "defragd";
/// Where the objects are: `kubectl` needs no word about it.
const NAMESPACE: &str = "default";

pub(crate) struct InKubernetes {
    // The order matters: defragd ends before what it watches.
    pods: Vec<RunningController>,
    api: KubeApi,
}

impl InKubernetes {
    async fn kubectl(&self, args: &[&str], wanted: &[&str]) -> Result<Answer, Error> {
        Ok(Answer {
            command: format!("kubectl {}", args.join(" ")),
            text: self.api.kubectl(args).await?,
            wanted: wanted.iter().map(|&words| words.to_owned()).collect(),
        })
    }
}

impl Host for InKubernetes {
    const TITLE: &'static str =
        "defragd: a PromQL policy sweeps a real etcd cluster, by objects of a real Kubernetes API";
    const LIMIT: Duration = Duration::from_secs(175);
    const ADVICE: &'static [&'static str] = &[
        "helm install defragd charts/defragd --namespace defragd --create-namespace --values values.yaml",
        "kubectl apply --filename policy.yaml",
        "kubectl get defragd",
    ];

    async fn start(
        objects: &str,
        prometheus: &PrometheusServer,
        screen: &mut Screen,
    ) -> Result<Self, Failure> {
        screen.step("starting a Kubernetes API server, with an etcd of its own");
        let api = KubeApi::start().await?;
        screen.event(&format!("the API server answers at {}", api.url()));

        screen.step("installing the chart, with this Prometheus as the source \"main\"");
        screen.event("$ helm install defragd charts/defragd --namespace defragd --create-namespace --values values.yaml");
        let source = json!({ "name": "main", "prometheus": { "url": prometheus.url() } });
        let values = json!({ "config": { "sources": [source] } });
        let release = Release::install(&api, RELEASE, RELEASE, &values).await?;
        // After the CRDs: kinds that come later are minded half a minute later.
        api.start_controller_manager().await?;
        let names = release.pods(&api).await?;
        let made = ["get", "deployments,pods", "--namespace", RELEASE];
        screen.quote(&api.kubectl(&made).await?);

        screen.step(
            "starting its pods as processes: there are no nodes, but the pods' arguments and a \
             token of their service account",
        );
        let mut pods = Vec::new();
        for name in names {
            let pod = release.pod(&api, binary()?, &name).await?.start().await?;
            screen.event(&format!("{name} is ready at {}", pod.url()));
            pods.push(pod);
        }

        screen.step("applying an EtcdTarget and an EtcdDefragPolicy");
        screen.event("$ kubectl apply --filename demo.yaml");
        screen.quote(&api.apply(objects).await?);
        screen.event(&format!(
            "its status:  KUBECONFIG={} {} get defragd",
            api.kubeconfig_admin().display(),
            servers::kubernetes("kubectl").await?.display()
        ));
        Ok(Self { pods, api })
    }

    fn check(&self) -> Result<(), Error> {
        self.pods.iter().try_for_each(RunningController::check)
    }

    async fn status(&self) -> Result<Status, Error> {
        self.api.defragd(NAMESPACE).await
    }

    fn log_tail(&self) -> String {
        let logs = self.pods.iter().map(RunningController::log_tail);
        logs.collect::<Vec<_>>().join("\n---\n")
    }

    async fn answers(&self, run: &str) -> Result<Vec<Answer>, Error> {
        let object = format!("defrag/{run}");
        let wait = ["wait", "--for=condition=Succeeded", &object, "--timeout=5s"];
        let met = format!("etcddefrag.defragd.dev/{run} condition met");
        let all = [
            POLICY,
            run,
            "Firing",
            "CoolingDown",
            "SweepComplete",
            "ClusterHealthy",
        ];
        let created = format!("run {run}: ");
        Ok(vec![
            self.kubectl(&wait, &[&met]).await?,
            self.kubectl(&["get", "defragd"], &all).await?,
            self.kubectl(
                &["describe", "defragpolicy", POLICY],
                &["RunCreated", &created],
            )
            .await?,
            self.kubectl(
                &["describe", "defrag", run],
                &["Owner References", POLICY, "3 of 3 members defragmented"],
            )
            .await?,
        ])
    }
}
