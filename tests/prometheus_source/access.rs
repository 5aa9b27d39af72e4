//! Who asks: OAuth2 client credentials, headers from files, parameters, proxies.
//! Token servers and proxies here are fakes: what they do when they fail is what
//! is looked at.

use std::sync::atomic::{AtomicUsize, Ordering};

use wiremock::matchers::{body_string_contains, header_exists};

use super::*;

const TOKEN: &str = "/oauth2/token";

/// A token server that gives out `token-1`, `token-2` and so on.
struct Counting(AtomicUsize, u64);

impl Respond for Counting {
    fn respond(&self, _: &Request) -> ResponseTemplate {
        let number = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        ResponseTemplate::new(200).set_body_json(json!({
            "access_token": format!("token-{number}"), "token_type": "Bearer", "expires_in": self.1,
        }))
    }
}

async fn token_server(answer: impl Respond + 'static) -> MockServer {
    serving([Mock::given(path(TOKEN)).respond_with(answer)]).await
}

/// The fields of a client of that token server, whose secret stands in `secret`.
fn oauth2(server: &str, secret: &Path) -> String {
    format!(
        ", oauth2: {{tokenURL: '{server}{TOKEN}', clientID: 'de fragd', clientSecretFile: '{}', \
         scopes: [read, metrics], endpointParams: {{audience: prometheus}}}}",
        secret.display()
    )
}

#[tokio::test]
async fn oauth2_asks_for_one_token_and_uses_it_until_it_expires() {
    let (_folder, secret) = secret_file("hunter/2\n");
    let tokens = token_server(Counting(AtomicUsize::new(0), 3600)).await;
    let stranger = ResponseTemplate::new(404);
    let server = answering_those_with("Authorization", "Bearer token-1", stranger).await;
    let source = source(&server.uri(), &oauth2(&tokens.uri(), &secret));
    let asked = ["x", "y", "z"].map(|query| read(&source, query));
    for reading in futures::future::join_all(asked).await {
        assert_eq!(reading.state, SignalState::Firing, "{reading:?}");
    }
    let asked = requests(&tokens).await;
    assert_eq!(asked.len(), 1, "one token for all");
    let form = parameters(&asked[0]);
    assert_eq!(form["grant_type"], "client_credentials");
    assert_eq!(form["scope"], "read metrics");
    assert_eq!(form["audience"], "prometheus");
    assert!(!form.contains_key("client_secret"));
    // "de+fragd:hunter%2F2": both are escaped before they are encoded.
    assert_eq!(
        asked[0].headers["authorization"],
        "Basic ZGUrZnJhZ2Q6aHVudGVyJTJGMg=="
    );
}

#[tokio::test]
async fn oauth2_a_token_that_expired_is_replaced() {
    let (_folder, secret) = secret_file("s");
    let tokens = token_server(Counting(AtomicUsize::new(0), 0)).await;
    let server = answering(ok(&["7"])).await;
    let source = source(&server.uri(), &oauth2(&tokens.uri(), &secret));
    for _ in 0..2 {
        assert_eq!(read(&source, "x").await.state, SignalState::Firing);
    }
    let used: Vec<String> = (requests(&server).await.iter())
        .map(|r| format!("{:?}", r.headers["authorization"]))
        .collect();
    assert_eq!(used, ["\"Bearer token-1\"", "\"Bearer token-2\""]);
}

#[tokio::test]
async fn oauth2_a_refused_token_is_asked_for_again_once() {
    let (_folder, secret) = secret_file("s");
    let tokens = token_server(Counting(AtomicUsize::new(0), 3600)).await;
    let refusal = ResponseTemplate::new(401);
    let server = answering_those_with("Authorization", "Bearer token-2", refusal).await;
    let source_ = source(&server.uri(), &oauth2(&tokens.uri(), &secret));
    assert_eq!(read(&source_, "x").await.state, SignalState::Firing);
    assert_eq!(requests(&tokens).await.len(), 2);

    // Refused for good: one more token a question, no loop.
    let server = answering(ResponseTemplate::new(401)).await;
    let source_ = source(&server.uri(), &oauth2(&tokens.uri(), &secret));
    let reading = read(&source_, "x").await;
    assert_error(&reading, Reason::AuthFailed, "401");
    assert_eq!(requests(&tokens).await.len(), 4);
    assert_eq!(requests(&server).await.len(), 2);
}

