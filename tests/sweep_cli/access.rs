//! TLS and users.

use defragd_harness::{Error, Etcd, Tls};

use crate::running::{defragmentations, sweep};

/// R66, R68: certificates and passwords, right and wrong.
#[tokio::test]
async fn mutual_tls_with_a_user() -> Result<(), Error> {
    let cluster = Etcd::default()
        .tls(Tls::Mutual)
        .auth("root", "hunter2")
        .start()
        .await?;
    let pki = cluster.pki().expect("a cluster with TLS has one");
    let path = |path: std::path::PathBuf| path.to_str().expect("UTF-8").to_owned();
    let (ca, other_ca) = (path(pki.ca()), path(pki.other_ca()));
    let (cert, key) = pki.client();
    let (cert, key) = (path(cert), path(key));
    let file = |name: &str, text: &str| {
        let file = cluster.scratch().join(name);
        std::fs::write(&file, text).expect("the folder is ours");
        path(file)
    };
    let (right, wrong) = (file("right", "hunter2\n"), file("wrong", "hunter3\n"));
    let tls = ["--cacert", ca.as_str(), "--cert", &cert, "--key", &key];
    let with = |flags: &[&'static str]| [&tls[..], flags].concat();
    let user = |file| {
        [
            &with(&["--rule", "all", "--user", "root", "--password-file"])[..],
            &[file],
        ]
        .concat()
    };

    for (flags, code, words) in [
        (user(wrong.as_str()), 3, "check auth's user and password"),
        (
            [&["--cacert", other_ca.as_str()], &tls[2..]].concat(),
            3,
            "invalid peer certificate",
        ),
        (vec!["--cacert", ca.as_str()], 3, "--cert"),
        (
            with(&["--servername", "etcd.elsewhere"]),
            3,
            "etcd.elsewhere",
        ),
        (user("/nowhere"), 2, "--password-file"),
        (
            [&["--cacert", right.as_str()], &tls[2..]].concat(),
            2,
            "--cacert",
        ),
    ] {
        let ran = sweep(&cluster, &flags).await.expect(code).says(words);
        assert!(
            !format!("{ran:?}").contains("hunter"),
            "a secret in {ran:#?}"
        );
    }
    assert_eq!(defragmentations(&cluster).await?, [0.0; 3]);

    let object = sweep(
        &cluster,
        &[&user(&right)[..], &["--output", "json"]].concat(),
    )
    .await
    .expect(0)
    .object();
    assert_eq!(object["status"]["defragmented"], 3);
    assert_eq!(defragmentations(&cluster).await?, [1.0; 3]);
    Ok(())
}

/// R68: nothing is touched for want of a user.
#[tokio::test]
async fn a_user_is_asked_for_where_one_is_needed() -> Result<(), Error> {
    let cluster = Etcd::default()
        .members(1)
        .auth("root", "hunter2")
        .start()
        .await?;
    sweep(&cluster, &["--rule", "all", "--allow-single-member"])
        .await
        .expect(3)
        .says("PermissionDenied")
        .says("--user and --password-file");
    assert_eq!(defragmentations(&cluster).await?, [0.0]);
    Ok(())
}
