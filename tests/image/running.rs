//! The image at work, under runc.

use std::fs;
use std::path::Path;
use std::process::Output;

use defragd_harness::{Error, Etcd, Tls};
use serde_json::Value;

use crate::container::Bundle;
use crate::layout::Image;

/// What a container that ended well has said.
#[track_caller]
fn stdout(output: Output) -> String {
    assert!(output.status.success(), "{output:#?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn it_knows_its_version() {
    let bundle = Bundle::unpack(&Image::built());
    assert_eq!(
        stdout(bundle.run(&["--version"], &[])),
        concat!("defragd ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

/// A source that is trusted by public authorities needs these to be where the TLS library looks for
/// them.
#[test]
fn it_finds_the_authorities() {
    let bundle = Bundle::unpack(&Image::built());
    let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/policies/fragmentation.yaml");
    bundle.add("policy.yaml", fs::read(policy).expect("the example"));
    bundle.add(
        "config.yaml",
        "sources: [{name: main, prometheus: {url: \"https://prometheus.example\"}}]\n",
    );
    let lint = [
        "lint",
        "--config",
        "/files/config.yaml",
        "/files/policy.yaml",
    ];
    assert_eq!(stdout(bundle.run(&lint, &[])), "");

    // So that the silence above says something.
    let without = ["SSL_CERT_FILE=/nowhere", "SSL_CERT_DIR=/nowhere"];
    let said = stdout(bundle.run(&lint, &without));
    assert!(said.contains("sources[0].prometheus"), "{said}");
}

#[tokio::test]
async fn it_sweeps_a_cluster() -> Result<(), Error> {
    let cluster = Etcd::default()
        .tls(Tls::Mutual)
        .auth("root", "hunter2")
        .start()
        .await?;
    let bundle = Bundle::unpack(&Image::built());
    let pki = cluster.pki().expect("a cluster with TLS has one");
    let (cert, key) = pki.client();
    for (name, path) in [("ca.crt", pki.ca()), ("tls.crt", cert), ("tls.key", key)] {
        bundle.add(name, fs::read(path).expect("the harness made it"));
    }
    bundle.add("password", "hunter2\n");

    let endpoints = cluster.endpoints().join(",");
    let output = bundle.run(
        &[
            "sweep",
            "--endpoints",
            &endpoints,
            "--cacert",
            "/files/ca.crt",
            "--cert",
            "/files/tls.crt",
            "--key",
            "/files/tls.key",
            "--user",
            "root",
            "--password-file",
            "/files/password",
            "--rule",
            "all",
            "--output",
            "json",
        ],
        &[],
    );
    let object: Value = serde_json::from_str(&stdout(output)).expect("JSON");
    assert_eq!(object["status"]["defragmented"], 3, "{object:#}");
    for i in 0..3 {
        let count = cluster
            .metric(i, "etcd_disk_backend_defrag_duration_seconds_count")
            .await?;
        assert_eq!(count, Some(1.0), "member {i}");
    }
    Ok(())
}