#[tokio::test]
async fn oauth2_a_token_server_that_refuses_is_named_with_its_code_and_without_the_secret() {
    let (_folder, secret) = secret_file("hunter2");
    let server = answering(ok(&["7"])).await;
    for (answer, reason, word) in [
        (
            ResponseTemplate::new(401).set_body_json(json!({"error": "invalid_client"})),
            Reason::AuthFailed,
            "invalid_client",
        ),
        (
            ResponseTemplate::new(400)
                .set_body_json(json!({"error": "invalid_scope", "error_description": "hunter2?"})),
            Reason::AuthFailed,
            "HTTP 400",
        ),
        (
            ResponseTemplate::new(200).set_body_string("<html>log in</html>"),
            Reason::AuthFailed,
            "access_token",
        ),
        (
            ResponseTemplate::new(200).set_body_string(" ".repeat(100_000)),
            Reason::AuthFailed,
            "longer than",
        ),
        (
            ResponseTemplate::new(302).insert_header("Location", server.uri().as_str()),
            Reason::AuthFailed,
            "redirects",
        ),
        (
            ResponseTemplate::new(503),
            Reason::SourceUnavailable,
            "token server",
        ),
    ] {
        let tokens = token_server(answer).await;
        let source = source(&server.uri(), &oauth2(&tokens.uri(), &secret));
        let reading = read(&source, "x").await;
        assert_error(&reading, reason, word);
        assert!(!reading.message.contains("hunter2"), "{reading:?}");
    }
    assert!(
        requests(&server).await.is_empty(),
        "nobody asks without a token"
    );

    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", gone.local_addr().expect("an address"));
    drop(gone);
    let reading = read(&source(&server.uri(), &oauth2(&url, &secret)), "x").await;
    assert_error(&reading, Reason::SourceUnavailable, "token server");
}

#[tokio::test]
async fn oauth2_a_server_that_takes_the_secret_in_the_form_only_gets_it_there() {
    let (_folder, secret) = secret_file("s");
    let refusal = ResponseTemplate::new(401).set_body_json(json!({"error": "invalid_client"}));
    let tokens = serving([
        Mock::given(body_string_contains("client_secret=s"))
            .and(body_string_contains("client_id=de+fragd"))
            .respond_with(Counting(AtomicUsize::new(0), 0)),
        Mock::given(header_exists("Authorization"))
            .respond_with(refusal)
            .with_priority(9),
    ])
    .await;
    let server = answering(ok(&["7"])).await;
    let source = source(&server.uri(), &oauth2(&tokens.uri(), &secret));
    for _ in 0..2 {
        assert_eq!(read(&source, "x").await.state, SignalState::Firing);
    }
    assert_eq!(requests(&tokens).await.len(), 3, "the form is remembered");
}

#[tokio::test]
async fn oauth2_a_rotated_secret_is_used_for_the_next_token() {
    let (_folder, secret) = secret_file("old");
    let tokens = serving([
        // "de+fragd:new"
        Mock::given(header("Authorization", "Basic ZGUrZnJhZ2Q6bmV3"))
            .respond_with(Counting(AtomicUsize::new(0), 3600)),
        Mock::given(path(TOKEN))
            .respond_with(ResponseTemplate::new(401))
            .with_priority(9),
    ])
    .await;
    let server = answering(ok(&["7"])).await;
    let source = source(&server.uri(), &oauth2(&tokens.uri(), &secret));
    assert_error(&read(&source, "x").await, Reason::AuthFailed, "401");
    std::fs::write(&secret, "new").expect("a file");
    assert_eq!(read(&source, "x").await.state, SignalState::Firing);
}

/// Wrong secrets are counted, and lock a client out.
#[tokio::test]
async fn oauth2_a_token_server_that_refuses_is_left_alone_whatever_is_asked() {
    let (_folder, secret) = secret_file("wrong-secret");
    let server = answering(ok(&["7"])).await;
    let busy = ResponseTemplate::new(503).insert_header("Retry-After", "3600");
    for (answer, wanted) in [
        // By the header, and by the form.
        (ResponseTemplate::new(401), 2),
        (ResponseTemplate::new(400), 2),
        (ResponseTemplate::new(403), 1),
        (ResponseTemplate::new(200).set_body_string("<html>"), 1),
        (busy, 1),
    ] {
        let tokens = token_server(answer).await;
        let source = source(&server.uri(), &oauth2(&tokens.uri(), &secret));
        let queries: Vec<String> = (0..50).map(|i| format!("x{i}")).collect();
        let at_once = queries[..40].iter().map(|query| read(&source, query));
        let mut readings = futures::future::join_all(at_once).await;
        for query in &queries[40..] {
            readings.push(read(&source, query).await);
        }
        for reading in readings {
            assert_eq!(reading.state, SignalState::Error, "{reading:?}");
            assert!(reading.message.contains("token server"), "{reading:?}");
        }
        assert_eq!(requests(&tokens).await.len(), wanted);
    }
    assert!(requests(&server).await.is_empty());
}

