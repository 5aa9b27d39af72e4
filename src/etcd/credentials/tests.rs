//! Files and Secrets: what is taken, and what is said about the rest.

use std::collections::BTreeMap;
use std::sync::Mutex;

use defragd_harness::Pki;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::*;
use crate::core::key::ObjectKey;
use crate::core::reason::Reason;
use crate::etcd::connection::Endpoint;
use crate::etcd::secret::SecretReader;

fn connection(tls: Tls) -> Connection {
    let mut connection = Connection::new(vec![Endpoint::parse("https://a:2379").unwrap()]);
    connection.tls = Some(tls);
    connection
}

async fn refusal(connection: &Connection) -> String {
    match load(connection).await {
        Ok(_) => panic!("accepted"),
        Err(e) => e.to_string(),
    }
}

#[tokio::test]
async fn unreadable_and_unparsable_certificates_name_field_file_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    let tls = || Tls {
        ca: Some(Source::file(&ca)),
        certificate: None,
        key: None,
        server_name: None,
    };
    let missing = refusal(&connection(tls())).await;
    assert!(
        missing.starts_with("tls.caFile") && missing.contains("ca.pem"),
        "{missing}"
    );
    assert!(missing.contains("check the path"), "{missing}");

    for content in [
        "not a certificate",
        "",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        std::fs::write(&ca, content).unwrap();
        let message = refusal(&connection(tls())).await;
        assert!(
            message.contains("holds no PEM certificate"),
            "{content:?}: {message}"
        );
    }
}

#[tokio::test]
async fn passwords_lose_their_line_end_and_nothing_else() {
    let mut connection = Connection::new(vec![Endpoint::parse("http://a:2379").unwrap()]);
    let auth = |password: &str| {
        Some(Auth {
            username: Source::given("root"),
            password: Source::given(password),
        })
    };
    for (given, read) in [
        ("pw", "pw"),
        ("pw\n", "pw"),
        ("pw\r\n", "pw"),
        (" p w ", " p w "),
        ("pw \n", "pw "),
    ] {
        connection.auth = auth(given);
        let user = load(&connection).await.map(|c| c.user).ok().flatten();
        assert_eq!(
            user,
            Some(("root".to_owned(), read.to_owned())),
            "{given:?}"
        );
    }
    for (given, problem) in [
        ("", "empty"),
        ("\n", "empty"),
        ("a\nb", "more than one line"),
    ] {
        connection.auth = auth(given);
        let message = refusal(&connection).await;
        assert!(
            message.contains("auth.passwordFile") && message.contains(problem),
            "{message}"
        );
    }
}

/// Stands in every value of a Secret here, and must stand in nothing that is shown.
const PLANTED: &str = "hunter2";

/// Secrets of one namespace, in memory.
#[derive(Debug, Default)]
struct Memory {
    secrets: Mutex<BTreeMap<String, BTreeMap<String, Vec<u8>>>>,
}

impl Memory {
    fn put(&self, name: &str, key: &str, value: impl AsRef<[u8]>) {
        let value = value.as_ref().to_vec();
        let mut secrets = self.secrets.lock().unwrap();
        let secret = secrets.entry(name.to_owned()).or_default();
        secret.insert(key.to_owned(), value);
    }

    fn take(&self, name: &str, key: &str) {
        let mut secrets = self.secrets.lock().unwrap();
        secrets.get_mut(name).unwrap().remove(key);
    }
}

impl SecretReader for Memory {
    fn read<'a>(
        &'a self,
        secret: &'a ObjectKey,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, SecretError>> {
        async move {
            let secrets = self.secrets.lock().unwrap();
            let missing = || SecretError::Missing {
                secret: secret.clone(),
            };
            let found = secrets.get(secret.name.as_str()).ok_or_else(missing)?;
            Ok(found.get(key).cloned())
        }
        .boxed()
    }
}

fn key(reader: &Arc<Memory>, name: &str, key: &str) -> SecretKey {
    let secret = ObjectKey {
        namespace: "prod".into(),
        name: name.into(),
    };
    SecretKey::new(Arc::clone(reader) as Arc<dyn SecretReader>, secret, key)
}

