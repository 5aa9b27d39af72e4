//! What answers mean for a signal, and what is asked behind them.

use jiff::SignedDuration;

use super::*;

#[tokio::test]
async fn an_html_page_is_not_a_prometheus() {
    let server =
        answering(ResponseTemplate::new(200).set_body_raw("<html>Sign in</html>", "text/html"))
            .await;
    let reading = read(&source(&server.uri(), ""), "x").await;
    assert_error(
        &reading,
        Reason::SourceAnswerUnusable,
        "is not a Prometheus API",
    );
}

#[tokio::test]
async fn s17_a_refused_query_says_why() {
    let body =
        json!({"status": "error", "errorType": "bad_data", "error": "unknown function \"foo\""});
    let server = answering(ResponseTemplate::new(400).set_body_json(body)).await;
    let reading = read(&source(&server.uri(), ""), "x").await;
    assert_error(&reading, Reason::QueryInvalid, "unknown function");
    assert!(reading.reason.is_configuration());
}

#[tokio::test]
async fn s11_s13_warnings_and_partial_answers_clear_nothing_and_infos_do_not_matter() {
    for (key, value, wanted) in [
        (
            "warnings",
            json!(["store is down"]),
            SignalState::Inconclusive,
        ),
        ("isPartial", json!(true), SignalState::Inconclusive),
        (
            "infos",
            json!(["metric might not be a counter"]),
            SignalState::NotFiring,
        ),
        ("isPartial", json!(false), SignalState::NotFiring),
    ] {
        let mut body = vector(&["1"]);
        body[key] = value;
        let server = answering(ResponseTemplate::new(200).set_body_json(body)).await;
        let reading = read(&source(&server.uri(), ""), "x").await;
        assert_eq!(reading.state, wanted, "{key}: {reading:?}");
    }
}

#[tokio::test]
async fn s02_an_empty_answer_is_looked_behind() {
    let alert = signal("x < 0.5 and y > 100", None);
    let state = async |x: &[&str], y: ResponseTemplate| {
        let server = serving([
            Mock::given(Asks("x < 0.5 and y > 100")).respond_with(ok(&[])),
            Mock::given(Asks("x")).respond_with(ok(x)),
            Mock::given(Asks("y")).respond_with(y),
        ])
        .await;
        source(&server.uri(), "")
            .read(&alert, Timestamp::now(), false)
            .await
    };
    assert_eq!(
        state(&["1"], ok(&["1"])).await.state,
        SignalState::NotFiring
    );
    assert_eq!(
        state(&["NaN"], ok(&["1"])).await.state,
        SignalState::NotFiring
    );
    assert_eq!(state(&[], ok(&["1"])).await.state, SignalState::NoData);
    assert_eq!(state(&["1"], ok(&[])).await.state, SignalState::NoData);
    // A "no" that may be due to a missing part of the data proves nothing.
    let mut partial = vector(&[]);
    partial["isPartial"] = json!(true);
    let partial = ResponseTemplate::new(200).set_body_json(partial);
    assert_eq!(
        state(&["1"], partial).await.state,
        SignalState::Inconclusive
    );
    // The second question fails.
    let unavailable = state(&["1"], ResponseTemplate::new(503)).await;
    assert_error(&unavailable, Reason::SourceUnavailable, "503");
    let refused = state(&["1"], ResponseTemplate::new(422)).await;
    assert_eq!(refused.state, SignalState::Inconclusive);
}

#[tokio::test]
async fn s01_a_numeric_query_is_not_looked_behind() {
    let server = answering(ok(&[])).await;
    assert_eq!(
        read(&source(&server.uri(), ""), "x").await.state,
        SignalState::NoData
    );
    assert_eq!(requests(&server).await.len(), 1);
}

#[tokio::test]
async fn s37_a_firing_reading_tells_how_old_its_evidence_is() {
    let server = serving([
        Mock::given(Asks("x - y")).respond_with(ok(&["7"])),
        Mock::given(Asks("min(timestamp(x))")).respond_with(ok(&["1700000030.5"])),
        Mock::given(Asks("min(timestamp(y))")).respond_with(ok(&["1700000000.5"])),
    ])
    .await;
    let source = source(&server.uri(), "");
    let signal = signal("x - y", Some("5"));
    let reading = source.read(&signal, Timestamp::now(), true).await;
    assert_eq!(reading.state, SignalState::Firing);
    assert_eq!(
        reading.sampled_at,
        Some("2023-11-14T22:13:20.5Z".parse().expect("a time"))
    );
    let without = source.read(&signal, Timestamp::now(), false).await;
    assert_eq!(
        (without.state, without.sampled_at),
        (SignalState::Firing, None)
    );
}

#[tokio::test]
async fn s37_evidence_of_unknown_age_starts_nothing() {
    let server = serving([
        Mock::given(Asks("x")).respond_with(ok(&["7"])),
        Mock::given(path(QUERY))
            .respond_with(ResponseTemplate::new(503))
            .with_priority(9),
    ])
    .await;
    let reading = source(&server.uri(), "")
        .read(&signal("x", Some("5")), Timestamp::now(), true)
        .await;
    assert_eq!(reading.state, SignalState::Inconclusive, "{reading:?}");
}

#[tokio::test]
async fn s35_a_clock_that_differs_is_measured_and_taken_into_account() {
    let ahead = Timestamp::now() + SignedDuration::from_mins(10);
    let date = jiff::fmt::rfc2822::DateTimePrinter::new()
        .timestamp_to_rfc9110_string(&ahead)
        .expect("a date");
    let dated = |values: &[&str]| ok(values).insert_header("Date", date.as_str());
    let seconds = ahead.as_second().to_string();
    let server = serving([
        Mock::given(Asks("x")).respond_with(dated(&["7"])),
        Mock::given(Asks("min(timestamp(x))")).respond_with(dated(&[&seconds])),
    ])
    .await;
    let source = source(&server.uri(), "");
    assert_eq!(source.clock_skew(), None);
    let before = Timestamp::now();
    let reading = source
        .read(&signal("x", Some("5")), Timestamp::now(), true)
        .await;
    let skew = source.clock_skew().expect("a Date header");
    let off = (skew - SignedDuration::from_mins(10)).abs();
    assert!(off < SignedDuration::from_secs(20), "{skew:?}");
    let sampled_at = reading.sampled_at.expect("a time");
    assert!(
        sampled_at.duration_since(before).abs() < SignedDuration::from_secs(20),
        "{sampled_at}"
    );
}
