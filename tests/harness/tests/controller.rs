//! How the harness starts, stops and asks a controller. What stands in for one here is etcd behind
//! a script with the controller's flags: it has the same pages.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use defragd_harness::{Controller, Error, EtcdVersion, eventually};

const SECONDS: Duration = Duration::from_secs(20);

/// Says what it was given, and ends at once when it is told to fail.
fn script(etcd: &Path) -> String {
    format!(
        r#"#!/bin/sh
echo "$1 $4 $5 KUBECONFIG=$KUBECONFIG POD=$POD_NAMESPACE/$POD_NAME"
[ -z "$FAIL" ] || exit "$FAIL"
exec {} --data-dir "$DATA" --unsafe-no-fsync --listen-peer-urls http://127.0.0.1:0 \
    --listen-client-urls "http://$3" --advertise-client-urls "http://$3"
"#,
        etcd.display()
    )
}

async fn stand_in(folder: &Path) -> Result<Controller, Error> {
    let program = folder.join("defragd");
    std::fs::write(&program, script(&EtcdVersion::V3_6.etcd().await?))
        .and_then(|()| std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)))
        .expect("a file of the test's own");
    Ok(Controller::new(program, Path::new("/nowhere/kubeconfig"))
        .env("DATA", folder.join("data"))
        .pod("defragd-system", "defragd-0")
        .args(["--namespace", "team"]))
}

#[tokio::test]
async fn a_controller_is_started_asked_frozen_killed_and_started_again() -> Result<(), Error> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let controller = stand_in(folder.path()).await?.start().await?;
    let said = "controller --namespace team \
                KUBECONFIG=/nowhere/kubeconfig POD=defragd-system/defragd-0";
    assert!(
        controller.logged().contains(said),
        "{}",
        controller.logged()
    );
    let leads = controller.metric("etcd_server_has_leader").await?;
    assert_eq!(leads, Some(1.0));
    assert_eq!(controller.metric("etcd_server_has").await?, None);

    controller.pause()?;
    let limit = Duration::from_millis(500);
    let silent = tokio::time::timeout(limit, controller.metrics()).await;
    assert!(silent.is_err(), "{silent:?}");
    controller.resume()?;
    eventually(SECONDS, "an answer", async || controller.metrics().await).await?;

    controller.kill()?;
    assert_eq!(controller.pid(), None);
    assert!(controller.check().is_err());
    controller.start_again().await?;
    assert_eq!(controller.logged().matches(said).count(), 2);
    let ended = controller.stop().await?;
    assert!(ended.is_some(), "it had to be killed");
    Ok(())
}

#[tokio::test]
async fn the_end_of_a_controller_is_seen() -> Result<(), Error> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let failing = stand_in(folder.path()).await?.env("FAIL", "3");
    let ended = failing.clone().start().await.expect_err("it ends at once");
    let message = ended.to_string();
    assert!(message.contains("exit status: 3"), "{message}");
    assert!(message.contains("controller --namespace team"), "{message}");

    let launched = failing.launch()?;
    let status = launched.await_end(SECONDS).await?;
    assert_eq!((status.code(), status.signal()), (Some(3), None));
    assert!(launched.check().is_err());
    assert!(launched.log_tail().contains("defragd-0"));
    Ok(())
}
