//! Several URLs that answer for one source, as an HA pair does. The replicas here
//! are fakes: their faults are what is looked at.

use std::time::Duration;

use super::*;

fn pair(urls: &[&str], more: &str) -> Arc<PrometheusSource> {
    let urls: Vec<String> = urls.iter().map(|url| format!("'{url}'")).collect();
    let specs: Vec<SourceSpec> = serde_yaml::from_str(&format!(
        "[{{name: main, prometheus: {{urls: [{}] {more}}}}}]",
        urls.join(", ")
    ))
    .expect("the test's own configuration");
    Sources::from_config(validate(specs).expect("the test's own configuration"))
        .expect("a client")
        .prometheus("main")
        .expect("the only source")
        .clone()
}

async fn asked(server: &MockServer) -> usize {
    requests(server).await.len()
}

#[tokio::test]
async fn the_first_is_asked_as_long_as_it_answers() {
    let (a, b) = (answering(ok(&["7"])).await, answering(ok(&["1"])).await);
    let source = pair(&[&a.uri(), &b.uri()], "");
    for _ in 0..3 {
        assert_eq!(read(&source, "x").await.state, SignalState::Firing);
    }
    assert_eq!((asked(&a).await, asked(&b).await), (3, 0));
}

#[tokio::test]
async fn another_replica_answers_for_one_that_is_out_of_order_and_goes_on_to() {
    for status in [500, 502, 503, 504] {
        let a = serving([
            Mock::given(path(QUERY))
                .respond_with(ResponseTemplate::new(status))
                .up_to_n_times(1),
            Mock::given(path(QUERY)).respond_with(ok(&["1"])),
        ])
        .await;
        let b = answering(ok(&["7"])).await;
        let source = pair(&[&a.uri(), &b.uri()], "");
        for _ in 0..3 {
            assert_eq!(read(&source, "x").await.state, SignalState::Firing);
        }
        assert_eq!((asked(&a).await, asked(&b).await), (1, 3), "{status}");
        let stats = source.stats();
        assert_eq!(stats.requests[&status.to_string()], 1);
        assert_eq!(stats.requests["200"], 3);
    }
}

#[tokio::test]
async fn a_replica_that_is_gone_or_hangs_is_passed_over_within_the_time_limit() {
    let b = answering(ok(&["7"])).await;
    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", gone.local_addr().expect("an address"));
    drop(gone);
    let source = pair(&[&url, &b.uri()], "");
    assert_eq!(read(&source, "x").await.state, SignalState::Firing);

    let a = answering(ok(&["7"]).set_delay(Duration::from_secs(60))).await;
    let source = pair(&[&a.uri(), &b.uri()], ", timeout: 2s");
    for _ in 0..2 {
        assert_eq!(read(&source, "x").await.state, SignalState::Firing);
    }
    assert_eq!(asked(&a).await, 1);
    assert_eq!(source.stats().requests["timeout"], 1);
}

#[tokio::test]
async fn refusals_are_the_same_everywhere_and_are_not_asked_for_twice() {
    for (status, reason) in [
        (422, Reason::QueryInvalid),
        (401, Reason::AuthFailed),
        (429, Reason::RateLimited),
    ] {
        let a = answering(ResponseTemplate::new(status).set_body_string("no")).await;
        let b = answering(ok(&["7"])).await;
        let reading = read(&pair(&[&a.uri(), &b.uri()], ""), "x").await;
        assert_error(&reading, reason, "no");
        assert_eq!(asked(&b).await, 0, "{status}");
    }
}

#[tokio::test]
async fn when_none_answers_the_last_one_says_why() {
    let a = answering(ResponseTemplate::new(500)).await;
    let b = answering(ResponseTemplate::new(503).set_body_string("starting")).await;
    let source = pair(&[&a.uri(), &b.uri()], "");
    assert_error(
        &read(&source, "x").await,
        Reason::SourceUnavailable,
        "starting",
    );
    assert_eq!((asked(&a).await, asked(&b).await), (1, 1));
    // The first is still the first.
    read(&source, "x").await;
    assert_eq!((asked(&a).await, asked(&b).await), (2, 2));
}

#[tokio::test]
async fn s19_a_replica_that_wants_to_be_left_alone_is_passed_over() {
    let busy = ResponseTemplate::new(503).insert_header("Retry-After", "300");
    let a = answering(busy.clone()).await;
    let b = answering(ResponseTemplate::new(500)).await;
    let source = pair(&[&a.uri(), &b.uri()], "");
    for _ in 0..2 {
        let reading = read(&source, "x").await;
        assert_error(&reading, Reason::SourceUnavailable, "HTTP 500");
    }
    assert_eq!((asked(&a).await, asked(&b).await), (1, 2));

    let (a, b) = (answering(busy.clone()).await, answering(busy).await);
    let source = pair(&[&a.uri(), &b.uri()], "");
    assert_error(&read(&source, "x").await, Reason::SourceUnavailable, "503");
    let reading = read(&source, "x").await;
    assert_error(&reading, Reason::SourceUnavailable, "left alone until");
    assert_eq!((asked(&a).await, asked(&b).await), (1, 1));
}