/// As a target with `tls.secretRef` and `auth.secretRef` is reached.
fn by_secrets(reader: &Arc<Memory>) -> Connection {
    let mut connection = connection(Tls {
        ca: Some(Source::Secret(key(reader, "etcd", "ca.crt"))),
        certificate: Some(Source::Secret(key(reader, "etcd", "tls.crt").optional())),
        key: Some(Source::Secret(key(reader, "etcd", "tls.key").optional())),
        server_name: None,
    });
    connection.auth = Some(Auth {
        username: Source::Secret(key(reader, "root", "username")),
        password: Source::Secret(key(reader, "root", "password")),
    });
    connection.validate().unwrap();
    connection
}

/// Secrets that work: a fresh authority with a client certificate, and a user.
fn usable() -> Arc<Memory> {
    let folder = tempfile::tempdir().unwrap();
    let pki = Pki::create(folder.path(), &[]).unwrap();
    let reader = Arc::new(Memory::default());
    let (certificate, key) = pki.client();
    for (name, file) in [
        ("ca.crt", pki.ca()),
        ("tls.crt", certificate),
        ("tls.key", key),
        ("other.key", pki.server().1),
    ] {
        reader.put("etcd", name, std::fs::read(file).unwrap());
    }
    reader.put("root", "username", "root");
    reader.put("root", "password", PLANTED);
    reader
}

