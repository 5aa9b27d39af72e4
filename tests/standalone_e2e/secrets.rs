//! Secrets that are planted in files: used, refused and unusable, and never shown.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use defragd_harness::{Defragd, Error, Etcd, Prometheus, Status};
use serde_json::{Value, json};
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use crate::support::{defragd, is_complete, policy, run, target, until};

/// Each stands in a file of its own, and must not be found anywhere else.
const PLANTED: [(&str, &str); 12] = [
    ("right-password", "planted-right-password"),
    ("wrong-password", "planted-wrong-password"),
    ("bearer", "planted-bearer-token"),
    // A blank line inside: no token has that, so it is refused before it is sent.
    ("broken-bearer", "planted-broken\n\nbearer-token"),
    ("client-secret", "planted-client-secret"),
    ("tenant", "planted-value-of-a-header"),
    ("webhook", "planted-webhook-token"),
    ("alertmanager-password", "planted-alertmanager-password"),
    ("webhook-password", "planted-webhook-password"),
    ("etcd-user", "root"),
    ("etcd-password", "planted-etcd-password"),
    ("wrong-etcd-password", "planted-wrong-etcd-password"),
];
const USER: &str = "scraper";
/// What nobody planted but a stranger shows.
const GUESSED: &str = "planted-guess-of-a-stranger";
/// What the token server grants.
const GRANTED: &str = "planted-access-token";
/// Stands where a key should be.
const NO_KEY: &str = "planted-instead-of-a-key";

struct Files(PathBuf);

impl Files {
    fn write(defragd: &Defragd) -> Self {
        let folder = defragd.folder().join("planted");
        fs::create_dir(&folder).expect("a folder of the test");
        for (name, content) in PLANTED.iter().chain(&[("no-key", NO_KEY)]) {
            fs::write(folder.join(name), format!("{content}\n")).expect("a file of the test");
        }
        Files(folder)
    }