#[tokio::test]
async fn oauth2_a_pause_that_the_token_server_asks_for_is_kept_whatever_the_secret() {
    let (_folder, secret) = secret_file("old");
    let busy = ResponseTemplate::new(429).insert_header("Retry-After", "3600");
    let tokens = token_server(busy).await;
    let server = answering(ok(&["7"])).await;
    let source = source(&server.uri(), &oauth2(&tokens.uri(), &secret));
    for secret_now in ["old", "new"] {
        std::fs::write(&secret, secret_now).expect("a file");
        let reading = read(&source, "x").await;
        assert_error(&reading, Reason::SourceUnavailable, "429");
    }
    assert_eq!(requests(&tokens).await.len(), 1);
}

#[tokio::test]
async fn oauth2_a_source_that_refuses_good_tokens_gets_one_new_one() {
    let (_folder, secret) = secret_file("s");
    let tokens = token_server(Counting(AtomicUsize::new(0), 3600)).await;
    let server = answering(ResponseTemplate::new(401)).await;
    let source = source(&server.uri(), &oauth2(&tokens.uri(), &secret));
    for query in 0..50 {
        let reading = read(&source, &format!("x{query}")).await;
        assert_error(&reading, Reason::AuthFailed, "401");
    }
    assert_eq!(requests(&tokens).await.len(), 2);
}

/// One who gives up waiting leaves no room for another request.
#[tokio::test]
async fn oauth2_a_token_server_that_hangs_has_one_request_at_a_time() {
    let (_folder, secret) = secret_file("s");
    let slow = ResponseTemplate::new(200).set_delay(std::time::Duration::from_secs(60));
    let tokens = token_server(slow).await;
    let server = answering(ok(&["7"])).await;
    let more = format!("{}, timeout: 300ms", oauth2(&tokens.uri(), &secret));
    let source = source(&server.uri(), &more);
    for query in 0..5 {
        let reading = read(&source, &format!("x{query}")).await;
        assert_error(&reading, Reason::SourceUnavailable, "credentials");
    }
    assert_eq!(requests(&tokens).await.len(), 1);
}

#[tokio::test]
async fn oauth2_a_token_server_that_hangs_ends_with_the_time_limit() {
    let (_folder, secret) = secret_file("s");
    let slow = ResponseTemplate::new(200).set_delay(std::time::Duration::from_secs(60));
    let tokens = token_server(slow).await;
    let server = answering(ok(&["7"])).await;
    let more = format!("{}, timeout: 300ms", oauth2(&tokens.uri(), &secret));
    let reading = read(&source(&server.uri(), &more), "x").await;
    assert_error(&reading, Reason::SourceUnavailable, "credentials");
}

#[tokio::test]
async fn s28_a_tenant_from_a_file_is_read_for_each_request() {
    let (_folder, tenant) = secret_file("team-a\n");
    let server = answering_those_with("X-Scope-OrgID", "team-b", ok(&["1"])).await;
    let more = format!(", headerFiles: {{X-Scope-OrgID: '{}'}}", tenant.display());
    let source = source(&server.uri(), &more);
    assert_eq!(read(&source, "x").await.state, SignalState::NotFiring);
    assert_eq!(
        requests(&server).await[0].headers["x-scope-orgid"],
        "team-a"
    );
    std::fs::write(&tenant, "team-b\n").expect("a file");
    assert_eq!(read(&source, "x").await.state, SignalState::Firing);
    std::fs::remove_file(&tenant).expect("a file");
    assert_error(&read(&source, "x").await, Reason::AuthFailed, "secret-file");
}

#[tokio::test]
async fn further_parameters_go_with_every_request_by_both_methods() {
    for refuses_post in [false, true] {
        let server = answering_by(refuses_post).await;
        let more =
            ", params: {dedup: true, partial_response: false, 'extra_filters[]': '{a=\"&\"}'}";
        read(&source(&server.uri(), more), "x").await;
        let last = requests(&server).await.pop().expect("a request");
        let sent = parameters(&last);
        assert_eq!(sent["query"], "x");
        assert_eq!(sent["dedup"], "true");
        assert_eq!(sent["partial_response"], "false");
        assert_eq!(sent["extra_filters[]"], "{a=\"&\"}");
    }
}

