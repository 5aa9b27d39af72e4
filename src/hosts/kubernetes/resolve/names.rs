//! Names that become a part of a URL or of a request to the API server. They
//! stand in objects that other people write, and no name may lead out of the
//! namespace: neither by a dot in a URL nor by a slash in the path of a request.

use url::Url;

use crate::core::reason::Reason;
use crate::core::run::Note;

use super::{clip, unresolved};

/// A label of a DNS name (RFC 1123), as Services and namespaces have it.
fn is_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Labels with dots between them, as most objects' names are.
fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

/// The name of a Secret.
///
/// # Errors
/// When no Secret can have that name. It comes first: an empty name is no name.
pub(super) fn secret<'a>(field: &str, name: Option<&'a str>) -> Result<&'a str, Note> {
    let unusable = |message| Err(Note::new(Reason::SecretUnusable, message));
    match name {
        None | Some("") => unusable(format!("{field} is not set, want the name of a Secret")),
        Some(name) if is_subdomain(name) => Ok(name),
        Some(name) => unusable(format!(
            "{field} {:?} is not the name of a Secret, want lower-case letters, digits, \"-\" and \".\"",
            clip(name)
        )),
    }
}

/// The host of a member below its headless Service.
///
/// # Errors
/// Names that would not stay in the namespace, or that are no names.
pub(super) fn host(
    member: &str,
    service: &str,
    namespace: &str,
    suffix: &str,
) -> Result<String, Note> {
    for (what, name, good) in [
        ("member", member, is_subdomain(member)),
        ("headless Service", service, is_label(service)),
        ("namespace", namespace, is_label(namespace)),
    ] {
        if !good {
            return Err(unresolved(format!(
                "the {what}'s name {:?} cannot stand in a member's address, want a DNS name",
                clip(name)
            )));
        }
    }
    Ok(format!("{member}.{service}.{namespace}.{suffix}"))
}

/// A URL at a host that [`host`] made, or at an address.
///
/// # Errors
/// When the host cannot stand in a URL all the same (a label `xn--…` that is
/// no internationalised name).
pub(super) fn url(scheme: &str, host: &str, port: u16, path: &str) -> Result<Url, Note> {
    let text = format!("{scheme}://{host}:{port}{path}");
    Url::parse(&text).map_err(|e| unresolved(format!("{:?} is not a URL ({e})", clip(&text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_kubernetes_takes() {
        let long = "a".repeat(64);
        for (text, label, subdomain) in [
            ("etcd", true, true),
            ("etcd-0", true, true),
            ("0", true, true),
            ("etcd.server-tls", false, true),
            ("", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("a..b", false, false),
            ("a.", false, false),
            ("Etcd", false, false),
            ("a_b", false, false),
            ("a/b", false, false),
            ("../../kube-system/secrets/x", false, false),
            ("a b", false, false),
            ("ä", false, false),
            (&long, false, false),
        ] {
            assert_eq!(is_label(text), label, "{text:?}");
            assert_eq!(is_subdomain(text), subdomain, "{text:?}");
        }
    }

    #[test]
    fn no_secret_of_another_namespace_can_be_named() {
        let named = |name| secret("spec.tls.client.serverSecretRef.name", name);
        assert_eq!(named(Some("etcd-server-tls")), Ok("etcd-server-tls"));
        for name in [
            "../../kube-system/secrets/root",
            "a/b",
            "a?watch=true",
            "%2e%2e",
        ] {
            let note = named(Some(name)).unwrap_err();
            assert_eq!(note.reason, Reason::SecretUnusable);
            assert!(note.message.contains(name), "{}", note.message);
        }
        for name in [None, Some("")] {
            assert_eq!(
                named(name).unwrap_err().message,
                "spec.tls.client.serverSecretRef.name is not set, want the name of a Secret"
            );
        }
    }

    #[test]
    fn no_member_lies_outside_of_its_namespace() {
        assert_eq!(
            host("etcd-0", "etcd", "shop", "svc").unwrap(),
            "etcd-0.etcd.shop.svc"
        );
        for (member, service, namespace) in [
            ("a", "evil.example/", "shop"),
            ("a", "other.kube-system", "shop"),
            ("a@b", "etcd", "shop"),
            ("a:1", "etcd", "shop"),
            ("a", "etcd", ""),
            ("", "etcd", "shop"),
        ] {
            let note = host(member, service, namespace, "svc").unwrap_err();
            assert_eq!(note.reason, Reason::MembersUnresolved);
            assert!(note.message.contains("want a DNS name"), "{}", note.message);
        }
    }

    #[test]
    fn a_host_that_is_no_host_of_a_url_is_told() {
        let note = url("http", "xn--a.b.c.svc", 2379, "").unwrap_err();
        assert!(note.message.contains("xn--a.b.c.svc"), "{}", note.message);
        assert_eq!(
            url("http", "[::1]", 2381, "/metrics").unwrap().as_str(),
            "http://[::1]:2381/metrics"
        );
    }
}
