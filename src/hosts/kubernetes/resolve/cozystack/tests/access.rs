//! The Secrets and the user by which a cluster is reached.

use super::*;

#[test]
fn secrets_are_those_that_the_mode_of_tls_has() {
    let identity = |name| Some((secret(name, "tls.crt"), secret(name, "tls.key")));
    for (client, ca, expected) in [
        (
            json!({"serverSecretRef": {"name": "own-server"}}),
            "own-server",
            None,
        ),
        (
            json!({
                "serverSecretRef": {"name": "own-server"},
                "operatorClientSecretRef": {"name": "own-client"},
            }),
            "own-server",
            identity("own-client"),
        ),
        (
            json!({"certManager": {"serverIssuerRef": {"name": "ca"}}}),
            "etcd-server-tls",
            None,
        ),
        (
            json!({"certManager": {
                "serverIssuerRef": {"name": "ca"},
                "operatorClientIssuerRef": {"name": "ca"},
            }}),
            "etcd-server-tls",
            identity("etcd-operator-client-tls"),
        ),
        // Handed over from own Secrets to cert-manager: the named one wins.
        (
            json!({
                "serverSecretRef": {"name": "own-server"},
                "certManager": {"operatorClientIssuerRef": {"name": "ca"}},
            }),
            "own-server",
            identity("etcd-operator-client-tls"),
        ),
    ] {
        let tls = World::new()
            .set("/spec/tls/client", client.clone())
            .found()
            .tls
            .unwrap();
        assert_eq!(tls.ca, secret(ca, "ca.crt"), "{client}");
        assert_eq!(tls.identity, expected, "{client}");
    }
    for tls in [
        Value::Null,
        json!({}),
        json!({"peer": {"secretRef": {"name": "peer"}}}),
        json!({"client": null}),
    ] {
        let resolved = World::new().set("/spec/tls", tls).found();
        assert_eq!(resolved.tls, None);
        assert_eq!(
            urls(&resolved.members.endpoints)[0],
            "http://etcd-0.etcd.shop.svc:2379"
        );
    }
}

#[test]
fn secrets_that_cannot_be_named_are_refused() {
    for (pointer, value, expected) in [
        (
            "/spec/tls/client",
            json!({}),
            "spec.tls.client.serverSecretRef.name is not set",
        ),
        (
            "/spec/tls/client",
            json!({"serverSecretRef": {"name": ""}, "certManager": {}}),
            "spec.tls.client.serverSecretRef.name is not set",
        ),
        (
            "/spec/tls/client",
            json!({"serverSecretRef": {"name": "../../kube-system/secrets/ca"}}),
            "spec.tls.client.serverSecretRef.name \"../../kube-system/secrets/ca\" is not the name of a Secret",
        ),
        (
            "/spec/tls/client",
            json!({"serverSecretRef": {"name": "a"}, "operatorClientSecretRef": {}}),
            "spec.tls.client.operatorClientSecretRef.name is not set",
        ),
    ] {
        let note = World::new().set(pointer, value).refused();
        assert_eq!(note.reason, Reason::SecretUnusable);
        assert!(note.message.contains(expected), "{}", note.message);
    }
}

#[test]
fn a_user_is_named_only_once_etcd_asks_for_one() {
    let auth = json!({"enabled": true, "rootCredentialsSecretRef": {"name": "etcd-root"}});
    for (spec, status, expected) in [
        (Some(auth.clone()), Some(json!(true)), true),
        (Some(auth.clone()), Some(json!(false)), false),
        (Some(auth), None, false),
        (None, Some(json!(true)), false),
        (Some(json!({"enabled": false})), Some(json!(true)), false),
        (Some(json!({})), Some(json!(true)), false),
    ] {
        let resolved = World::new()
            .set("/spec/auth", json!(spec))
            .set("/status/authEnabled", json!(status))
            .found();
        let expected = expected.then(|| Auth {
            user: "root",
            password: secret("etcd-root", "password"),
        });
        assert_eq!(resolved.auth, expected, "{spec:?} {status:?}");
    }
    let note = World::new()
        .set("/spec/auth", json!({"enabled": true}))
        .set("/status/authEnabled", json!(true))
        .refused();
    assert_eq!(note.reason, Reason::SecretUnusable);
    assert!(
        note.message
            .contains("spec.auth.rootCredentialsSecretRef.name is not set"),
        "{}",
        note.message
    );
}
