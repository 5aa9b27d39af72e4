//! The host over real folders: what is stored, what is seen, what is refused.

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
use crate::core::decide::{ClusterState, LastRun};
use crate::core::reason::Reason;
use crate::core::run::{Note, Phase, RunRecord};
use crate::engine::{Created, Host, NewRun, ObjectKey, PolicyReport, PolicyView, RunView, now};
use crate::hosts::config::Limits;

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
    ObjectKey { namespace: "default".to_owned(), name: name.to_owned() }
}

struct Scene {
    root: TempDir,
    folder: Folder,
    host: Option<StandaloneHost>,
    limits: Limits,
}

impl Scene {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("objects")).unwrap();
        let folder = Folder::new(&root.path().join("objects"));
        let mut scene = Scene { root, folder, host: None, limits: Limits::default() };
        scene.restart();
        scene
    }

    fn state(&self, file: &str) -> PathBuf {
        self.root.path().join("state").join(file)
    }

    fn restart(&mut self) {
        self.host = None;
        let (store, loaded) = Store::open(&self.state("")).unwrap();
        self.host = Some(StandaloneHost::new(store, loaded, self.limits, Arc::new(Telemetry::default())));
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
        let found = self.host().policies().into_iter().find(|p| p.key == key(name));
        found.unwrap_or_else(|| panic!("no policy {name}"))
    }

    fn run(&self, name: &str) -> Arc<RunView> {
        let found = self.host().runs().unwrap().into_iter().find(|r| r.key == key(name));
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

#[tokio::test]
async fn t45_what_is_remembered_survives_a_restart_and_a_removal() {
    let mut scene = Scene::new();
    scene.put("a.yaml", &format!("{TARGET}---\n{}", policy("p", "")));
    scene.sync().await;
    let before = scene.policy("p");
    assert!(before.spec.is_ok(), "{:?}", before.spec);
    scene.host().record_policy(&before.key, &report(&before, rested())).await.unwrap();

    scene.restart();
    scene.sync().await;
    let after = scene.policy("p");
    assert_eq!((&after.state, &after.uid, after.generation), (&rested(), &before.uid, 1));

    scene.put("a.yaml", TARGET);
    scene.sync().await;
    assert_eq!(scene.host().policies().len(), 1, "a document that is missing for a moment is not removed");
    scene.sync_later().await;
    assert!(scene.host().policies().is_empty());
    assert!(inventory(&scene.state("")).unwrap().policies.is_empty());

    scene.restart();
    scene.put("b.yaml", &policy("p", ""));
    scene.sync().await;
    let again = scene.policy("p");
    assert_eq!((&again.state, &again.uid), (&rested(), &before.uid), "the cooldown survives");
}

#[tokio::test]
async fn t102_nothing_is_written_when_nothing_changed() {
    let mut scene = Scene::new();
    scene.put("a.yaml", &format!("{TARGET}---\n{}", policy("p", "")));
    scene.sync().await;
    let view = scene.policy("p");
    let written = |scene: &Scene| fs::metadata(scene.state("policies/default_p.json")).unwrap().modified().unwrap();
    scene.host().record_policy(&view.key, &report(&view, rested())).await.unwrap();
    let once = written(&scene);
    scene.host().record_policy(&view.key, &report(&view, rested())).await.unwrap();
    scene.sync().await;
    assert_eq!(written(&scene), once);
}

#[tokio::test]
async fn t56_the_generation_grows_with_the_spec_only() {
    let mut scene = Scene::new();
    scene.put("a.yaml", &policy("p", ""));
    scene.sync().await;
    assert_eq!(scene.policy("p").generation, 1);
    scene.put("a.yaml", &format!("# a comment\n{}", policy("p", "")));
    scene.sync().await;
    assert_eq!(scene.policy("p").generation, 1);
    scene.put("a.yaml", &policy("p", "  suspend: true\n"));
    scene.restart();
    scene.sync().await;
    assert_eq!(scene.policy("p").generation, 2);
    scene.restart();
    scene.sync().await;
    assert_eq!(scene.policy("p").generation, 2);
}

#[tokio::test]
async fn a_document_that_became_bad_starts_nothing_and_loses_nothing() {
    let mut scene = Scene::new();
    scene.put("a.yaml", &format!("{TARGET}---\n{}---\n{}", policy("p", ""), policy("q", "")));
    scene.sync().await;
    let view = scene.policy("p");
    scene.host().record_policy(&view.key, &report(&view, rested())).await.unwrap();
    scene.put("a.yaml", &format!("{TARGET}---\n{}---\n{}", policy("p", "  cooldown: 0s\n"), policy("q", "")));
    scene.sync().await;
    let bad = scene.policy("p");
    let error = bad.spec.as_ref().unwrap_err();
    assert!(error.contains("a.yaml:") && error.contains("spec.cooldown"), "{error}");
    assert!(bad.generation > view.generation, "whoever works by it hears of it");
    assert_eq!(bad.state, rested());
    assert!(scene.policy("q").spec.is_ok(), "the others go on");

    let ready = Note::new(Reason::InvalidSpec, error.clone());
    let told = PolicyReport { generation: bad.generation, state: rested(), ready };
    scene.host().record_policy(&bad.key, &told).await.unwrap();
    let shown = scene.value("policies/default_p.json");
    let ready = shown["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
    assert_eq!((&ready["status"], &ready["reason"]), (&"False".into(), &"InvalidSpec".into()));

    scene.put("a.yaml", &format!("{TARGET}---\n{}---\n{}", policy("p", ""), policy("q", "")));
    scene.sync().await;
    assert!(scene.policy("p").spec.is_ok());
}

#[tokio::test]
async fn a_half_written_file_cancels_no_run_and_removes_nothing() {
    let mut scene = Scene::new();
    scene.put("a.yaml", &format!("{TARGET}---\n{}---\n{}", policy("p", ""), run("r", "  suspend: true\n")));
    scene.sync().await;
    scene.put("a.yaml", &format!("{TARGET}---\napiVersion: defragd.dev/v1alp"));
    for restart in [false, true] {
        if restart {
            scene.restart();
        }
        scene.sync_later().await;
        let r = scene.run("r");
        assert!(!r.deleting && r.spec.is_ok(), "{r:?}");
        let p = scene.policy("p");
        assert!(p.spec.as_ref().unwrap_err().contains("counts as it was before"), "{:?}", p.spec);
    }
}

#[tokio::test]
async fn r77_a_removed_run_ends_and_a_new_one_may_take_its_name() {
    let mut scene = Scene::new();
    scene.put("r.yaml", &run("r", ""));
    scene.sync().await;
    assert!(!scene.run("r").removable, "its file would make it start again");
    scene.host().remove_run(&key("r")).await.unwrap();
    assert_eq!(scene.run("r").key, key("r"));

    scene.take_away("r.yaml");
    scene.sync().await;
    assert!(!scene.run("r").deleting, "not at once");
    scene.sync_later().await;
    assert!(scene.run("r").deleting);
    scene.restart();
    assert!(scene.run("r").deleting, "that is stored");
    let uid = scene.value("runs/default_r.json")["metadata"]["uid"].clone();
    scene.put("r.yaml", &run("r", "  dryRun: true\n"));
    scene.sync().await;
    assert!(scene.run("r").deleting, "the old one has to end first");
    scene.host().remove_run(&key("r")).await.unwrap();
    assert!(!scene.state("runs/default_r.json").exists());
    scene.sync().await;
    assert!(!scene.run("r").deleting);
    assert_ne!(scene.value("runs/default_r.json")["metadata"]["uid"], uid);
}

#[tokio::test]
async fn the_spec_of_a_run_is_immutable_but_for_suspend_and_ttl() {
    let mut scene = Scene::new();
    scene.put("r.yaml", &run("r", "  leader: Move\n"));
    scene.sync().await;
    let record = RunRecord { phase: Phase::Running, started_at: Some(now()), ..RunRecord::default() };
    scene.host().record_run(&key("r"), 1, &record).await.unwrap();

    scene.put("r.yaml", &run("r", "  leader: Skip\n  suspend: true\n"));
    scene.sync().await;
    let view = scene.run("r");
    assert_eq!(view.record, record);
    let spec = view.spec.as_ref().unwrap();
    assert_eq!((spec.leader, spec.suspend), (crate::core::run::LeaderMode::Move, false));
    assert!(scene.value("runs/default_r.json").to_string().contains("cannot change but for suspend"));

    scene.put("r.yaml", &run("r", "  leader: Move\n  suspend: true\n  ttlSecondsAfterFinished: 5\n"));
    scene.sync().await;
    let view = scene.run("r");
    let spec = view.spec.as_ref().unwrap();
    assert!(spec.suspend && spec.ttl_after_finished == Some(SignedDuration::from_secs(5)));
    assert_eq!((view.generation, &view.record), (2, &record));
    assert!(!scene.value("runs/default_r.json").to_string().contains("cannot change but for suspend"));
}

#[tokio::test]
async fn a_run_that_was_never_valid_is_shown_and_is_no_run() {
    let mut scene = Scene::new();
    scene.put("r.yaml", &run("r", "  activeDeadline: soon\n"));
    scene.sync().await;
    assert!(scene.host().runs().unwrap().is_empty());
    let shown = &inventory(&scene.state("")).unwrap().runs[0];
    assert_eq!(shown.status.reason.as_deref(), Some("InvalidSpec"));
    assert!(shown.status.message.as_deref().unwrap().contains("r.yaml:"), "{:?}", shown.status.message);

    scene.put("r.yaml", &run("r", "  activeDeadline: 10m\n"));
    scene.sync().await;
    assert_eq!(scene.run("r").record.phase, Phase::Pending);

    scene.put("r2.yaml", &run("r2", "  activeDeadline: soon\n"));
    scene.sync().await;
    scene.take_away("r2.yaml");
    scene.sync_later().await;
    assert_eq!(inventory(&scene.state("")).unwrap().runs.len(), 1, "nothing is left of it");
}

#[tokio::test]
async fn t46_a_run_is_made_once_and_adopted_after_that() {
    let mut scene = Scene::new();
    let more = "  runTemplate: {rule: {all: true}, leader: Skip}\n";
    scene.put("a.yaml", &format!("{}---\n{}---\n{}", policy("p", more), policy("q", ""), run("mine", "")));
    scene.sync().await;
    assert_eq!(scene.create("p-1", "p").await.unwrap(), Created::New);
    assert_eq!(scene.create("p-1", "p").await.unwrap(), Created::Adopted);
    assert_eq!(scene.create("p-1", "q").await.unwrap(), Created::Conflict);
    assert_eq!(scene.create("mine", "p").await.unwrap(), Created::Conflict);
    scene.restart();
    scene.sync().await;
    assert_eq!(scene.create("p-1", "p").await.unwrap(), Created::Adopted);
    let view = scene.run("p-1");
    assert_eq!(view.owner, Some(key("p")));
    assert_eq!(view.spec.as_ref().unwrap().leader, crate::core::run::LeaderMode::Skip);
    assert!(view.removable && !view.deleting);
    let file = scene.value("runs/default_p-1.json");
    assert_eq!(file["metadata"]["ownerReferences"][0]["kind"], "EtcdDefragPolicy");
    assert_eq!(file["metadata"]["annotations"]["defragd.dev/cause"], "SignalFiring: fires");

    // A document cannot take over a policy's run.
    scene.put("b.yaml", &run("p-1", "  dryRun: true\n"));
    scene.sync().await;
    assert!(!scene.run("p-1").spec.as_ref().unwrap().dry_run);
    let problems = inventory(&scene.state("")).unwrap().documents;
    assert!(problems[0].contains("b.yaml:1") && problems[0].contains("policy p"), "{problems:?}");

    scene.host().remove_run(&key("p-1")).await.unwrap();
    assert!(scene.host().runs().unwrap().iter().all(|run| run.key != key("p-1")));
}

#[tokio::test]
async fn a_policy_edited_since_it_was_evaluated_makes_no_run() {
    let mut scene = Scene::new();
    scene.put("a.yaml", &policy("p", ""));
    scene.sync().await;
    let old = scene.policy("p");
    scene.put("a.yaml", &policy("p", "  suspend: true\n"));
    scene.sync().await;
    let new = NewRun {
        name: "p-1".to_owned(),
        policy: (*old).clone(),
        cause: Note::new(Reason::SignalFiring, "fires"),
        created_at: now(),
    };
    let error = scene.host().create_run(new).await.unwrap_err();
    assert!(error.message.contains("changed meanwhile"), "{error}");
}

#[tokio::test]
async fn the_administrators_limit_counts_runs_of_all_policies() {
    let mut scene = Scene::new();
    scene.limits.runs_per_hour = std::num::NonZeroU32::new(2);
    scene.restart();
    scene.put("a.yaml", &format!("{}---\n{}", policy("p", ""), policy("q", "")));
    scene.sync().await;
    assert_eq!(scene.create("p-1", "p").await.unwrap(), Created::New);
    assert_eq!(scene.create("q-1", "q").await.unwrap(), Created::New);
    let error = scene.create("q-2", "q").await.unwrap_err();
    assert!(error.message.contains("limits.runsPerHour is 2"), "{error}");
}

#[tokio::test]
async fn t51_a_corrupt_run_file_means_that_nothing_is_created_until_it_is_mended() {
    let mut scene = Scene::new();
    scene.put("a.yaml", &policy("p", ""));
    scene.sync().await;
    scene.create("p-1", "p").await.unwrap();
    let file = scene.state("runs/default_p-1.json");
    let good = fs::read(&file).unwrap();
    fs::write(&file, &good[..good.len() / 2]).unwrap();
    scene.restart();
    scene.sync().await;
    let error = scene.host().runs().unwrap_err();
    assert_eq!(error.reason, Reason::RunsUnreadable);
    assert!(error.message.contains("default_p-1.json"), "{error}");
    assert_eq!(scene.create("p-2", "p").await.unwrap_err().reason, Reason::RunsUnreadable);
    assert_eq!(inventory(&scene.state("")).unwrap().unusable.len(), 1);
    assert_eq!(fs::read(&file).unwrap().len(), good.len() / 2, "left alone");

    fs::write(&file, &good).unwrap();
    scene.sync().await;
    assert_eq!(scene.run("p-1").owner, Some(key("p")));
    assert_eq!(scene.create("p-1", "p").await.unwrap(), Created::Adopted);
}

#[tokio::test]
async fn a_corrupt_policy_file_stops_that_policy_and_no_other() {
    let mut scene = Scene::new();
    scene.put("a.yaml", &format!("{}---\n{}", policy("p", ""), policy("q", "")));
    scene.sync().await;
    let file = scene.state("policies/default_p.json");
    let newer = fs::read_to_string(&file).unwrap().replace("\"generation\"", "\"generation2\": 1, \"generation\"");
    fs::write(&file, &newer).unwrap();
    scene.restart();
    scene.sync().await;
    let p = scene.policy("p");
    let error = p.spec.as_ref().unwrap_err();
    assert!(error.contains("default_p.json") && error.contains("newer release"), "{error}");
    assert!(scene.host().record_policy(&p.key, &report(&p, rested())).await.is_err());
    assert!(scene.policy("q").spec.is_ok());
    assert_eq!(fs::read_to_string(&file).unwrap(), newer, "left alone");

    fs::remove_file(&file).unwrap();
    scene.sync().await;
    let p = scene.policy("p");
    assert!(p.spec.is_ok(), "moved away: it starts over: {:?}", p.spec);
    scene.host().record_policy(&p.key, &report(&p, rested())).await.unwrap();
}

#[tokio::test]
async fn a_state_that_cannot_be_written_stops_what_it_must_and_goes_on_afterwards() {
    let mut scene = Scene::new();
    scene.put("a.yaml", &policy("p", ""));
    scene.sync().await;
    // A folder in the place of the run's file: no user, not even root, can write it.
    let blocked = scene.state("runs/default_p-1.json");
    fs::create_dir_all(blocked.join("x")).unwrap();
    let error = scene.create("p-1", "p").await.unwrap_err();
    assert!(error.message.contains("unable to write") && error.message.contains("free or widen the disk"), "{error}");
    assert!(scene.host().runs().unwrap().is_empty());
    let mut changes = scene.host().changes();
    changes.mark_unchanged();
    fs::remove_dir_all(&blocked).unwrap();
    scene.sync().await;
    assert!(changes.has_changed().unwrap(), "whoever waits for a change tries again");
    assert_eq!(scene.create("p-1", "p").await.unwrap(), Created::New);
}

#[test]
fn a_run_without_a_document_never_appears() {
    let at = Timestamp::UNIX_EPOCH;
    for situation in [Situation::Gone, Situation::Doubt("the file cannot be read")] {
        assert_eq!(align::run(&key("r"), None, situation, at), RunFate::None);
    }
    let made = StoredRun::new(Kind::Run, &key("r"), None, at);
    assert_eq!(align::run(&key("r"), Some(&made), Situation::Gone, at), RunFate::None, "a policy's run");
}

async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not happen in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_host_starts_records_serves_and_stops() {
    // The second installation in one process is refused, which is fine.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let root = tempfile::tempdir().unwrap();
    let (objects, state) = (root.path().join("objects"), root.path().join("state"));
    fs::create_dir(&objects).unwrap();
    fs::write(objects.join("a.yaml"), format!("{TARGET}---\n{}", policy("p", "  interval: 1s\n"))).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let stop = CancellationToken::new();
    let running =
        tokio::spawn(super::run(Config::default(), objects.clone(), state.clone(), Some(port), stop.clone()));

    let decided = until("the policy's decision", || {
        let inventory = inventory(&state).ok()?;
        let policy = inventory.policies.first()?;
        policy.status.clusters.first()?.decision.clone()
    })
    .await;
    assert_eq!(decided.reason, "ProbeFailed", "nobody answers at the endpoint: {decided:?}");
    until("the target's condition", || {
        let inventory = inventory(&state).ok()?;
        let target = inventory.targets.first()?;
        target.status.conditions.iter().find(|c| c.type_ == "Ready").map(drop)
    })
    .await;

    let error =
        super::run(Config::default(), objects.clone(), state.clone(), None, CancellationToken::new()).await.unwrap_err();
    assert!(error.to_string().contains("in use by the process"), "{error}");

    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for page in ["healthz", "readyz"] {
        let answer = client.get(format!("http://{port}/{page}")).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{page}");
    }
    let answer = client.get(format!("http://{port}/metrics")).send().await.unwrap().text().await.unwrap();
    assert!(answer.contains("defragd_policy_signal_state{namespace=\"default\",name=\"p\",state=\"Error\"} 1"), "{answer}");

    // A new document is noticed without a restart; one that goes takes its series along.
    fs::write(objects.join("b.yaml"), policy("second", "")).unwrap();
    until("the second policy", || inventory(&state).ok().filter(|i| i.policies.len() == 2)).await;
    fs::remove_file(objects.join("a.yaml")).unwrap();
    until("the first policy's end", || inventory(&state).ok().filter(|i| i.policies.len() == 1)).await;

    stop.cancel();
    tokio::time::timeout(Duration::from_secs(30), running).await.unwrap().unwrap().unwrap();
}