async fn error(connection: &Connection) -> ConnectError {
    match load(connection).await {
        Ok(_) => panic!("accepted"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn secrets_are_read_again_at_each_connect() {
    let reader = usable();
    let connection = by_secrets(&reader);
    let read = load(&connection).await.ok().unwrap();
    assert_eq!(read.user, Some(("root".to_owned(), PLANTED.to_owned())));
    assert!(read.grpc_tls.is_some() && read.http_tls.client_auth_cert_resolver.has_certs());

    reader.put("root", "password", "rotated\n");
    let read = load(&connection).await.ok().unwrap();
    assert_eq!(read.user, Some(("root".to_owned(), "rotated".to_owned())));
}

#[tokio::test]
async fn a_secret_without_a_client_certificate_is_server_tls() {
    let reader = usable();
    reader.take("etcd", "tls.crt");
    reader.take("etcd", "tls.key");
    let read = load(&by_secrets(&reader)).await.ok().unwrap();
    assert!(read.grpc_tls.is_some() && !read.http_tls.client_auth_cert_resolver.has_certs());
}

/// Each names the Secret, the key and the remedy, says that it is the Secret, and repeats nothing
/// of what it holds.
#[tokio::test]
async fn unusable_secrets_name_secret_key_and_remedy() {
    type Change = fn(&Memory);
    let broken = "-----BEGIN PRIVATE KEY-----\nhunter2 hunter2\n-----END PRIVATE KEY-----\n";
    let cases: [(&str, Change, &str); 12] = [
        (
            "no Secret",
            |m| drop(m.secrets.lock().unwrap().remove("etcd")),
            "there is no Secret prod/etcd; create it, or correct the name",
        ),
        (
            "no Secret of the user",
            |m| drop(m.secrets.lock().unwrap().remove("root")),
            "there is no Secret prod/root; create it, or correct the name",
        ),
        (
            "no authority",
            |m| m.take("etcd", "ca.crt"),
            "Secret prod/etcd has no key \"ca.crt\"; add it",
        ),
        (
            "no user name",
            |m| m.take("root", "username"),
            "Secret prod/root has no key \"username\"; add it",
        ),
        (
            "no password",
            |m| m.take("root", "password"),
            "Secret prod/root has no key \"password\"; add it",
        ),
        (
            "a certificate without its key",
            |m| m.take("etcd", "tls.key"),
            "Secret prod/etcd has no key \"tls.key\" to go with \"tls.crt\"; add it, or remove \"tls.crt\"",
        ),
        (
            "a key without its certificate",
            |m| m.take("etcd", "tls.crt"),
            "Secret prod/etcd has no key \"tls.crt\" to go with \"tls.key\"; add it, or remove \"tls.key\"",
        ),
        (
            "an authority that is none",
            |m| m.put("etcd", "ca.crt", PLANTED),
            "key \"ca.crt\" of Secret prod/etcd holds no PEM certificate (nothing found), it needs a line such as -----BEGIN CERTIFICATE-----",
        ),
        (
            "a certificate that is none",
            |m| m.put("etcd", "tls.crt", PLANTED),
            "key \"tls.crt\" of Secret prod/etcd holds no PEM certificate (nothing found), it needs a line such as -----BEGIN CERTIFICATE-----",
        ),
        (
            "a key of another certificate",
            |m| {
                let other = m.secrets.lock().unwrap()["etcd"]["other.key"].clone();
                m.put("etcd", "tls.key", other);
            },
            "key \"tls.key\" of Secret prod/etcd does not belong to key \"tls.crt\" of Secret prod/etcd (",
        ),
        (
            "an empty password",
            |m| m.put("root", "password", "\n"),
            "key \"password\" of Secret prod/root is empty, give exactly one line of UTF-8 text",
        ),
        (
            "a password of two lines",
            |m| m.put("root", "password", format!("{PLANTED}\n{PLANTED}\n")),
            "key \"password\" of Secret prod/root is more than one line, give exactly one line of UTF-8 text",
        ),
    ];
    let usable = usable();
    let snapshot = usable.secrets.lock().unwrap().clone();
    for (name, change, wanted) in cases {
        *usable.secrets.lock().unwrap() = snapshot.clone();
        change(&usable);
        let error = error(&by_secrets(&usable)).await;
        assert!(error.to_string().starts_with(wanted), "{name}: {error}");
        assert_eq!(error.reason(), Reason::SecretUnusable, "{name}");
        assert!(!format!("{error} {error:?}").contains(PLANTED), "{name}");
    }
    *usable.secrets.lock().unwrap() = snapshot;
    for (key, value) in [("tls.key", broken.as_bytes()), ("password", b"hunter2\xff")] {
        let secret = if key == "password" { "root" } else { "etcd" };
        usable.put(secret, key, value);
        let error = error(&by_secrets(&usable)).await;
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(key) && !shown.contains(PLANTED), "{shown}");
    }
}

/// Neither a connection nor its parts say more than where something is read.
#[test]
fn a_connection_shows_places_only() {
    let reader = usable();
    let connection = by_secrets(&reader);
    let auth = connection.auth.clone().unwrap();
    let shown = format!(
        "{connection:?} {auth:?} {} {:?}",
        auth.password, auth.password
    );
    assert!(
        shown.contains("prod") && shown.contains("ca.crt"),
        "{shown}"
    );
    assert!(
        !shown.contains(PLANTED) && !shown.contains("BEGIN"),
        "{shown}"
    );
}

/// Connections are compared to see whether a target changed; who reads is no part of that.
#[test]
fn sources_are_the_same_when_they_name_the_same_place() {
    let (one, two) = (Arc::new(Memory::default()), Arc::new(Memory::default()));
    assert_eq!(by_secrets(&one), by_secrets(&two));
    assert_ne!(key(&one, "a", "k"), key(&one, "b", "k"));
    assert_ne!(key(&one, "a", "k"), key(&one, "a", "l"));
    assert_ne!(key(&one, "a", "k"), key(&one, "a", "k").optional());
}

/// The etcd that is looked at may be the one behind the API server that is asked for the Secret.
#[tokio::test]
async fn a_reader_that_never_answers_does_not_hold_the_connect() {
    #[derive(Debug)]
    struct Silent;
    impl SecretReader for Silent {
        fn read<'a>(
            &'a self,
            _: &'a ObjectKey,
            _: &'a str,
        ) -> BoxFuture<'a, Result<Option<Vec<u8>>, SecretError>> {
            std::future::pending().boxed()
        }
    }
    let mut connection = Connection::new(vec![Endpoint::parse("http://a:2379").unwrap()]);
    connection.timeouts.call = Duration::from_millis(20);
    let place = key(&Arc::new(Memory::default()), "root", "password");
    let silent = SecretKey {
        reader: Arc::new(Silent),
        ..place
    };
    connection.auth = Some(Auth {
        username: Source::given("root"),
        password: Source::Secret(silent),
    });
    let error = error(&connection).await;
    assert_eq!(
        error.to_string(),
        "unable to read Secret prod/root (no answer within 20ms); it is read again at the next connect"
    );
    assert_eq!(error.reason(), Reason::SecretUnusable);
}
