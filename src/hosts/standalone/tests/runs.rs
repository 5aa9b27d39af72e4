//! Runs: who makes them, what may change, how they end.

use super::*;

#[tokio::test]
async fn a_half_written_file_cancels_no_run_and_removes_nothing() {
    let mut scene = Scene::new();
    scene.put(
        "a.yaml",
        &format!(
            "{TARGET}---\n{}---\n{}",
            policy("p", ""),
            run("r", "  suspend: true\n")
        ),
    );
    scene.sync().await;
    scene.put(
        "a.yaml",
        &format!("{TARGET}---\napiVersion: defragd.dev/v1alp"),
    );
    for restart in [false, true] {
        if restart {
            scene.restart();
        }
        scene.sync_later().await;
        let r = scene.run("r");
        assert!(!r.deleting && r.spec.is_ok(), "{r:?}");
        let p = scene.policy("p");
        assert!(
            p.spec
                .as_ref()
                .unwrap_err()
                .contains("counts as it was before"),
            "{:?}",
            p.spec
        );
    }
}

#[tokio::test]
async fn r77_a_removed_run_ends_and_a_new_one_may_take_its_name() {
    let mut scene = Scene::new();
    scene.put("r.yaml", &run("r", ""));
    scene.sync().await;
    assert!(
        !scene.run("r").removable,
        "its file would make it start again"
    );
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
    let record = RunRecord {
        phase: Phase::Running,
        started_at: Some(now()),
        ..RunRecord::default()
    };
    scene
        .host()
        .record_run(&key("r"), 1, &record)
        .await
        .unwrap();

    scene.put("r.yaml", &run("r", "  leader: Skip\n  suspend: true\n"));
    scene.sync().await;
    let view = scene.run("r");
    assert_eq!(view.record, record);
    let spec = view.spec.as_ref().unwrap();
    assert_eq!(
        (spec.leader, spec.suspend),
        (crate::core::run::LeaderMode::Move, false)
    );
    assert!(
        scene
            .value("runs/default_r.json")
            .to_string()
            .contains("cannot change but for suspend")
    );

    scene.put(
        "r.yaml",
        &run(
            "r",
            "  leader: Move\n  suspend: true\n  ttlSecondsAfterFinished: 5\n",
        ),
    );
    scene.sync().await;
    let view = scene.run("r");
    let spec = view.spec.as_ref().unwrap();
    assert!(spec.suspend && spec.ttl_after_finished == Some(SignedDuration::from_secs(5)));
    assert_eq!((view.generation, &view.record), (2, &record));
    assert!(
        !scene
            .value("runs/default_r.json")
            .to_string()
            .contains("cannot change but for suspend")
    );
}

#[tokio::test]
async fn a_run_that_was_never_valid_is_shown_and_is_no_run() {
    let mut scene = Scene::new();
    scene.put("r.yaml", &run("r", "  activeDeadline: soon\n"));
    scene.sync().await;
    assert!(scene.host().runs().unwrap().is_empty());
    let shown = &inventory(&scene.state("")).unwrap().runs[0];
    assert_eq!(shown.status.reason.as_deref(), Some("InvalidSpec"));
    assert!(
        shown.status.message.as_deref().unwrap().contains("r.yaml:"),
        "{:?}",
        shown.status.message
    );

    scene.put("r.yaml", &run("r", "  activeDeadline: 10m\n"));
    scene.sync().await;
    assert_eq!(scene.run("r").record.phase, Phase::Pending);

    scene.put("r2.yaml", &run("r2", "  activeDeadline: soon\n"));
    scene.sync().await;
    scene.take_away("r2.yaml");
    scene.sync_later().await;
    assert_eq!(
        inventory(&scene.state("")).unwrap().runs.len(),
        1,
        "nothing is left of it"
    );
}

#[tokio::test]
async fn t46_a_run_is_made_once_and_adopted_after_that() {
    let mut scene = Scene::new();
    let more = "  runTemplate: {rule: {all: true}, leader: Skip}\n";
    scene.put(
        "a.yaml",
        &format!(
            "{}---\n{}---\n{}",
            policy("p", more),
            policy("q", ""),
            run("mine", "")
        ),
    );
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
    assert_eq!(
        view.spec.as_ref().unwrap().leader,
        crate::core::run::LeaderMode::Skip
    );
    assert!(view.removable && !view.deleting);
    let file = scene.value("runs/default_p-1.json");
    assert_eq!(
        file["metadata"]["ownerReferences"][0]["kind"],
        "EtcdDefragPolicy"
    );
    assert_eq!(
        file["metadata"]["annotations"]["defragd.dev/cause"],
        "SignalFiring: fires"
    );

    // A document cannot take over a policy's run.
    scene.put("b.yaml", &run("p-1", "  dryRun: true\n"));
    scene.sync().await;
    assert!(!scene.run("p-1").spec.as_ref().unwrap().dry_run);
    let problems = inventory(&scene.state("")).unwrap().documents;
    assert!(
        problems[0].contains("b.yaml:1") && problems[0].contains("policy p"),
        "{problems:?}"
    );

    scene.host().remove_run(&key("p-1")).await.unwrap();
    assert!(
        scene
            .host()
            .runs()
            .unwrap()
            .iter()
            .all(|run| run.key != key("p-1"))
    );
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
async fn t60_runs_of_removed_policies_still_count_for_the_administrators_limit() {
    let mut scene = Scene::new();
    scene.put("a.yaml", &policy("p", ""));
    scene.sync().await;
    let at = now();
    let state = ClusterState {
        run_starts: vec![RunStart {
            name: "p-1".to_owned(),
            at,
        }],
        ..ClusterState::default()
    };
    let remembered = report(&scene.policy("p"), state);
    scene
        .host()
        .record_policy(&scene.policy("p").on(), &remembered)
        .await
        .unwrap();
    scene.take_away("a.yaml");
    scene.sync_later().await;
    assert!(scene.host().policy_keys().is_empty());
    scene.restart();
    assert_eq!(scene.host().forgotten_runs(), [(key("p-1"), at)]);
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
    assert_eq!(
        scene.create("p-2", "p").await.unwrap_err().reason,
        Reason::RunsUnreadable
    );
    assert_eq!(inventory(&scene.state("")).unwrap().unusable.len(), 1);
    assert_eq!(fs::read(&file).unwrap().len(), good.len() / 2, "left alone");

    fs::write(&file, &good).unwrap();
    scene.sync().await;
    assert_eq!(scene.run("p-1").owner, Some(key("p")));
    assert_eq!(scene.create("p-1", "p").await.unwrap(), Created::Adopted);
}

#[test]
fn a_run_without_a_document_never_appears() {
    let at = Timestamp::UNIX_EPOCH;
    for situation in [Situation::Gone, Situation::Doubt("the file cannot be read")] {
        assert_eq!(align::run(&key("r"), None, situation, at), RunFate::None);
    }
    let made = StoredRun::new(Kind::Run, &key("r"), None, at);
    assert_eq!(
        align::run(&key("r"), Some(&made), Situation::Gone, at),
        RunFate::None,
        "a policy's run"
    );
}
