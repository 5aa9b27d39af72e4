//! Broken networks, slow and busy sources, and what callers share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

#[tokio::test]
async fn s19_429_with_retry_after_is_respected_for_every_query() {
    let server = answering(ResponseTemplate::new(429).insert_header("Retry-After", "30")).await;
    let source = source(&server.uri(), "");
    let reading = read(&source, "x").await;
    assert_error(&reading, Reason::RateLimited, "slow down");
    let reading = read(&source, "y").await;
    assert_error(&reading, Reason::RateLimited, "left alone until");
    let again = read(&source, "z").await;
    assert_eq!(again.message, reading.message, "written once");
    assert_eq!(requests(&server).await.len(), 1);
}

#[tokio::test]
async fn s19_a_source_that_starts_or_is_gone_is_unavailable() {
    let server = answering(
        ResponseTemplate::new(503)
            .set_body_string("Service Unavailable")
            .insert_header("Retry-After", "300"),
    )
    .await;
    let busy = source(&server.uri(), "");
    let reading = read(&busy, "x").await;
    assert_error(&reading, Reason::SourceUnavailable, "Service Unavailable");
    let reading = read(&busy, "y").await;
    assert_error(&reading, Reason::SourceUnavailable, "left alone until");
    assert_eq!(requests(&server).await.len(), 1);

    let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", gone.local_addr().expect("an address"));
    drop(gone);
    let reading = read(&source(&url, ""), "x").await;
    assert_error(&reading, Reason::SourceUnavailable, "refused");
}

/// Who waits for the limit when the source asks for a pause sends nothing any more.
#[tokio::test]
async fn s19_a_pause_counts_for_those_who_wait_for_their_turn() {
    let server = answering(ResponseTemplate::new(429).insert_header("Retry-After", "300")).await;
    let source = source(&server.uri(), ", requestsPerSecond: 5, burst: 1");
    let queries = ["a", "b", "c", "d", "e"].map(|query| read(&source, query));
    for reading in join_all(queries).await {
        assert_eq!(reading.reason, Reason::RateLimited, "{reading:?}");
    }
    assert_eq!(requests(&server).await.len(), 1);
}

/// A server that hands each connection to `serve` with its number.
async fn tcp_server<F>(serve: impl Fn(TcpStream, usize) -> F + Send + 'static) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        for number in 0.. {
            let Ok((stream, _)) = listener.accept().await else {
                return;
            };
            tokio::spawn(serve(stream, number));
        }
    });
    url
}

/// Reads the head of a request and its form, as far as one packet brings it.
async fn read_some(stream: &mut TcpStream) {
    let mut buffer = [0; 4096];
    let _ = stream.read(&mut buffer).await;
}

