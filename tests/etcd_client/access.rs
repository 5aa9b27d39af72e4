//! TLS and users: what works, and what a person is told when it does not.

use defragd::core::reason::Reason;
use defragd::core::view::{MemberId, Trouble};
use defragd::etcd::{Auth, CallErrorKind, ClusterClient, ConnectError, Connection, Source};
use defragd_harness::{Cluster, Etcd, EtcdVersion, Tls, eventually};
use tonic::Code;

use crate::{DEADLINE, cluster_id, connect, connection, id, observe, single, status, to, view};

async fn mutual() -> Cluster {
    Etcd::version(EtcdVersion::V3_6)
        .members(1)
        .tls(Tls::Mutual)
        .start()
        .await
        .unwrap()
}

async fn with_root() -> Cluster {
    Etcd::version(EtcdVersion::V3_6)
        .members(1)
        .auth("root", "pw")
        .start()
        .await
        .unwrap()
}

fn user(name: &str, password: &str) -> Option<Auth> {
    Some(Auth {
        username: Source::given(name),
        password: Source::given(password),
    })
}

async fn refusal(connection: Connection) -> Trouble {
    observe(&connect(connection).await)
        .await
        .members
        .unwrap_err()
}

fn assert_says(trouble: &Trouble, reason: Reason, parts: &[&str]) {
    assert_eq!(trouble.reason, reason, "{}", trouble.message);
    for part in parts {
        assert!(
            trouble.message.contains(part),
            "{part:?} is not in {}",
            trouble.message
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mutual_tls_works_for_calls_and_metrics() {
    let cluster = mutual().await;
    let client = connect(connection(&cluster)).await;
    let seen = observe(&client).await;
    assert!(view(&seen, id(&cluster, 0)).status.is_ok(), "{seen:?}");
    assert!(view(&seen, id(&cluster, 0)).metrics.is_some(), "{seen:?}");
    let limit = std::time::Duration::from_secs(30);
    client
        .defragment(cluster_id(&cluster), id(&cluster, 0), limit)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_do_not_fit_are_told_apart() {
    let cluster = mutual().await;
    let pki = cluster.pki().unwrap();
    let endpoint = cluster.member(0).url();
    let with = |change: &dyn Fn(&mut defragd::etcd::Tls)| {
        let mut connection = connection(&cluster);
        change(connection.tls.as_mut().unwrap());
        connection
    };

    let wrong_ca = refusal(with(&|tls| tls.ca = Some(Source::file(pki.other_ca())))).await;
    assert_says(
        &wrong_ca,
        Reason::EndpointUnusable,
        &[endpoint, "tls.caFile"],
    );

    let without = refusal(with(&|tls| (tls.certificate, tls.key) = (None, None))).await;
    assert_says(
        &without,
        Reason::PermissionDenied,
        &[endpoint, "tls.certFile"],
    );

    let (certificate, key) = pki.other_client();
    let strange = refusal(with(&|tls| {
        (tls.certificate, tls.key) = (Some(Source::file(&certificate)), Some(Source::file(&key)));
    }))
    .await;
    assert_says(
        &strange,
        Reason::PermissionDenied,
        &[endpoint, "tls.certFile"],
    );

    let mixed = ClusterClient::connect(with(&|tls| tls.key = Some(Source::file(pki.server().1))));
    let Err(mixed) = mixed.await else {
        panic!("accepted")
    };
    assert!(matches!(mixed, ConnectError::KeyMismatch { .. }), "{mixed}");
    assert!(mixed.to_string().contains("server-key.pem"), "{mixed}");
}

/// As pods are: found at an address, with a certificate for a name that no DNS
/// has to know.
#[tokio::test(flavor = "multi_thread")]
async fn a_known_address_is_dialled_and_the_name_is_verified() {
    let cluster = Etcd::version(EtcdVersion::V3_6)
        .members(1)
        .tls(Tls::Mutual)
        .server_names(["etcd-0.etcd.shop.svc", "*.etcd.shop.svc"])
        .start()
        .await
        .unwrap();
    let address = cluster.member(0).address();
    let named = |host: &str| {
        let url = format!("https://{host}:{}", address.port());
        let mut named = connection(&cluster);
        named.endpoints = to(&[&url]).endpoints;
        named.addresses = [(host.to_owned(), address.ip())].into();
        named.follow_member_urls = false;
        named
    };
    let client = connect(named("etcd-0.etcd.shop.svc")).await;
    let seen = observe(&client).await;
    assert!(view(&seen, id(&cluster, 0)).status.is_ok(), "{seen:?}");
    assert!(view(&seen, id(&cluster, 0)).metrics.is_some(), "{seen:?}");
    let limit = std::time::Duration::from_secs(30);
    client
        .defragment(cluster_id(&cluster), id(&cluster, 0), limit)
        .await
        .unwrap();

    // Another's address does not make a certificate its own.
    let other = refusal(named("etcd-0.other.shop.svc")).await;
    assert_says(
        &other,
        Reason::EndpointUnusable,
        &["etcd-0.other.shop.svc", "etcd-0.etcd.shop.svc"],
    );
    let mut mended = named("etcd-0.other.shop.svc");
    mended.tls.as_mut().unwrap().server_name = Some("etcd-0.etcd.shop.svc".to_owned());
    let seen = observe(&connect(mended).await).await;
    assert!(view(&seen, id(&cluster, 0)).metrics.is_some(), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r66_a_wrong_name_says_which_are_right_and_server_name_mends_it() {
    let cluster = Etcd::version(EtcdVersion::V3_6)
        .members(1)
        .tls(Tls::Server)
        .server_names(["etcd.example"])
        .start()
        .await
        .unwrap();
    let mut connection = connection(&cluster);
    let trouble = refusal(connection.clone()).await;
    assert_says(
        &trouble,
        Reason::EndpointUnusable,
        &["127.0.0.1", "etcd.example", "tls.serverName"],
    );

    connection.tls.as_mut().unwrap().server_name = Some("etcd.example".to_owned());
    let seen = observe(&connect(connection).await).await;
    assert!(view(&seen, id(&cluster, 0)).status.is_ok(), "{seen:?}");
    assert!(view(&seen, id(&cluster, 0)).metrics.is_some(), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_speaks_something_else_is_recognised() {
    let (secure, plain) = tokio::join!(mutual(), single());

    let http = secure.member(0).url().replace("https://", "http://");
    let trouble = refusal(to(&[&http])).await;
    assert_says(
        &trouble,
        Reason::EndpointUnusable,
        &[&http, "write https://"],
    );

    let https = plain.member(0).url().replace("http://", "https://");
    let mut over_tls = to(&[&https]);
    over_tls.tls = connection(&secure).tls;
    let trouble = refusal(over_tls).await;
    assert_says(
        &trouble,
        Reason::EndpointUnusable,
        &[&https, "write http://"],
    );

    // The peer port of an etcd speaks HTTP/1.
    let list = plain.client(0).await.unwrap().member_list().await.unwrap();
    let peer = list.members()[0].peer_urls()[0].clone();
    let trouble = refusal(to(&[&peer])).await;
    assert_says(
        &trouble,
        Reason::EndpointUnusable,
        &[&peer, "not an etcd v3"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r68_a_user_is_needed_and_a_wrong_password_is_named() {
    let cluster = with_root().await;
    let mut connection = connection(&cluster);

    let nobody = refusal(connection.clone()).await;
    assert_says(&nobody, Reason::PermissionDenied, &["no user was given"]);

    connection.auth = user("root", "hunter2");
    let wrong = refusal(connection.clone()).await;
    assert_says(
        &wrong,
        Reason::PermissionDenied,
        &["check auth's user and password"],
    );
    assert!(!wrong.message.contains("hunter2"), "{}", wrong.message);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "hunter2\n").unwrap();
    connection.auth = Some(Auth {
        username: Source::given("root"),
        password: Source::file(&file),
    });
    refusal(connection.clone()).await;
    // S26: the next connect reads the file again.
    std::fs::write(&file, "pw\n").unwrap();
    let client = connect(connection).await;
    let seen = observe(&client).await;
    assert!(status(&seen, id(&cluster, 0)).leader.is_some());
    let limit = std::time::Duration::from_secs(30);
    client
        .defragment(cluster_id(&cluster), id(&cluster, 0), limit)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn r68_a_user_without_the_role_root_may_look_and_not_touch() {
    let cluster = with_root().await;
    let mut root = cluster.client(0).await.unwrap();
    root.user_add("alice", "pw", None).await.unwrap();
    let mut connection = connection(&cluster);
    connection.auth = user("alice", "pw");
    let client = connect(connection).await;
    assert!(
        view(&observe(&client).await, id(&cluster, 0))
            .status
            .is_ok()
    );
    let limit = std::time::Duration::from_secs(30);
    let error = client
        .defragment(cluster_id(&cluster), id(&cluster, 0), limit)
        .await
        .unwrap_err();
    assert_eq!(
        error.kind,
        CallErrorKind::Refused(Code::PermissionDenied),
        "{error}"
    );
    assert_eq!(error.reason, Reason::PermissionDenied);
    assert!(error.message.contains("root"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_for_a_cluster_without_authentication_does_no_harm() {
    let cluster = single().await;
    let mut connection = connection(&cluster);
    connection.auth = user("root", "pw");
    let seen = observe(&connect(connection).await).await;
    assert!(status(&seen, id(&cluster, 0)).leader.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_token_is_renewed_also_for_a_mutating_call() {
    let cluster = Etcd::version(EtcdVersion::V3_6)
        .members(1)
        .auth("root", "pw")
        .extra_args(["--auth-token-ttl=1", "--log-level=debug"])
        .start()
        .await
        .unwrap();
    let mut connection = connection(&cluster);
    connection.auth = user("root", "pw");
    let client = connect(connection).await;
    let member: MemberId = id(&cluster, 0);
    let deleted = || {
        let log = std::fs::read_to_string(cluster.member(0).log()).unwrap();
        log.matches("deleted a simple token").count()
    };
    let before = deleted();
    assert!(view(&observe(&client).await, member).status.is_ok());
    eventually(DEADLINE, "the token to expire", async || deleted() > before)
        .await
        .unwrap();
    let limit = std::time::Duration::from_secs(30);
    client
        .defragment(cluster_id(&cluster), member, limit)
        .await
        .unwrap();
    assert!(view(&observe(&client).await, member).status.is_ok());
}
