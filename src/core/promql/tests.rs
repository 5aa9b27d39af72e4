use proptest::prelude::*;

use super::*;
use crate::core::quantity::Quantity;

fn query(text: &str) -> PromQuery {
    PromQuery::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Queries as people write them, for the tests that go over all of them.
const CORPUS: &[&str] = &[
    "max(etcd_mvcc_db_total_size_in_bytes - etcd_mvcc_db_total_size_in_use_in_bytes)",
    "last_over_time(etcd_mvcc_db_total_size_in_use_in_bytes{job=~\".*etcd.*\"}[5m]) / \
     last_over_time(etcd_mvcc_db_total_size_in_bytes[5m]) < 0.5 and \
     etcd_mvcc_db_total_size_in_use_in_bytes > 104857600",
    "predict_linear(etcd_mvcc_db_total_size_in_bytes[4h], 4*60*60) > etcd_server_quota_backend_bytes",
    "sum by (cluster, job) (rate(x[5m] offset 1h)) / on (cluster) group_left (team) y",
    "sum(x) without (instance) > bool 5",
    "topk(3, x unless on (instance) up{job!~\"a|b\"} == 0)",
    "max_over_time((x > 5)[30m:1m] @ end() offset -5m)",
    "{__name__=~\"etcd_.+\", job=\"a,b\"} or vector(0) # a comment",
    "-x ^ 2 + histogram_quantile(0.99, sum by (le) (rate(d_bucket[5m])))",
    "count_values('version', build_info) >= 2",
    "absent(up{job=\"etcd\"} @ 1609746000)",
    "quantile(0.5, x) atan2 1e3 % 0x1F",
    "fill_left + on (a) fill (0) y",
];

// S16
#[test]
fn blank_text_is_refused() {
    for text in ["", " ", "\n\t ", "\u{a0}"] {
        assert_eq!(PromQuery::parse(text), Err(PromqlError::Empty), "{text:?}");
    }
    // A comment is not blank, but is no expression either.
    assert!(matches!(
        PromQuery::parse("# nothing"),
        Err(PromqlError::Syntax { .. })
    ));
}

// S16
#[test]
fn an_error_names_its_place() {
    let cases = [
        ("max(x))", 1, 7, ")"),
        ("max(x", 1, 6, ""),
        ("x + * y", 1, 5, "* y"),
        ("foo bar", 1, 5, "bar"),
        ("sum by (a b) (x)", 1, 11, "b) (x)"),
        ("x{a=\"b\"", 1, 8, ""),
        ("x{a=b}", 1, 5, "b}"),
        ("x{a=\"b\" c=\"d\"}", 1, 9, "c=\"d\"}"),
        ("x >\n  0.5 and\n  y ! 3", 3, 5, "! 3"),
        ("x[5m", 1, 5, ""),
        ("rate(x[5q])", 1, 8, "5q])"),
        ("x = 5", 1, 3, "= 5"),
        ("ü", 1, 1, "ü"),
        ("x offset y", 1, 10, "y"),
        ("x > 'unclosed", 1, 5, "'unclosed"),
        ("unknown(x)", 1, 1, "unknown(x)"),
        ("1 + rate(x)", 1, 5, "rate(x)"),
        ("x and 5", 1, 3, "and 5"),
        ("{\"a.b\", }, c", 1, 10, ", c"),
        ("some.metric > 1", 1, 5, ".metric > 1"),
    ];
    for (text, line, column, near) in cases {
        match PromQuery::parse(text) {
            Err(PromqlError::Syntax { place, message }) => {
                let wanted = Place {
                    line,
                    column,
                    near: near.to_owned(),
                };
                assert_eq!(place, wanted, "{text:?}: {message}");
                assert!(!message.is_empty());
            }
            other => panic!("{text:?}: {other:?}"),
        }
    }
}

#[test]
fn an_error_reads_well() {
    let message = |text: &str| PromQuery::parse(text).unwrap_err().to_string();
    assert_eq!(
        message("max(x))"),
        "the query is not valid PromQL at line 1, column 7 (near `)`): unexpected right \
         parenthesis ')'"
    );
    assert_eq!(
        message("foo bar"),
        "the query is not valid PromQL at line 1, column 5 (near `bar`): unexpected `bar`"
    );
    assert_eq!(
        message("max("),
        "the query is not valid PromQL at line 1, column 5 (at its end): unclosed left parenthesis"
    );
}

#[test]
fn limits_hold() {
    let long = format!("x{{a=\"{}\"}}", "b".repeat(MAX_BYTES));
    assert!(matches!(
        PromQuery::parse(&long),
        Err(PromqlError::TooLong { .. })
    ));
    let deep = format!(
        "{}x{}",
        "(".repeat(MAX_DEPTH + 1),
        ")".repeat(MAX_DEPTH + 1)
    );
    assert!(matches!(
        PromQuery::parse(&deep),
        Err(PromqlError::TooComplex { .. })
    ));
    let wide = format!("x{}", "+x".repeat(MAX_OPERATORS + 1));
    assert!(matches!(
        PromQuery::parse(&wide),
        Err(PromqlError::TooComplex { .. })
    ));
    query(&format!(
        "{}x{}",
        "(".repeat(MAX_DEPTH),
        ")".repeat(MAX_DEPTH)
    ));
    query(&format!("x{}", "+x".repeat(MAX_OPERATORS)));
}

#[test]
fn durations_that_would_break_the_parser_are_refused() {
    for text in [
        "x[1e30]",
        "x offset 1e30",
        "x offset Inf",
        "x offset -NaN",
        "x[99999999999s5m]",
        "x[1e400:]",
        "rate(x[5m:1e99])",
        "x offset\n+ inf",
        "x[5m:1e99]",
        "x[5m :Inf]",
    ] {
        assert!(
            matches!(PromQuery::parse(text), Err(PromqlError::Syntax { .. })),
            "{text}"
        );
    }
    query("max_over_time(x[300]) + y offset 60");
}

// S08
#[test]
fn results_that_cannot_be_compared_are_refused() {
    for (text, kind) in [
        ("x[5m]", "range vector"),
        ("x[5m:1m]", "range vector"),
        ("\"x\"", "string"),
    ] {
        assert!(
            matches!(PromQuery::parse(text), Err(PromqlError::NotComparable { kind: k, .. }) if k == kind),
            "{text}"
        );
    }
    assert!(query("1 + 1").is_scalar());
    assert!(query("scalar(x) > bool 5").is_scalar());
    assert!(!query("vector(1)").is_scalar());
}

// Prometheus 3 lets names and labels carry any UTF-8.
#[test]
fn utf8_names_parse() {
    let utf8 = query("{\"name.with.dots\", \"label.ü\"=\"x\"} > 5");
    assert_eq!(
        utf8.selectors(),
        ["{\"label.ü\"=\"x\",__name__=\"name.with.dots\"}"]
    );
    query(&utf8.presence()[0]);
}

// S02
#[test]
fn presence_asks_for_what_the_condition_speaks_about() {
    let cases: &[(&str, &[&str])] = &[
        ("x < 0.5", &["x"]),
        ("5 < x{a=\"b\"}", &["x{a=\"b\"}"]),
        ("(x / y) < 0.5", &["x / y"]),
        ("a / b < 0.5 and b > 100", &["a / b", "b"]),
        ("(a > 1 and b > 2) and c > 3", &["a", "b", "c"]),
        ("a > 1 unless b > 2", &["a"]),
        ("a > 1 or b > 2", &["a or b"]),
        ("(a > 1 and c > 0) or b > 2", &["(a and c) or b"]),
        ("count(x > 5)", &["count(x)"]),
        ("max by (job) (a - b > 100)", &["max by (job) (a - b)"]),
        ("abs(x > 5)", &["abs(x)"]),
        (
            "max_over_time((x > 5)[10m:1m])",
            &["max_over_time((x)[10m:1m])"],
        ),
        // The pairs that are compared must exist, not only one side.
        (
            "predict_linear(a[4h], 3600) > quota",
            &["predict_linear(a[4h], 3600) - quota"],
        ),
        (
            "a > on (x) group_left (y) b + c",
            &["a - on (x) group_left (y) (b + c)"],
        ),
        // A guard is not the question: without it the quotient is unknown.
        ("x / (y > 0) > 0.8", &["x / (y > 0)"]),
        ("-(x > 5)", &["-(x)"]),
        ("(x > bool 5) == 1", &["x > bool 5"]),
        // "False" by being absent: nothing to ask for.
        ("absent(x)", &[]),
        ("absent(x) == 1", &[]),
        ("x > 5 or absent(x)", &[]),
        ("ALERTS{alertname=\"Full\", alertstate=\"firing\"}", &[]),
        ("vector(1) > 2", &[]),
        ("hour() > 22", &[]),
        ("x > 5 and on () hour() > 22", &["x"]),
        // Not filtering: its own selectors.
        ("x", &["x"]),
        ("sum(x) / sum(y{a!=\"b\"})", &["x", "y{a!=\"b\"}"]),
        ("rate(x[5m] offset 1h) + x offset 1h", &["x offset 1h"]),
        ("1 + 1", &[]),
    ];
    for (text, wanted) in cases {
        let query = query(text);
        assert_eq!(query.presence(), *wanted, "{text}");
        for text in query.presence() {
            self::query(text);
        }
    }
}

#[test]
fn what_filters_is_a_comparison() {
    for text in [
        "x > 5",
        "x and y",
        "x unless y",
        "x > 5 or y",
        "absent(x)",
        "count(x > 5)",
        "2 * (x > 5)",
        "(x > 5) / y",
    ] {
        assert!(query(text).is_comparison(), "{text}");
    }
    for text in [
        "x",
        "x > bool 5",
        "x / (y > 0)",
        "x or y",
        "scalar(x > 5)",
        "vector(scalar(x > 5))",
    ] {
        assert!(!query(text).is_comparison(), "{text}");
    }
}

// S37
#[test]
fn selectors_keep_offsets_and_lose_ranges() {
    let cases: &[(&str, &[&str])] = &[
        ("rate(x{a=\"b\"}[5m]) > y", &["x{a=\"b\"}", "y"]),
        ("x - x", &["x"]),
        ("x offset 1h", &["x offset 1h"]),
        (
            "max_over_time(x[1h:5m] offset 2h) + y @ end()",
            &["x offset 2h", "y @ end()"],
        ),
        (
            "max_over_time((x offset 1h)[1h:5m] offset 30m)",
            &["x offset 1h30m"],
        ),
        ("max_over_time((x offset 1h)[1h:5m] offset -1h)", &["x"]),
        ("topk(scalar(n), x)", &["n", "x"]),
        (
            "{a=\"quote\\\" and \\\\ back\"}",
            &["{a=\"quote\\\" and \\\\ back\"}"],
        ),
        ("time()", &[]),
    ];
    for (text, wanted) in cases {
        assert_eq!(query(text).selectors(), *wanted, "{text}");
    }
}

#[test]
fn look_back_adds_up() {
    let cases = [
        ("x", None),
        ("rate(x[5m])", Some(300)),
        ("rate(x[5m] offset 1h)", Some(3900)),
        ("max_over_time(rate(x[5m])[1h:1m])", Some(3900)),
        ("x offset -5m", None),
        ("rate(x[5m]) + predict_linear(y[4h], 60)", Some(4 * 3600)),
    ];
    for (text, seconds) in cases {
        assert_eq!(
            query(text).max_range(),
            seconds.map(SignedDuration::from_secs),
            "{text}"
        );
    }
}

#[test]
fn hints_doubt_units_that_do_not_go_together() {
    let hint = |text: &str, limit: &str| {
        let limit = Quantity::parse(limit).unwrap();
        query(text)
            .unit_hint(&Threshold::Above(limit))
            .map(|h| h.message)
    };
    for (text, limit, word) in [
        ("a_bytes / b_bytes", "100Mi", "ratio"),
        ("sum(a_bytes) / sum(b_bytes)", "80", "percentage"),
        ("1 - a_bytes / b_bytes", "1Gi", "ratio"),
        ("free_ratio", "100Mi", "ratio"),
        ("a / b", "100Mi", "ratio"),
        ("100 * (a_bytes / b_bytes)", "100Mi", "percentage"),
        ("a_bytes / b_bytes * 100", "0.8", "fraction"),
        ("max(a_bytes - b_bytes)", "0.5", "bytes"),
        ("last_over_time({__name__=\"a_bytes\"}[5m])", "100", "bytes"),
    ] {
        let message = hint(text, limit).unwrap_or_else(|| panic!("{text} above {limit}: no hint"));
        assert!(
            message.contains(word) && message.contains("above: "),
            "{text}: {message}"
        );
    }
    for (text, limit) in [
        ("a_bytes / b_bytes", "0.5"),
        ("a_bytes / b_bytes", "1500m"),
        ("a_bytes / b_bytes * 100", "95"),
        ("max(a_bytes - b_bytes)", "100Mi"),
        ("a_bytes / 1024", "80"),
        ("a_bytes", "0"),
        ("count(a_bytes)", "2"),
        ("rate(a_bytes[5m])", "1"),
    ] {
        assert_eq!(hint(text, limit), None, "{text} above {limit}");
    }
}

#[test]
fn names_of_metrics_draw_the_same_doubts() {
    let hint = |name: &str, limit: &str| {
        let limit = Quantity::parse(limit).unwrap();
        name_hint(name, &Threshold::Below(limit)).map(|h| h.message)
    };
    for (name, limit, word) in [
        ("etcd_free_ratio", "100Mi", "looks like bytes"),
        ("etcd:free_ratio:max", "50", "looks like a percentage"),
        ("etcd-used-percent", "500m", "looks like a fraction"),
        ("etcd_used_percentage_max", "1Gi", "looks like bytes"),
        ("etcd_free_bytes", "0.5", "is less than 1Ki"),
        ("etcd_ratio_of_all_BYTES", "500m", "is less than 1Ki"),
    ] {
        let message = hint(name, limit).unwrap_or_else(|| panic!("{name} below {limit}: no hint"));
        assert!(
            message.starts_with("the metric ") && message.contains(word),
            "{name}: {message}"
        );
    }
    for (name, limit) in [
        ("etcd_free_ratio", "0.5"),
        ("etcd_used_percent", "80"),
        ("etcd_free_bytes", "100Mi"),
        ("etcd_written_bytes_per_second", "10"),
        ("etcd_read_bytes_count", "10"),
        ("etcd_ratios_bytesize", "10"),
    ] {
        assert_eq!(hint(name, limit), None, "{name} below {limit}");
    }
}

#[test]
fn a_query_that_always_fires_draws_a_hint() {
    for text in ["x", "x > bool 5", "sum(x)", "a / b"] {
        assert!(query(text).alert_hint().is_some(), "{text}");
    }
    for text in [
        "x > 5",
        "absent(x)",
        "ALERTS{alertstate=\"firing\"}",
        "a unless b",
    ] {
        assert!(query(text).alert_hint().is_none(), "{text}");
    }
}

#[test]
fn queries_are_equal_by_text() {
    assert_eq!(query(" x > 5 \n"), query("x > 5"));
    assert_ne!(query("x > 5"), query("x>5"));
    assert_eq!(format!("{:?}", query("x")), "PromQuery(\"x\")");
}

#[test]
fn each_start_of_a_query_can_be_completed() {
    // The search for an error's place rests on this.
    for text in CORPUS {
        query(text);
        place::assert_starts_completable(text);
    }
}

#[test]
fn presence_and_selectors_are_queries_themselves() {
    for text in CORPUS {
        let parsed = query(text);
        for text in parsed.presence().iter().chain(parsed.selectors()) {
            query(text);
        }
    }
}

proptest! {
    // The process must not die of a policy: no panic, whatever the text.
    #[test]
    fn any_text_parses_or_is_refused(text in "\\PC{0,60}") {
        let _ = PromQuery::parse(&text);
    }

    #[test]
    fn any_mix_of_pieces_parses_or_is_refused(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "x", "sum", "rate", "(", ")", "[", "]", "{", "}", "5m", "1e99", "0x", "-", "+", ">", "==",
            "bool", "and", "unless", "or", "by", "on", "group_left", "offset", "@", "start", "\"a\"", "'",
            "`", "\\", "=", "=~", "\"(\"", ",", ":", "#", "\n", "inf", "NaN", ".5", "é", "fill", "08", "Inf",
            "1.5h", "$", "_", "::", "9999999999", "absent", "vector", "time",
        ]), 0..24),
        separator in prop::sample::select(vec!["", " "]),
    ) {
        if let Ok(parsed) = PromQuery::parse(&pieces.join(separator)) {
            for text in parsed.selectors().iter().chain(parsed.presence()) {
                prop_assert!(PromQuery::parse(text).is_ok(), "{text} of {parsed}");
            }
        }
    }

    #[test]
    fn damaged_queries_parse_or_are_refused(
        which in 0..CORPUS.len(), cut in any::<prop::sample::Index>(), junk in "\\PC{0,3}",
    ) {
        let text = CORPUS[which];
        let mut cut = cut.index(text.len());
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        let _ = PromQuery::parse(&format!("{}{junk}{}", &text[..cut], &text[cut..]));
        let _ = PromQuery::parse(&text[..cut]);
    }
}

