//! What other makes than Prometheus answer: see `tests/fixtures/answers/README.md`.

use std::path::Path;

use serde::Deserialize;

use super::*;

/// One answer, and what a policy with `above: 5` makes of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    what: String,
    status: u16,
    #[serde(rename = "type", default = "json_type")]
    content_type: String,
    body: String,
    state: String,
    reason: String,
    words: String,
}

fn json_type() -> String {
    "application/json".to_owned()
}

async fn all_mean_what_they_should(file: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/answers")
        .join(file);
    let text = std::fs::read_to_string(file).expect("a fixture");
    let answers: Vec<Written> = serde_yaml::from_str(&text).expect("a fixture");
    assert!(!answers.is_empty());
    for answer in answers {
        let template = ResponseTemplate::new(answer.status)
            .set_body_raw(answer.body.as_str(), &answer.content_type);
        let server = answering(template).await;
        let reading = read(&source(&server.uri(), ""), "x").await;
        assert_eq!(
            (reading.state.as_str(), reading.reason.as_str()),
            (answer.state.as_str(), answer.reason.as_str()),
            "{}: {reading:?}",
            answer.what
        );
        assert!(
            reading.message.contains(&answer.words),
            "{}: {reading:?}",
            answer.what
        );
    }
}

#[tokio::test]
async fn thanos() {
    all_mean_what_they_should("thanos.yaml").await;
}

#[tokio::test]
async fn mimir() {
    all_mean_what_they_should("mimir.yaml").await;
}

#[tokio::test]
async fn victoria_metrics() {
    all_mean_what_they_should("victoriametrics.yaml").await;
}