#[tokio::test]
async fn a_configured_source_shows_no_secret() {
    let (_folder, secret) = secret_file("hunter2");
    let server = answering(ok(&["7"])).await;
    let tokens = token_server(Counting(AtomicUsize::new(0), 3600)).await;
    let more = format!(
        "{}, params: {{key: hunter3}}",
        oauth2(&tokens.uri(), &secret)
    );
    let sources = sources(&server.uri(), &more).expect("a client");
    let source: &Arc<PrometheusSource> = sources.prometheus("main").expect("the source");
    read(source, "x").await;
    let shown = format!("{sources:?}");
    for secret in ["hunter", "token-1"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

/// A server that repeats every header that it was sent, as some do to be helpful.
struct Repeating(u16, &'static str);

impl Respond for Repeating {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let headers: Vec<String> = (request.headers.iter())
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or_default()))
            .filter(|header| header.contains("hunter") || header.contains("asic"))
            .collect();
        let (before, after) = self.1.split_once('*').expect("a place for the headers");
        let body = format!("{before}{}{after}", headers.join(" and "));
        ResponseTemplate::new(self.0).set_body_string(body)
    }
}

#[tokio::test]
async fn what_a_server_repeats_of_a_secret_is_not_shown() {
    let (_folder, secret) = secret_file("hunter2");
    let file = secret.display();
    let api = r#"{"status": "error", "errorType": "bad_data", "error": "you sent *"}"#;
    let warns = r#"{"status": "success", "warnings": ["you sent *"], "data":
        {"resultType": "vector", "result": [{"metric": {}, "value": [1, "1"]}]}}"#;
    let no_number = r#"{"status": "success", "data":
        {"resultType": "vector", "result": [{"metric": {}, "value": [1, "*"]}]}}"#;
    for (code, body) in [
        (400, api),
        (401, "you sent *"),
        (403, r#"{"message": "you sent *"}"#),
        (503, "* is not welcome"),
        (200, "you sent *"),
        (200, api),
        (200, warns),
        (200, no_number),
        (401, "not hunter2: *"),
    ] {
        let server = answering(Repeating(code, body)).await;
        for more in [
            bearer(&secret),
            format!(", headerFiles: {{X-Scope-OrgID: '{file}'}}"),
            format!(", basicAuth: {{username: user, passwordFile: '{file}'}}"),
        ] {
            let reading = read(&source(&server.uri(), &more), "x").await;
            let unusable = [SignalState::Error, SignalState::Inconclusive];
            assert!(unusable.contains(&reading.state), "{reading:?}");
            assert!(reading.message.contains('…'), "{reading:?}");
            // The second is that of user and password.
            for planted in ["hunter2", "dXNlcjpodW50ZXIy"] {
                assert!(!reading.message.contains(planted), "{reading:?}");
            }
        }
    }
}

/// What the other half of the test below is told by.
const CHILD: &str = "DEFRAGD_TEST_ASKS_BY_PROXY";

/// The environment of a process cannot be changed in mid-test, so this test is
/// also the process that it starts: there it asks, with and without the wish.
#[tokio::test]
async fn a_proxy_of_the_environment_is_used_only_when_asked_for() {
    // Nobody listens there: only a proxy can answer for it.
    let nowhere = "http://127.0.0.1:1";
    if std::env::var_os(CHILD).is_some() {
        let without = read(&source(nowhere, ""), "x").await;
        assert_error(&without, Reason::SourceUnavailable, "refused");
        let with = read(&source(nowhere, ", proxyFromEnvironment: true"), "x").await;
        assert_eq!(with.state, SignalState::Firing, "{with:?}");
        return;
    }
    let proxy = answering(ok(&["7"])).await;
    let uri = proxy.uri();
    let this = std::env::current_exe().expect("this test");
    let name = "access::a_proxy_of_the_environment_is_used_only_when_asked_for";
    let output = tokio::task::spawn_blocking(move || {
        std::process::Command::new(this)
            .args(["--exact", name])
            .env(CHILD, "1")
            .env("HTTP_PROXY", uri)
            .env_remove("NO_PROXY")
            .env_remove("no_proxy")
            .output()
    })
    .await
    .expect("a thread")
    .expect("a process");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
    assert_eq!(requests(&proxy).await.len(), 1);
}
