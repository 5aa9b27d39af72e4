use reqwest::StatusCode;
use reqwest::header::HeaderMap;

use super::*;
use crate::signals::http::Hidden;

fn answer(status: u16, body: &str) -> Result<Answer, Failure> {
    let received = Received {
        status: StatusCode::from_u16(status).unwrap(),
        headers: HeaderMap::new(),
        body: body.as_bytes().to_vec(),
        way: 0,
        hidden: Hidden::default(),
    };
    interpret(&received)
}

fn result_of(data: &str) -> AnswerKind {
    answer(200, &format!(r#"{{"status":"success","data":{data}}}"#))
        .unwrap()
        .result
}

#[test]
fn vectors_scalars_and_special_values_are_read() {
    let data = r#"{"resultType":"vector","result":[
        {"metric":{"__name__":"x","a":"b"},"value":[1700000000.123,"0.5"]},
        {"metric":{},"value":[1700000000,"+Inf"]},
        {"value":[1700000000,"-Inf"]},
        {"metric":{},"value":[1700000000,"1e+06"]}
    ],"stats":{}}"#;
    let AnswerKind::Vector(series) = result_of(data) else {
        panic!("no vector")
    };
    let values: Vec<f64> = series.iter().map(|s| s.value).collect();
    assert_eq!(values, [0.5, f64::INFINITY, f64::NEG_INFINITY, 1e6]);
    assert_eq!(series[0].labels["a"], "b");
    // S07
    let scalar = result_of(r#"{"resultType":"scalar","result":[1,"2"]}"#);
    assert_eq!(scalar, AnswerKind::Scalar(2.0));
    let nan = result_of(r#"{"resultType":"scalar","result":[1,"NaN"]}"#);
    assert!(matches!(nan, AnswerKind::Scalar(value) if value.is_nan()));
    // S01
    assert_eq!(
        result_of(r#"{"resultType":"vector","result":[]}"#),
        AnswerKind::Vector(vec![])
    );
}

#[test]
fn s08_results_without_numbers_are_told_apart() {
    for (data, kind, count) in [
        (
            r#"{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2"]]}]}"#,
            "matrix",
            1,
        ),
        (r#"{"resultType":"string","result":[1,"x"]}"#, "string", 1),
        (
            r#"{"resultType":"vector","result":[
                {"metric":{},"value":[1,"2"]},
                {"metric":{},"histogram":[1,{"count":"1","sum":"2","buckets":[]}]}]}"#,
            "native histogram",
            1,
        ),
    ] {
        assert_eq!(result_of(data), AnswerKind::Unsuitable { kind, count });
    }
}

#[test]
fn s11_s13_warnings_and_partial_answers_are_kept_and_infos_are_not() {
    let body = |extra: &str| {
        format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[]}}{extra}}}"#)
    };
    let warned = answer(200, &body(r#","warnings":["store x is down"]"#)).unwrap();
    assert_eq!(
        (warned.warnings.as_slice(), warned.partial),
        (["store x is down".to_owned()].as_slice(), false)
    );
    assert!(answer(200, &body(r#","isPartial":true"#)).unwrap().partial);
    let clean = answer(
        200,
        &body(r#","infos":["metric might not be a counter"],"warnings":null"#),
    )
    .unwrap();
    assert!(clean.warnings.is_empty() && !clean.partial);
}

#[test]
fn s10_an_error_with_status_200_is_an_error() {
    for (kind, reason) in [
        ("bad_data", Reason::QueryInvalid),
        ("execution", Reason::QueryInvalid),
        ("timeout", Reason::SourceUnavailable),
        ("odd", Reason::SourceAnswerUnusable),
    ] {
        let body = format!(r#"{{"status":"error","errorType":"{kind}","error":"because"}}"#);
        let failure = answer(200, &body).unwrap_err();
        assert_eq!(failure.reason, reason);
        assert!(failure.message.contains("because"), "{}", failure.message);
    }
}

#[test]
fn s17_s19_s20_statuses_mean_what_they_say() {
    let json = r#"{"status":"error","errorType":"bad_data","error":"1:5: parse error"}"#;
    for (status, body, reason, word) in [
        (400, json, Reason::QueryInvalid, "1:5: parse error"),
        (422, json, Reason::QueryInvalid, "parse error"),
        (
            422,
            r#"{"status":"error","errorType":"execution","error":"unavailable with Prometheus Agent"}"#,
            Reason::QueryInvalid,
            "Agent",
        ),
        (
            400,
            "<html>plain HTTP sent to HTTPS port</html>",
            Reason::SourceAnswerUnusable,
            "HTTPS",
        ),
        // S28
        (401, "no org id", Reason::AuthFailed, "no org id"),
        (403, "", Reason::AuthFailed, "403"),
        (
            404,
            "404 page not found",
            Reason::SourceAnswerUnusable,
            "path prefix",
        ),
        (429, "slow", Reason::RateLimited, "slow"),
        (500, "", Reason::SourceUnavailable, "500"),
        (
            502,
            "<html>bad gateway</html>",
            Reason::SourceUnavailable,
            "bad gateway",
        ),
        (
            503,
            "Service Unavailable",
            Reason::SourceUnavailable,
            "Service Unavailable",
        ),
        (504, "", Reason::SourceUnavailable, "504"),
        (302, "", Reason::SourceAnswerUnusable, "redirects"),
        (418, "", Reason::SourceAnswerUnusable, "418"),
    ] {
        let failure = answer(status, body).unwrap_err();
        assert_eq!(failure.reason, reason, "{status} {body}");
        assert!(
            failure.message.contains(word),
            "{status}: {}",
            failure.message
        );
    }
}

#[test]
fn answers_that_are_no_prometheus_api_say_so() {
    for body in [
        "<!DOCTYPE html><html>Login</html>",
        "  \n<html>",
        "OK",
        "",
        "\u{1}\u{2}",
    ] {
        let failure = answer(200, body).unwrap_err();
        assert_eq!(failure.reason, Reason::SourceAnswerUnusable);
        assert!(
            failure.message.contains("is not a Prometheus API"),
            "{}",
            failure.message
        );
    }
    for body in [
        "{}",
        r#"{"status":"success"}"#,
        r#"{"status":"success","data":{"resultType":"vector","result":["#,
        r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}"#,
        r#"{"status":"success","data":{"resultType":"tensor","result":[]}}"#,
        r#"{"status":"success","data":{"resultType":"scalar","result":[1,"two"]}}"#,
        "{\"status\":\"\u{0}",
    ] {
        assert_eq!(
            answer(200, body).unwrap_err().reason,
            Reason::SourceAnswerUnusable,
            "{body}"
        );
    }
}

#[test]
fn foreign_words_are_bounded() {
    let long = "x".repeat(100_000);
    for failure in [
        answer(503, &long),
        answer(200, &long),
        answer(
            422,
            &format!(r#"{{"status":"error","errorType":"{long}","error":"{long}"}}"#),
        ),
    ] {
        assert!(failure.unwrap_err().message.len() < 800);
    }
}
