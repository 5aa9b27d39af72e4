//! Files that are broken, foreign, locked, or cannot be written.

use std::fs;
use std::process::Command;
use std::time::Duration;

use defragd_harness::{Defragd, Error, Status, eventually};
use serde_json::json;

use crate::support::{MIB, World, defragd, policy, target, until};

/// T51: while a run's file cannot be read nobody knows what goes on, so nothing is created; the file is
/// left as it is. A second process is kept out meanwhile.
#[tokio::test]
async fn a_corrupt_run_file_stops_creation_and_is_left_alone() -> Result<(), Error> {
    let world = World::small().await?;
    let defragd = &world.defragd;
    world.cluster.fragment(40 * MIB, 2 * MIB).await?;
    let runs = defragd.state().join("runs");
    fs::create_dir_all(&runs).expect("a folder can be made");
    let broken = runs.join("default_broken.json");
    let content = "{\"apiVersion\": \"defragd.dev/v1alpha1\", \"kind\": \"EtcdDe";
    fs::write(&broken, content).expect("a file can be written");
    world.play(&[policy("careful", json!({}))]).await?;
    let status = world
        .until("the refusal", |s| s.decision("careful") == "RunsUnreadable")
        .await?;
    let message = status.policy("careful")["decision"]["message"].to_string();
    assert!(message.contains("default_broken.json"), "{message}");
    assert!(
        status.0["stateErrors"]
            .to_string()
            .contains("default_broken.json"),
        "{status:#?}"
    );
    let text = defragd.status_text().await?;
    assert!(
        text.contains("default_broken.json") && text.contains("RunsUnreadable"),
        "{text}"
    );
    assert!(defragd.logged().contains("default_broken.json"));
    let status = world.after_polls(3.0).await?;
    assert_eq!(status.runs().len(), 0, "{status:#?}");
    assert_eq!(
        fs::read_to_string(&broken).expect("it is still there"),
        content
    );

    let second = second_process(defragd).await;
    let pid = defragd.pid().unwrap_or_default().to_string();
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        said.contains("in use by the process") && said.contains(&pid),
        "{said}"
    );
    defragd.check()?;

    // What the message says helps.
    fs::rename(&broken, defragd.folder().join("moved-away.json")).expect("it can be moved");
    world
        .until("the run to end", Status::one_is_complete)
        .await?;
    assert_eq!(world.counts().await?, [1.0]);
    Ok(())
}

async fn second_process(first: &Defragd) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_defragd"));
    command
        .arg("standalone")
        .arg("--objects")
        .arg(first.objects())
        .arg("--state")
        .arg(first.state());
    tokio::task::spawn_blocking(move || command.output())
        .await
        .expect("the thread ends")
        .expect("the binary can be started")
}

/// A bad document is told with file, line and field, and the good ones beside it work; also when it
/// turns bad later.
#[tokio::test]
async fn a_bad_document_does_not_stop_the_others() -> Result<(), Error> {
    let defragd = defragd()?;
    // Nobody listens there.
    let target = target("demo", &["http://127.0.0.1:9".to_owned()]);
    let probe = json!({ "probe": { "rule": { "all": true } } });
    let good = policy("good", json!({ "signal": probe }));
    let bad = "apiVersion: defragd.dev/v1alpha1\nkind: EtcdDefragPolicy\nmetadata: {name: bad}\nspec:\n  \
               clusterRef: {name: demo}\n  cooldwon: 1h\n  signal: {probe: {rule: {all: true}}}\n";
    defragd.put("mixed.yaml", &format!("{target}\n---\n{bad}---\n{good}\n"))?;
    defragd.put("broken.yaml", "a: [1, 2\n")?;
    defragd.start().await?;
    let evaluated = |s: &defragd_harness::Status| s.decision("good") == "ProbeFailed";
    let status = until(&defragd, "the good policy to be evaluated", evaluated).await?;
    let everything = status.0.to_string();
    for words in ["mixed.yaml:8", "spec.cooldwon", "cooldown", "broken.yaml"] {
        assert!(everything.contains(words), "no {words:?} in {everything}");
    }
    let text = defragd.status_text().await?;
    assert!(
        text.contains("mixed.yaml:8") && text.contains("broken.yaml"),
        "{text}"
    );

    // A typing error in a policy that was good keeps it, with its error, and starts nothing.
    defragd.put(
        "mixed.yaml",
        &format!(
            "{target}\n---\n{}\n",
            good.to_string().replace("1h", "1 hour")
        ),
    )?;
    let refused = |s: &defragd_harness::Status| {
        s.condition("EtcdDefragPolicy", "good", "Ready") == Some(("False", "InvalidSpec"))
    };
    until(&defragd, "the policy to be refused", refused).await?;
    defragd.put("mixed.yaml", &format!("{target}\n---\n{good}\n"))?;
    until(&defragd, "the policy to be good again", |s| {
        s.condition("EtcdDefragPolicy", "good", "Ready") == Some(("True", "Accepted"))
    })
    .await?;
    Ok(())
}

/// A full disk: what cannot be announced is not done; it goes on once there is room. The log's file is
/// on the same disk. (The limit on the size of files stands in for the disk: any user can set it.)
#[tokio::test]
async fn nothing_is_done_while_the_state_cannot_be_written() -> Result<(), Error> {
    let world = World::small().await?;
    let defragd = &world.defragd;
    world.cluster.fragment(40 * MIB, 2 * MIB).await?;
    world
        .play(&[policy("thrifty", json!({ "for": "3s" }))])
        .await?;
    world
        .until("`for` to hold", |s| s.decision("thrifty") == "HoldingFor")
        .await?;
    defragd.limit_files(Some(0))?;
    let failed = "defragd_state_writes_total{result=\"failed\"}";
    eventually(Duration::from_secs(30), "writes to fail", async || {
        let count = defragd.metric(failed).await.ok().flatten();
        count.is_some_and(|count| count > 1.0)
    })
    .await?;
    let status = world.after_polls(4.0).await?;
    assert_eq!(status.runs().len(), 0, "{status:#?}");
    assert_eq!(
        world.counts().await?,
        [0.0],
        "nothing is done that was not announced"
    );
    defragd.page("/healthz").await?;

    defragd.limit_files(None)?;
    world
        .until("the run to end", Status::one_is_complete)
        .await?;
    assert_eq!(world.counts().await?, [1.0]);
    Ok(())
}

/// A state folder that cannot be used ends the start with its path and the remedy. (Root may write
/// into read-only folders, so a file stands in the folder's place.)
#[tokio::test]
async fn a_state_folder_that_cannot_be_used_is_named() -> Result<(), Error> {
    let defragd = defragd()?;
    fs::write(defragd.state(), "not a folder").expect("a file can be written");
    let output = second_process(&defragd).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("state") && said.contains("must exist or be creatable"),
        "{said}"
    );
    assert!(!said.contains("panicked"), "{said}");
    Ok(())
}
