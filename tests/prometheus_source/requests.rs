//! How a question is sent: method, parameters, headers, credentials, redirects.

use super::*;

#[tokio::test]
async fn fires_by_post_without_time_and_keeps_a_path_prefix() {
    let answer = Mock::given(method("POST"))
        .and(path("/prefix/api/v1/query"))
        .respond_with(ok(&["7"]));
    let server = serving([answer]).await;
    for slash in ["", "/"] {
        let reading = read(&source(&format!("{}/prefix{slash}", server.uri()), ""), "x").await;
        assert_eq!(
            (reading.state, reading.value),
            (SignalState::Firing, Some(7.0)),
            "{reading:?}"
        );
    }
    // S35
    let parameters = parameters(&requests(&server).await[0]);
    assert_eq!(parameters.keys().collect::<Vec<_>>(), ["query", "timeout"]);
    assert_eq!(parameters["timeout"], "10000ms");
}

#[tokio::test]
async fn s24_special_characters_arrive_as_they_are() {
    let query = r#"max({a="&+#%=? ü\"'",b=~"x|y"})"#;
    for refuses_post in [false, true] {
        let server = answering_by(refuses_post).await;
        read(&source(&server.uri(), ""), query).await;
        let last = requests(&server).await.pop().expect("a request");
        assert_eq!(parameters(&last)["query"], query);
    }
}

#[tokio::test]
async fn s28_configured_headers_are_sent() {
    let refusal = ResponseTemplate::new(401).set_body_string("no org id");
    let server = answering_those_with("X-Scope-OrgID", "team-a", refusal).await;
    assert_error(
        &read(&source(&server.uri(), ""), "x").await,
        Reason::AuthFailed,
        "no org id",
    );
    let with = read(
        &source(&server.uri(), ", headers: {X-Scope-OrgID: team-a}"),
        "x",
    )
    .await;
    assert_eq!(with.state, SignalState::Firing);
}

/// The methods of its requests, in their order.
async fn methods(server: &MockServer) -> Vec<String> {
    let requests = requests(server).await;
    requests.iter().map(|r| r.method.to_string()).collect()
}

#[tokio::test]
async fn s21_post_refused_is_asked_by_get_from_then_on() {
    for refusal in [403, 405, 501] {
        let server = serving([
            Mock::given(method("POST")).respond_with(ResponseTemplate::new(refusal)),
            Mock::given(method("GET")).respond_with(ok(&["7"])),
        ])
        .await;
        let source = source(&server.uri(), "");
        assert_eq!(read(&source, "x").await.state, SignalState::Firing);
        assert_eq!(read(&source, "x").await.state, SignalState::Firing);
        assert_eq!(methods(&server).await, ["POST", "GET", "GET"], "{refusal}");
    }
}

#[tokio::test]
async fn s21_both_refused_is_not_asked_again_and_again() {
    let server = answering(ResponseTemplate::new(403).set_body_string("forbidden")).await;
    assert_error(
        &read(&source(&server.uri(), ""), "x").await,
        Reason::AuthFailed,
        "forbidden",
    );
    assert_eq!(requests(&server).await.len(), 2);
}

#[tokio::test]
async fn s21_get_too_long_is_asked_by_post_from_then_on() {
    let server = serving([
        Mock::given(method("POST"))
            .respond_with(ResponseTemplate::new(405))
            .up_to_n_times(1),
        Mock::given(method("POST")).respond_with(ok(&["7"])),
        Mock::given(method("GET"))
            .and(Asks("short"))
            .respond_with(ok(&["7"])),
        Mock::given(method("GET"))
            .respond_with(ResponseTemplate::new(414))
            .with_priority(9),
    ])
    .await;
    let source = source(&server.uri(), "");
    for query in ["short", "long", "short"] {
        assert_eq!(
            read(&source, query).await.state,
            SignalState::Firing,
            "{query}"
        );
    }
    let wanted = ["POST", "GET", "GET", "POST", "POST"];
    assert_eq!(methods(&server).await, wanted);
}

#[tokio::test]
async fn s22_credentials_do_not_follow_to_another_host() {
    let (_folder, token) = secret_file("hunter2");
    let other = answering(ok(&["7"])).await;
    let more = bearer(&token);
    for status in [301, 302, 303, 307, 308] {
        let to = format!("{}{QUERY}?query=x", other.uri());
        let server =
            answering(ResponseTemplate::new(status).insert_header("Location", to.as_str())).await;
        let reading = read(&source(&server.uri(), &more), "x").await;
        let port = other.address().port().to_string();
        assert_error(&reading, Reason::SourceAnswerUnusable, &port);
        assert!(!reading.message.contains("hunter2"));
    }
    assert!(requests(&other).await.is_empty());
}