    fn of(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Refuses whatever is asked, and repeats what it was sent, as some servers do to be helpful.
struct Talkative;

impl Respond for Talkative {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let sent = request.headers["authorization"].to_str().expect("text");
        // What the pair of a user holds is known to the server as well.
        let password = match sent.strip_prefix("Basic ") {
            Some(_) => planted("alertmanager-password"),
            None => "",
        };
        let words = format!("{sent} is not welcome, nor is {password}");
        let body = json!({
            "status": "error", "errorType": "execution", "error": words, "message": words,
        });
        ResponseTemplate::new(401).set_body_json(body)
    }
}

/// A server that no real one is: it grants a token, and talks too much.
async fn talkative() -> MockServer {
    let server = MockServer::start().await;
    let token = json!({ "access_token": GRANTED, "token_type": "Bearer", "expires_in": 3600 });
    Mock::given(path("/oauth2/token"))
        .respond_with(ResponseTemplate::new(200).set_body_json(token))
        .mount(&server)
        .await;
    let others = Mock::given(wiremock::matchers::any()).respond_with(Talkative);
    others.with_priority(9).mount(&server).await;
    server
}

/// Sources that the server accepts, refuses, and cannot be asked with what is planted.
fn sources(files: &Files, url: &str, talkative: &str) -> Value {
    let basic = |password: &str| json!({ "username": USER, "passwordFile": files.of(password) });
    let oauth2 = |url: &str| {
        json!({
            "tokenURL": format!("{url}/oauth2/token"),
            "clientID": "defragd",
            "clientSecretFile": files.of("client-secret"),
        })
    };
    let source = |name: &str, more: Value| {
        let mut http = json!({ "url": url });
        let fields = http.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        json!({ "name": name, "prometheus": http })
    };
    json!([
        source(
            "right",
            json!({
                "basicAuth": basic("right-password"),
                "headerFiles": { "X-Scope-OrgID": files.of("tenant") },
            })
        ),
        source("wrong", json!({ "basicAuth": basic("wrong-password") })),
        source("bearer", json!({ "bearerTokenFile": files.of("bearer") })),
        source(
            "broken",
            json!({ "bearerTokenFile": files.of("broken-bearer") })
        ),
        source("oauth2", json!({ "oauth2": oauth2(url) })),
        source(
            "granted",
            json!({ "url": talkative, "oauth2": oauth2(talkative) })
        ),
        source(
            "header",
            json!({ "headerFiles": { "Authorization": files.of("tenant") } })
        ),
        json!({ "name": "pushed", "webhook": { "bearerTokenFile": files.of("webhook") } }),
        json!({ "name": "pushed-by-user", "webhook": { "basicAuth": basic("webhook-password") } }),
        json!({ "name": "am", "alertmanager": {
            "url": talkative, "basicAuth": basic("alertmanager-password"),
        } }),
    ])
}

/// A target of this cluster with a user from files.
fn with_user(name: &str, endpoints: &[String], files: &Files, password: &str) -> Value {
    let mut object = target(name, endpoints);
    object["spec"]["auth"] = json!({
        "usernameFile": files.of("etcd-user"),
        "passwordFile": files.of(password),
    });
    object
}

/// A policy on `demo` that asks this source and only says what it would do.
fn asks(name: &str, source: &str) -> Value {
    let signal =
        json!({ "prometheus": { "source": source, "query": "vector(200)", "above": 100 } });
    policy(name, json!({ "signal": signal, "dryRun": true }))
}

#[tokio::test]
async fn planted_secrets_are_used_and_told_to_nobody() -> Result<(), Error> {
    let (cluster, prometheus) = tokio::try_join!(
        Etcd::default()
            .members(1)
            .auth("root", planted("etcd-password"))
            .start(),
        Prometheus::default()
            .basic_auth(USER, planted("right-password"))
            .start(),
    )?;
    let talkative = talkative().await;
    let defragd = defragd()?;
    let files = Files::write(&defragd);
    let configured = sources(&files, prometheus.url(), &talkative.uri());
    defragd.configure(&json!({
        "sources": configured,
        "log": { "level": "debug" },
    }))?;
    let endpoints = cluster.endpoints();
    let probe = json!({ "signal": { "probe": { "rule": { "freeSpaceAbove": "1Gi" } } } });
    let mut wrong_user = policy("wrong-user", probe);
    wrong_user["spec"]["clusterRef"]["name"] = json!("wrong");
    let alert = |source: &str| {
        let signal = json!({ "source": source, "matchers": ["alertname=\"a\""] });
        json!({ "signal": { "alert": signal }, "dryRun": true })
    };
    let elsewhere = "http://127.0.0.1:1/planted";
    let objects = [
        with_user("demo", &endpoints, &files, "etcd-password"),
        with_user("wrong", &endpoints, &files, "wrong-etcd-password"),
        asks("right", "right"),
        asks("wrong", "wrong"),
        asks("bearer", "bearer"),
        asks("broken", "broken"),
        asks("oauth2", "oauth2"),
        asks("granted", "granted"),
        asks("header", "header"),
        // A source is a name, whatever it looks like.
        asks("elsewhere", elsewhere),
        policy("pushed", alert("pushed")),
        policy("am", alert("am")),
        wrong_user,
        run(
            "by-hand",
            "demo",
            json!({ "rule": { "all": true }, "allowSingleMember": true }),
        ),
    ];
    let text: Vec<String> = objects.iter().map(Value::to_string).collect();
    defragd.put("objects.yaml", &text.join("\n---\n"))?;
    defragd.start().await?;

    for (token, wanted) in [(GUESSED, 401), (planted("webhook"), 200)] {
        let delivery = delivery(&defragd, "pushed").bearer_auth(token);
        deliver(delivery, wanted).await;
    }
    for (password, wanted) in [(GUESSED, 401), (planted("webhook-password"), 200)] {
        let delivery = delivery(&defragd, "pushed-by-user").basic_auth(USER, Some(password));
        deliver(delivery, wanted).await;
    }
    let decisions = [
        ("wrong", "AuthFailed"),
        ("bearer", "AuthFailed"),
        ("broken", "AuthFailed"),
        ("oauth2", "AuthFailed"),
        ("granted", "AuthFailed"),
        ("am", "AuthFailed"),
        ("header", "AuthFailed"),
        ("elsewhere", "SourceUnknown"),
        ("wrong-user", "ProbeFailed"),
    ];
    let all_said = |s: &Status| {
        let told = decisions
            .iter()
            .all(|(policy, reason)| s.decision(policy) == *reason);
        // Whatever is decided after the run: the source was asked, and the delivery was taken.
        let fires = |policy: &str| s.policy(policy)["signal"]["state"] == "Firing";
        told && fires("right") && fires("pushed") && is_complete(s.item("EtcdDefrag", "by-hand"))
    };
    until(&defragd, "every secret to be used", all_said).await?;
    assert_eq!(
        cluster.defragmentations().await?,
        [1.0],
        "with the right password"
    );

    let asked = talkative.received_requests().await.expect("recorded");
    let used = |header: &str| (asked.iter()).any(|r| r.headers["authorization"] == header);
    assert!(used(&format!("Bearer {GRANTED}")));

    let log = defragd.logged();
    for word in [
        "broken-bearer cannot be used",
        "DEBUG defragd",
        "DEBUG reqwest",
    ] {
        assert!(
            log.contains(word),
            "a log that tells all that it can says {word}: {log}"
        );
    }
    let mut produced = vec![
        ("the log".to_owned(), defragd.logged()),
        ("metrics".to_owned(), defragd.page("/metrics").await?),
        ("status".to_owned(), defragd.status_text().await?),
        (
            "status as JSON".to_owned(),
            defragd.status().await?.0.to_string(),
        ),
        ("lint".to_owned(), lint(&defragd, &files, configured)),
    ];
    state(&defragd.state(), &mut produced);
    defragd.stop().await?;
    produced.push(("the log of the stop".to_owned(), defragd.logged()));
    nothing_is_told(&produced);
    Ok(())
}

fn planted(name: &str) -> &'static str {
    let found = PLANTED.iter().find(|(file, _)| *file == name);
    found.map(|(_, content)| *content).expect("it is planted")
}

