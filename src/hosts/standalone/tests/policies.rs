//! Targets and policies: documents, what is remembered, state files.

use super::*;

#[tokio::test]
async fn t45_what_is_remembered_survives_a_restart_and_a_removal() {
    let mut scene = Scene::new();
    scene.put("a.yaml", &format!("{TARGET}---\n{}", policy("p", "")));
    scene.sync().await;
    let before = scene.policy("p");
    assert!(before.spec.is_ok(), "{:?}", before.spec);
    scene
        .host()
        .record_policy(&before.on(), &report(&before, rested()))
        .await
        .unwrap();

    scene.restart();
    scene.sync().await;
    let after = scene.policy("p");
    assert_eq!(
        (&after.state, &after.uid, after.generation),
        (&rested(), &before.uid, 1)
    );

    scene.put("a.yaml", TARGET);
    scene.sync().await;
    assert_eq!(
        scene.host().policy_keys().len(),
        1,
        "a document that is missing for a moment is not removed"
    );
    scene.sync_later().await;
    assert!(scene.host().policy_keys().is_empty());
    assert!(inventory(&scene.state("")).unwrap().policies.is_empty());

    scene.restart();
    scene.put("b.yaml", &policy("p", ""));
    scene.sync().await;
    let again = scene.policy("p");
    assert_eq!(
        (&again.state, &again.uid),
        (&rested(), &before.uid),
        "the cooldown survives"
    );
}

#[tokio::test]
async fn t102_nothing_is_written_when_nothing_changed() {
    let mut scene = Scene::new();
    scene.put("a.yaml", &format!("{TARGET}---\n{}", policy("p", "")));
    scene.sync().await;
    let view = scene.policy("p");
    let written = |scene: &Scene| {
        fs::metadata(scene.state("policies/default_p.json"))
            .unwrap()
            .modified()
            .unwrap()
    };
    scene
        .host()
        .record_policy(&view.on(), &report(&view, rested()))
        .await
        .unwrap();
    let once = written(&scene);
    scene
        .host()
        .record_policy(&view.on(), &report(&view, rested()))
        .await
        .unwrap();
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
    scene.put(
        "a.yaml",
        &format!("{TARGET}---\n{}---\n{}", policy("p", ""), policy("q", "")),
    );
    scene.sync().await;
    let view = scene.policy("p");
    scene
        .host()
        .record_policy(&view.on(), &report(&view, rested()))
        .await
        .unwrap();
    scene.put(
        "a.yaml",
        &format!(
            "{TARGET}---\n{}---\n{}",
            policy("p", "  cooldown: 0s\n"),
            policy("q", "")
        ),
    );
    scene.sync().await;
    let bad = scene.policy("p");
    let error = bad.spec.as_ref().unwrap_err();
    assert!(
        error.contains("a.yaml:") && error.contains("spec.cooldown"),
        "{error}"
    );
    assert!(
        bad.generation > view.generation,
        "whoever works by it hears of it"
    );
    assert_eq!(bad.state, rested());
    assert!(scene.policy("q").spec.is_ok(), "the others go on");

    let ready = Note::new(Reason::InvalidSpec, error.clone());
    let told = PolicyReport {
        uid: bad.uid.clone(),
        generation: bad.generation,
        state: rested(),
        ready,
    };
    scene.host().record_policy(&bad.on(), &told).await.unwrap();
    let shown = scene.value("policies/default_p.json");
    let ready = shown["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["type"] == "Ready")
        .unwrap();
    assert_eq!(
        (&ready["status"], &ready["reason"]),
        (&"False".into(), &"InvalidSpec".into())
    );

    scene.put(
        "a.yaml",
        &format!("{TARGET}---\n{}---\n{}", policy("p", ""), policy("q", "")),
    );
    scene.sync().await;
    assert!(scene.policy("p").spec.is_ok());
}

#[tokio::test]
async fn a_corrupt_policy_file_stops_that_policy_and_no_other() {
    let mut scene = Scene::new();
    scene.put(
        "a.yaml",
        &format!("{}---\n{}", policy("p", ""), policy("q", "")),
    );
    scene.sync().await;
    let file = scene.state("policies/default_p.json");
    let newer = fs::read_to_string(&file)
        .unwrap()
        .replace("\"generation\"", "\"generation2\": 1, \"generation\"");
    fs::write(&file, &newer).unwrap();
    scene.restart();
    scene.sync().await;
    let p = scene.policy("p");
    let error = p.spec.as_ref().unwrap_err();
    assert!(
        error.contains("default_p.json") && error.contains("newer release"),
        "{error}"
    );
    assert!(
        scene
            .host()
            .record_policy(&p.on(), &report(&p, rested()))
            .await
            .is_err()
    );
    assert!(scene.policy("q").spec.is_ok());
    assert_eq!(fs::read_to_string(&file).unwrap(), newer, "left alone");

    fs::remove_file(&file).unwrap();
    scene.sync().await;
    let p = scene.policy("p");
    assert!(p.spec.is_ok(), "moved away: it starts over: {:?}", p.spec);
    scene
        .host()
        .record_policy(&p.on(), &report(&p, rested()))
        .await
        .unwrap();
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
    assert!(
        error.message.contains("unable to write")
            && error.message.contains("free or widen the disk"),
        "{error}"
    );
    assert!(scene.host().runs().unwrap().is_empty());
    let mut changes = scene.host().changes();
    changes.mark_unchanged();
    fs::remove_dir_all(&blocked).unwrap();
    scene.sync().await;
    assert!(
        changes.has_changed().unwrap(),
        "whoever waits for a change tries again"
    );
    assert_eq!(scene.create("p-1", "p").await.unwrap(), Created::New);
}