#[tokio::test]
async fn s22_redirects_within_the_host_are_followed_with_query_and_credentials() {
    let (_folder, token) = secret_file("secret");
    for status in [301, 302, 307, 308] {
        let server = serving([
            Mock::given(path("/moved/api/v1/query"))
                .and(header("Authorization", "Bearer secret"))
                .and(Asks("x"))
                .respond_with(ok(&["7"])),
            Mock::given(path(QUERY)).respond_with(Moved(status)),
        ])
        .await;
        let reading = read(&source(&server.uri(), &bearer(&token)), "x").await;
        assert_eq!(reading.state, SignalState::Firing, "{status}: {reading:?}");
    }
}

/// Redirects to `/moved` on the same host, with the URL's own query.
struct Moved(u16);

impl Respond for Moved {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let query = request
            .url
            .query()
            .map_or(String::new(), |query| format!("?{query}"));
        let to = format!("/moved{QUERY}{query}");
        ResponseTemplate::new(self.0).insert_header("Location", to.as_str())
    }
}

#[tokio::test]
async fn s22_endless_redirects_end() {
    let server = answering(ResponseTemplate::new(307).insert_header("Location", QUERY)).await;
    let reading = read(&source(&server.uri(), ""), "x").await;
    assert_error(
        &reading,
        Reason::SourceAnswerUnusable,
        "redirects more than",
    );
    assert!(requests(&server).await.len() <= 7);
}

#[tokio::test]
async fn s26_a_rotated_token_is_used_by_the_next_poll() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    let refusal = ResponseTemplate::new(401);
    let server = answering_those_with("Authorization", "Bearer new", refusal).await;
    let source = source(&server.uri(), &bearer(&token));
    assert_error(&read(&source, "x").await, Reason::AuthFailed, "token");
    std::fs::write(&token, "old\n").expect("a file");
    let reading = read(&source, "x").await;
    assert_error(&reading, Reason::AuthFailed, "401");
    assert!(!reading.message.contains("old"));
    std::fs::write(&token, "new\n").expect("a file");
    assert_eq!(read(&source, "x").await.state, SignalState::Firing);
}

/// Refuses, and lets the token be rotated meanwhile.
struct Rotates(PathBuf);

impl Respond for Rotates {
    fn respond(&self, _: &Request) -> ResponseTemplate {
        std::fs::write(&self.0, "new").expect("a file");
        ResponseTemplate::new(401)
    }
}

#[tokio::test]
async fn s27_401_reads_the_secret_again_once_and_never_loops() {
    let (_folder, token) = secret_file("old");
    let rotates = Rotates(token.clone());
    let server = answering_those_with("Authorization", "Bearer new", rotates).await;
    assert_eq!(
        read(&source(&server.uri(), &bearer(&token)), "x")
            .await
            .state,
        SignalState::Firing
    );

    let server = answering(ResponseTemplate::new(401)).await;
    assert_error(
        &read(&source(&server.uri(), &bearer(&token)), "x").await,
        Reason::AuthFailed,
        "401",
    );
    assert_eq!(requests(&server).await.len(), 1);
}

#[tokio::test]
async fn basic_auth_comes_from_files_and_is_never_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let (user, password) = (folder.path().join("user"), folder.path().join("password"));
    std::fs::write(&user, "Aladdin\n").expect("a file");
    std::fs::write(&password, "open sesame\n").expect("a file");
    let wanted = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
    let stranger = ResponseTemplate::new(404);
    let server = answering_those_with("Authorization", wanted, stranger).await;
    let more = format!(
        ", basicAuth: {{usernameFile: '{}', passwordFile: '{}'}}, headers: {{X-Key: sesame}}",
        user.display(),
        password.display()
    );
    let sources = sources(&server.uri(), &more).expect("a client");
    let source = sources.prometheus("main").expect("the source");
    assert_eq!(read(source, "x").await.state, SignalState::Firing);
    assert!(!format!("{sources:?}").contains("sesame"));
}

#[test]
fn unusable_certificates_are_refused_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let garbage = folder.path().join("garbage.pem");
    std::fs::write(&garbage, "not a certificate").expect("a file");
    let garbage = garbage.display();
    for (more, word) in [
        (
            ", caFile: /nonexistent/ca.pem".to_owned(),
            "/nonexistent/ca.pem",
        ),
        (format!(", caFile: '{garbage}'"), "garbage.pem"),
        (
            format!(", certFile: '{garbage}', keyFile: '{garbage}'"),
            "garbage.pem",
        ),
    ] {
        let error = sources("https://127.0.0.1:1", &more)
            .expect_err("refused")
            .to_string();
        assert!(
            error.contains(word) && error.contains("\"main\""),
            "{error}"
        );
    }
}
