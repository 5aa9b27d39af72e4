//! The few numbers of a member's `/metrics` that tell about defragmentations.
//! They answer while one runs, when Status does not.

use std::time::Duration;

use url::Url;

use crate::core::view::{DefragMetrics, MemberId};

/// A page is read for at most this long: it answers in 0.1 s also during a
/// defragmentation, and an observation does not wait for it longer.
const LIMIT_TIME: Duration = Duration::from_secs(2);

/// A page of etcd has 100 to 400 KiB.
const LIMIT_BYTES: usize = 4 * 1024 * 1024;

/// What one page said.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Page {
    /// `etcd_server_id`: whose page it is.
    pub(super) member: Option<MemberId>,
    /// `etcd_server_quota_backend_bytes`; negative when there is no quota.
    pub(super) quota: Option<i64>,
    /// Absent when the page lacks the count or the process' start.
    pub(super) defrag: Option<DefragMetrics>,
}

/// Fetches and reads a page. The error is for a log: metrics are optional.
pub(super) async fn fetch(http: &reqwest::Client, url: &Url) -> Result<Page, String> {
    let told = |e: reqwest::Error| super::error::chain(&e.without_url());
    let mut response = http
        .get(url.clone())
        .timeout(LIMIT_TIME)
        .send()
        .await
        .map_err(told)?;
    if !response.status().is_success() {
        return Err(format!("HTTP status {}", response.status()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(told)? {
        if body.len() + chunk.len() > LIMIT_BYTES {
            return Err(format!("more than {LIMIT_BYTES} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(parse(&String::from_utf8_lossy(&body)))
}

/// Reads the text format: `name{labels} value [timestamp]`, one sample a line.
fn parse(text: &str) -> Page {
    let mut page = Page::default();
    let (mut inflight, mut finished, mut process_start) = (None, None, None);
    for line in text.lines() {
        let Some((name, labels, value)) = sample(line) else {
            continue;
        };
        match name {
            "etcd_server_id" if value == 1.0 => {
                page.member = label(labels, "server_id").and_then(|id| id.parse().ok());
            }
            "etcd_server_quota_backend_bytes" => page.quota = whole(value),
            "etcd_disk_defrag_inflight" => inflight = Some(value != 0.0),
            "etcd_disk_backend_defrag_duration_seconds_count" => {
                finished = whole(value).and_then(|n| u64::try_from(n).ok());
            }
            "process_start_time_seconds" if value.is_finite() => process_start = Some(value),
            _ => {}
        }
    }
    if let (Some(finished), Some(process_start)) = (finished, process_start) {
        page.defrag = Some(DefragMetrics {
            inflight,
            finished,
            process_start,
        });
    }
    page
}

/// Splits a sample into name, labels and value. None of the metrics looked
/// for has a `}` or a blank in a label's value.
fn sample(line: &str) -> Option<(&str, &str, f64)> {
    if line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => rest.split_once('}')?,
        None => ("", rest),
    };
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some((name, labels, value))
}

fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    labels.split(',').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        (key == name).then(|| value.trim_matches('"'))
    })
}

/// A whole number that a double holds exactly.
fn whole(value: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
    (value.fract() == 0.0 && value.abs() <= EXACT).then_some(value as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# HELP etcd_disk_backend_defrag_duration_seconds The latency distribution of backend defragmentation.
# TYPE etcd_disk_backend_defrag_duration_seconds histogram
etcd_disk_backend_defrag_duration_seconds_bucket{le=\"0.1\"} 1
etcd_disk_backend_defrag_duration_seconds_bucket{le=\"+Inf\"} 3
etcd_disk_backend_defrag_duration_seconds_sum 4.5
etcd_disk_backend_defrag_duration_seconds_count 3
# TYPE etcd_disk_defrag_inflight gauge
etcd_disk_defrag_inflight 1
etcd_server_id{server_id=\"8e9e05c52164694d\"} 1
etcd_server_quota_backend_bytes 2.147483648e+09
process_start_time_seconds 1.75000000042e+09
";

    #[test]
    fn the_numbers_of_a_page_are_read_exactly() {
        let page = parse(PAGE);
        assert_eq!(page.member, Some(MemberId(0x8e9e_05c5_2164_694d)));
        assert_eq!(page.quota, Some(2_147_483_648));
        assert_eq!(
            page.defrag,
            Some(DefragMetrics {
                inflight: Some(true),
                finished: 3,
                process_start: 1_750_000_000.42
            })
        );
    }

    #[test]
    fn what_is_not_there_is_absent() {
        assert_eq!(parse(""), Page::default());
        assert_eq!(
            parse("<html>etcd_disk_defrag_inflight 1</html>"),
            Page::default()
        );
        // Before 3.4.18 there is no inflight gauge.
        let old = parse(&PAGE.replace("etcd_disk_defrag_inflight 1", ""));
        assert_eq!(old.defrag.map(|d| d.inflight), Some(None));
        // Without the process' start the count cannot be compared.
        assert_eq!(
            parse(&PAGE.replace("process_start", "process_stop")).defrag,
            None
        );
        assert_eq!(
            parse(
                "etcd_disk_backend_defrag_duration_seconds_count NaN\nprocess_start_time_seconds 1"
            )
            .defrag,
            None
        );
        assert_eq!(parse("etcd_server_quota_backend_bytes -1").quota, Some(-1));
    }

    #[test]
    fn longer_names_are_other_metrics() {
        let page = parse(
            "etcd_server_quota_backend_bytes_total 5\nxetcd_server_quota_backend_bytes 6\netcd_server_id{server_id=\"1\"} 0\n",
        );
        assert_eq!(page, Page::default());
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,300}") {
            parse(&text);
            parse(&format!("etcd_server_id{text}\nprocess_start_time_seconds{text}"));
        }
    }
}
