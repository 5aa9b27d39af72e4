//! The host over real folders: what is stored, what is seen, what is refused.

mod policies;
mod runs;
mod whole;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;

use super::align::{self, RunFate, Situation};
use super::host::StandaloneHost;
use super::objects::{Folder, SETTLE, Snapshot};
use super::store::Store;
use super::stored::{Kind, StoredRun};
use super::sync::REMOVAL_GRACE;
use super::*;
use crate::core::decide::{ClusterState, LastRun, RunStart};
use crate::core::reason::Reason;
use crate::core::run::{Note, Phase, RunRecord};
use crate::engine::{Created, Host, NewRun, ObjectKey, PolicyReport, PolicyView, RunView, now};

const TARGET: &str = "apiVersion: defragd.dev/v1alpha1\nkind: EtcdTarget\nmetadata: {name: demo}\n\
                      spec: {endpoints: ['http://127.0.0.1:1']}\n";

fn policy(name: &str, more: &str) -> String {
    format!(
        "apiVersion: defragd.dev/v1alpha1\nkind: EtcdDefragPolicy\nmetadata: {{name: {name}}}\n\
         spec:\n  clusterRef: {{name: demo}}\n  signal: {{probe: {{}}}}\n{more}"
    )
}

fn run(name: &str, more: &str) -> String {
    format!(
        "apiVersion: defragd.dev/v1alpha1\nkind: EtcdDefrag\nmetadata: {{name: {name}}}\n\
         spec:\n  clusterRef: {{name: demo}}\n{more}"
    )
}

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        namespace: "default".into(),
        name: name.into(),
    }
}

struct Scene {
    root: TempDir,
    folder: Folder,
    host: Option<StandaloneHost>,
}

impl Scene {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("objects")).unwrap();
        let folder = Folder::new(&root.path().join("objects"));
        let mut scene = Scene {
            root,
            folder,
            host: None,
        };
        scene.restart();
        scene
    }

    fn state(&self, file: &str) -> PathBuf {
        self.root.path().join("state").join(file)
    }

    fn restart(&mut self) {
        self.host = None;
        let (store, loaded) = Store::open(&self.state("")).unwrap();
        self.host = Some(StandaloneHost::new(
            store,
            loaded,
            Arc::new(Telemetry::default()),
        ));
        self.folder = Folder::new(&self.root.path().join("objects"));
    }

    fn host(&self) -> &StandaloneHost {
        self.host.as_ref().unwrap()
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.root.path().join("objects").join(name), text).unwrap();
    }

    fn take_away(&self, name: &str) {
        fs::remove_file(self.root.path().join("objects").join(name)).unwrap();
    }

    /// Reads until nothing is being written, then takes it over.
    async fn sync(&mut self) {
        let snapshot = self.read().await;
        self.host().sync(&snapshot).await;
    }

    async fn read(&mut self) -> Snapshot {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let snapshot = self.folder.read();
            if !snapshot.unsettled {
                return snapshot;
            }
            assert!(Instant::now() < deadline, "the files never settle");
            tokio::time::sleep(SETTLE / 4).await;
        }
    }

    /// Syncs, and again as if the grace for missing documents had passed.
    async fn sync_later(&mut self) {
        self.sync().await;
        for since in self.host().inner().missing.values_mut() {
            *since -= REMOVAL_GRACE;
        }
        self.sync().await;
    }

    fn policy(&self, name: &str) -> Arc<PolicyView> {
        let found = self.host().policy_keys().into_iter();
        let found = found.filter(|on| on.policy == key(name));
        let found = found.filter_map(|on| self.host().policy(&on)).next();
        found.unwrap_or_else(|| panic!("no policy {name}"))
    }

    fn run(&self, name: &str) -> Arc<RunView> {
        let found = self.host().run(&key(name)).unwrap();
        found.unwrap_or_else(|| panic!("no run {name}"))
    }

    async fn create(&self, name: &str, policy: &str) -> Result<Created, crate::engine::HostError> {
        let new = NewRun {
            name: name.to_owned(),
            policy: (*self.policy(policy)).clone(),
            cause: Note::new(Reason::SignalFiring, "fires"),
            created_at: now(),
        };
        self.host().create_run(new).await
    }

    fn value(&self, file: &str) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.state(file)).unwrap()).unwrap()
    }
}

fn report(policy: &PolicyView, state: ClusterState) -> PolicyReport {
    PolicyReport {
        uid: policy.uid.clone(),
        generation: policy.generation,
        state,
        ready: Note::new(Reason::Accepted, Reason::Accepted.sentence()),
    }
}

fn rested() -> ClusterState {
    ClusterState {
        last_run: Some(LastRun {
            name: "old".to_owned(),
            succeeded: true,
            reason: Reason::SweepComplete,
            reclaimed: Some(7),
            finished_at: Timestamp::from_millisecond(1_700_000_000_123).unwrap(),
            own: true,
            touched: true,
        }),
        backoff_level: 2,
        decision: Some(Note::new(Reason::CoolingDown, "rests")),
        ..ClusterState::default()
    }
}