fn delivery(defragd: &Defragd, source: &str) -> reqwest::RequestBuilder {
    let message = json!({
        "version": "4", "truncatedAlerts": 0,
        "alerts": [{
            "status": "firing", "labels": { "alertname": "a" },
            "startsAt": jiff::Timestamp::now().to_string(), "endsAt": "0001-01-01T00:00:00Z",
        }],
    });
    let url = format!("http://{}/api/v1/alerts/{source}", defragd.address());
    reqwest::Client::new().post(&url).body(message.to_string())
}

async fn deliver(delivery: reqwest::RequestBuilder, wanted: u16) {
    let answer = delivery.send().await.expect("it answers");
    assert_eq!(answer.status().as_u16(), wanted);
    let words = answer.text().await.expect("words");
    assert!(!words.contains("planted"), "{words}");
}

/// What lint says of all of it, and of a key that is none.
fn lint(defragd: &Defragd, files: &Files, sources: Value) -> String {
    let mut config: Value = json!({ "sources": sources });
    let https = json!({
        "url": "https://127.0.0.1:1", "certFile": files.of("no-key"), "keyFile": files.of("no-key"),
    });
    config["sources"]
        .as_array_mut()
        .expect("a list")
        .push(json!({ "name": "no-key", "prometheus": https }));
    let path = defragd.folder().join("with-no-key.conf");
    fs::write(&path, config.to_string()).expect("a file of the test");
    let mut said = String::new();
    for output in ["text", "json"] {
        let output = Command::new(env!("CARGO_BIN_EXE_defragd"))
            .args([
                "lint",
                "--for",
                "standalone",
                "--output",
                output,
                "--config",
            ])
            .arg(&path)
            .arg(defragd.objects())
            .output()
            .expect("the binary starts");
        said.push_str(&String::from_utf8_lossy(&output.stdout));
        said.push_str(&String::from_utf8_lossy(&output.stderr));
    }
    assert!(said.contains("no-key"), "{said}");
    said
}

/// Every file of the state folder.
fn state(folder: &Path, produced: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder can be listed") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            state(&path, produced);
        } else {
            let content = fs::read(&path).expect("a file of the state can be read");
            produced.push((
                path.display().to_string(),
                String::from_utf8_lossy(&content).into(),
            ));
        }
    }
}

fn nothing_is_told(produced: &[(String, String)]) {
    let client = reqwest::Client::new();
    let basic = |user: &str, password: &str| {
        let request = client
            .get("http://localhost")
            .basic_auth(user, Some(password))
            .build();
        let header = request.expect("a request").headers()["authorization"].clone();
        let header = header.to_str().expect("text").to_owned();
        header.trim_start_matches("Basic ").to_owned()
    };
    let mut secrets: Vec<String> = PLANTED
        .iter()
        .filter(|(name, _)| *name != "etcd-user")
        .flat_map(|(_, content)| content.split("\n\n"))
        .chain([GUESSED, GRANTED, NO_KEY])
        .map(str::to_owned)
        .collect();
    secrets.push(basic(USER, planted("right-password")));
    secrets.push(basic(USER, planted("wrong-password")));
    secrets.push(basic(USER, planted("alertmanager-password")));
    secrets.push(basic(USER, planted("webhook-password")));
    secrets.push(basic("defragd", planted("client-secret")));
    for (place, text) in produced {
        assert!(
            !text.is_empty() || place.ends_with("lock"),
            "{place} is empty"
        );
        for secret in &secrets {
            assert!(
                !text.contains(secret.as_str()),
                "{secret} is told in {place}:\n{text}"
            );
        }
    }
}