#[tokio::test]
async fn s19_a_reset_connection_is_tried_again_within_the_limit() {
    let url = tcp_server(|mut stream, number| async move {
        read_some(&mut stream).await;
        if number > 0 {
            let body = vector(&["7"]).to_string();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    })
    .await;
    assert_eq!(
        read(&source(&url, ""), "x").await.state,
        SignalState::Firing
    );
}

#[tokio::test]
async fn s30_one_byte_at_a_time_ends_with_the_time_limit() {
    let url = tcp_server(|mut stream, _| async move {
        read_some(&mut stream).await;
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
            .await;
        // The pace of the fault itself; nothing waits for it.
        while stream.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let started = Instant::now();
    let source = source(&url, ", timeout: 400ms");
    assert_error(
        &read(&source, "x").await,
        Reason::SourceUnavailable,
        "within 400ms",
    );
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(source.stats().requests["timeout"], 1);
}

#[tokio::test]
async fn s30_an_endless_body_is_cut_off() {
    let url = tcp_server(|mut stream, _| async move {
        read_some(&mut stream).await;
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            .await;
        let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
        while stream.write_all(chunk.as_bytes()).await.is_ok() {}
    })
    .await;
    let reading = read(&source(&url, ", maxBodyBytes: 64Ki"), "x").await;
    assert_error(&reading, Reason::SourceAnswerUnusable, "maxBodyBytes");
}

#[tokio::test]
async fn a_broken_off_answer_is_transient() {
    let url = tcp_server(|mut stream, _| async move {
        read_some(&mut stream).await;
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"status\"")
            .await;
    })
    .await;
    assert_error(
        &read(&source(&url, ""), "x").await,
        Reason::SourceUnavailable,
        "broke off",
    );
}

#[tokio::test]
async fn t101_identical_queries_are_asked_once_a_tick() {
    let server = answering(ok(&["7"]).set_delay(Duration::from_millis(50))).await;
    let source = source(&server.uri(), ", requestsPerSecond: 100");
    let tick = Timestamp::now();
    let signals = [signal("x", Some("5")), signal("x", Some("9"))];
    let readings = join_all((0..100).map(|i| source.read(&signals[i % 2], tick, false))).await;
    assert!(
        readings
            .iter()
            .step_by(2)
            .all(|r| r.state == SignalState::Firing)
    );
    assert!(
        readings
            .iter()
            .skip(1)
            .step_by(2)
            .all(|r| r.state == SignalState::NotFiring)
    );
    assert_eq!(requests(&server).await.len(), 1);
    source.read(&signals[0], Timestamp::now(), false).await;
    assert_eq!(requests(&server).await.len(), 2);
    let stats = source.stats();
    assert_eq!(
        (stats.requests["200"], stats.shared, stats.latency.count),
        (2, 99, 2)
    );
}

#[tokio::test]
async fn s31_a_slow_query_or_source_delays_no_other() {
    let slow = serving([
        Mock::given(Asks("slow")).respond_with(ok(&["7"]).set_delay(Duration::from_secs(60))),
        Mock::given(Asks("fast")).respond_with(ok(&["7"])),
    ])
    .await;
    let other = answering(ok(&["7"])).await;
    let (slow, other) = (source(&slow.uri(), ""), source(&other.uri(), ""));
    let waiting = tokio::spawn({
        let slow = slow.clone();
        async move { read(&slow, "slow").await }
    });
    let quick = async { (read(&slow, "fast").await, read(&other, "x").await) };
    let (fast, elsewhere) = tokio::time::timeout(Duration::from_secs(5), quick)
        .await
        .expect("not delayed");
    assert_eq!(
        (fast.state, elsewhere.state),
        (SignalState::Firing, SignalState::Firing)
    );
    assert!(!waiting.is_finished());
    waiting.abort();
}

#[tokio::test]
async fn t101_the_limit_of_a_source_holds_and_is_bounded_by_its_time_limit() {
    let server = answering(ok(&["7"])).await;
    let source = source(
        &server.uri(),
        ", requestsPerSecond: 0.01, burst: 2, timeout: 200ms",
    );
    for query in ["a", "b"] {
        assert_eq!(read(&source, query).await.state, SignalState::Firing);
    }
    assert_error(
        &read(&source, "c").await,
        Reason::RateLimited,
        "requestsPerSecond",
    );
    assert_eq!(requests(&server).await.len(), 2);
}

#[tokio::test]
async fn an_answer_after_a_failure_is_taken_at_once() {
    let failures = Arc::new(AtomicUsize::new(0));
    struct FailsOnce(Arc<AtomicUsize>);
    impl Respond for FailsOnce {
        fn respond(&self, _: &Request) -> ResponseTemplate {
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 => ResponseTemplate::new(502),
                _ => ok(&["7"]),
            }
        }
    }
    let server = answering(FailsOnce(failures)).await;
    let source = source(&server.uri(), "");
    assert_error(&read(&source, "x").await, Reason::SourceUnavailable, "502");
    assert_eq!(read(&source, "x").await.state, SignalState::Firing);
}