#[test]
fn names_of_any_characters_are_read_and_asked_about() {
    for (text, selectors, presence) in [
        (
            r#"{"etcd.db.size"} > 5"#,
            vec![r#"{__name__="etcd.db.size"}"#],
            vec![r#"{__name__="etcd.db.size"}"#],
        ),
        (
            r#"sum by ("k8s.pod") ({"etcd.db.size", "k8s.cluster"="a"}) > 5"#,
            vec![r#"{"k8s.cluster"="a",__name__="etcd.db.size"}"#],
            vec![r#"sum by ("k8s.pod") ({"k8s.cluster"="a",__name__="etcd.db.size"})"#],
        ),
        (
            r#"{"a.b"} / on ("k8s.pod") {"größe", job="x"} < 0.5"#,
            vec![r#"{__name__="a.b"}"#, r#"{__name__="größe",job="x"}"#],
            vec![r#"{__name__="a.b"} / on ("k8s.pod") {__name__="größe",job="x"}"#],
        ),
    ] {
        let parsed = query(text);
        let mut found = parsed.selectors().to_vec();
        found.sort();
        assert_eq!(found, selectors, "{text}");
        assert_eq!(parsed.presence(), presence, "{text}");
        for text in parsed.presence().iter().chain(parsed.selectors()) {
            query(text);
        }
    }
}

#[test]
fn a_dotted_name_outside_of_quotes_gets_the_remedy() {
    let error = PromQuery::parse("max(etcd.db.size) > 1").unwrap_err();
    assert!(error.to_string().contains("{\"some.metric\"}"), "{error}");
}
