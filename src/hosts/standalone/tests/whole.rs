//! The whole host, started and stopped.

use super::*;

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
    fs::write(
        objects.join("a.yaml"),
        format!("{TARGET}---\n{}", policy("p", "  interval: 1s\n")),
    )
    .unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(crate::hosts::standalone::run(
        Config::default(),
        objects.clone(),
        state.clone(),
        Some(port),
        stop.clone(),
    ));

    let decided = until("the policy's decision", || {
        let inventory = inventory(&state).ok()?;
        let policy = inventory.policies.first()?;
        policy.status.clusters.first()?.decision.clone()
    })
    .await;
    assert_eq!(
        decided.reason, "ProbeFailed",
        "nobody answers at the endpoint: {decided:?}"
    );
    until("the target's condition", || {
        let inventory = inventory(&state).ok()?;
        let target = inventory.targets.first()?;
        target
            .status
            .conditions
            .iter()
            .find(|c| c.type_ == "Ready")
            .map(drop)
    })
    .await;

    let error = crate::hosts::standalone::run(
        Config::default(),
        objects.clone(),
        state.clone(),
        None,
        CancellationToken::new(),
    )
    .await
    .unwrap_err();
    assert!(
        error.to_string().contains("in use by the process"),
        "{error}"
    );

    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for page in ["healthz", "readyz"] {
        let answer = client
            .get(format!("http://{port}/{page}"))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200, "{page}");
    }
    let answer = client
        .get(format!("http://{port}/metrics"))
        .send()
        .await
        .unwrap();
    assert_eq!(
        answer.headers()["content-type"],
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    let answer = answer.text().await.unwrap();
    assert!(
        answer.contains(
            "defragd_policy_signal_state{namespace=\"default\",name=\"p\",cluster=\"demo\",cluster_kind=\"EtcdTarget\",state=\"Error\"} 1"
        ),
        "{answer}"
    );

    // A new document is noticed without a restart; one that goes takes its series along.
    fs::write(objects.join("b.yaml"), policy("second", "")).unwrap();
    until("the second policy", || {
        inventory(&state).ok().filter(|i| i.policies.len() == 2)
    })
    .await;
    fs::remove_file(objects.join("a.yaml")).unwrap();
    until("the first policy's end", || {
        inventory(&state).ok().filter(|i| i.policies.len() == 1)
    })
    .await;

    stop.cancel();
    tokio::time::timeout(Duration::from_secs(30), running)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}
