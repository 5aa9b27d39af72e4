use super::*;

fn external(name: &str, selector: &str) -> Metric {
    Metric::External {
        name: name.to_owned(),
        selector: selector.to_owned(),
    }
}

fn described(api_version: &str, kind: &str, name: &str) -> DescribedObject {
    DescribedObject {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
    }
}

fn object(described: DescribedObject, selector: &str) -> Metric {
    Metric::Object {
        described,
        name: "etcd_free".to_owned(),
        selector: selector.to_owned(),
    }
}

fn received(status: u16, headers: &[(&str, &str)], body: &str) -> Received {
    let mut response = http::Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    let (head, ()) = response.body(()).unwrap().into_parts();
    let now: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
    Received::new(head, body.as_bytes().to_vec(), now, now)
}

fn refused(metric: &Metric, status: u16, body: &str) -> Refusal {
    received(status, &[], body).items(metric).unwrap_err()
}

fn reason_and_message(refusal: Refusal) -> (Reason, String) {
    match refusal {
        Refusal::Failed(Failure { reason, message }) => (reason, message),
        Refusal::Missing(why) => (Reason::NoData, why),
    }
}

#[test]
fn paths_are_those_of_an_autoscaler() {
    let path = |metric: &Metric, place: Option<Place>| path(metric, "team", place.as_ref());
    assert_eq!(
        path(&external("etcd_reclaimable", ""), None).unwrap(),
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/team/etcd_reclaimable"
    );
    // S24: nothing of a name or a selector gets out of its place.
    let odd = external("a|b?c#d&é+", "cluster in (a,b),!old,x=y");
    assert_eq!(
        path(&odd, None).unwrap(),
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/team/a%7Cb%3Fc%23d%26%C3%A9%2B\
         ?labelSelector=cluster+in+%28a%2Cb%29%2C%21old%2Cx%3Dy"
    );
    let pod = object(described("v1", "Pod", "etcd-0"), "disk=fast");
    let place = |version, resource: Option<&str>| {
        let resource = resource.map(str::to_owned);
        Some(Place { version, resource })
    };
    assert_eq!(
        path(&pod, place("v1beta2", Some("pods"))).unwrap(),
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/team/pods/etcd-0/etcd_free\
         ?metricLabelSelector=disk%3Dfast"
    );
    let own = object(described("v1", "Namespace", "team"), "");
    assert_eq!(
        path(&own, place("v1beta1", None)).unwrap(),
        "/apis/custom.metrics.k8s.io/v1beta1/namespaces/team/metrics/etcd_free"
    );
    let other = object(described("v1", "Namespace", "other"), "");
    let (reason, message) = reason_and_message(path(&other, place("v1beta1", None)).unwrap_err());
    assert_eq!(reason, Reason::QueryInvalid);
    assert!(message.contains("own namespace only"), "{message}");
}

#[test]
fn s87_answers_of_all_versions_are_read() {
    let body = r#"{"kind":"ExternalMetricValueList","items":[
        {"metricName":"m","metricLabels":null,"timestamp":"2026-01-31T11:59:00Z","value":"1500m"},
        {"metricName":"","metricLabels":{"cluster":"main"},"timestamp":null,"windowSeconds":60,"value":7}
    ]}"#;
    let items = received(200, &[], body).items(&external("m", "")).unwrap();
    assert_eq!(items.len(), 2);
    assert_eq!(
        (items[0].value.as_str(), items[0].labels.len()),
        ("1500m", 0)
    );
    assert_eq!(items[0].metric.as_deref(), Some("m"));
    assert!(items[0].at.is_some());
    assert_eq!((items[1].value.as_str(), items[1].at), ("7", None));
    assert_eq!(items[1].metric, None);
    assert_eq!(items[1].labels["cluster"], "main");
    assert_eq!(items[1].window, SignedDuration::from_mins(1));

    let pod = object(described("v1", "Pod", "etcd-0"), "");
    for named in [
        r#""metricName":"etcd_free""#,
        r#""metric":{"name":"etcd_free"}"#,
    ] {
        let body = format!(
            r#"{{"items":[{{"describedObject":{{"kind":"Pod","namespace":"team","name":"etcd-0",
            "apiVersion":"/v1"}},{named},"timestamp":"2026-01-31T11:59:00Z","value":"5"}}]}}"#
        );
        let items = received(200, &[], &body).items(&pod).unwrap();
        assert_eq!(items[0].metric.as_deref(), Some("etcd_free"));
        let about = items[0].about.clone().unwrap();
        assert_eq!(about.name.as_deref(), Some("etcd-0"));
    }
    for empty in [r#"{"items":[]}"#, r#"{"items":null}"#] {
        let items = received(200, &[], empty).items(&pod).unwrap();
        assert!(items.is_empty(), "{empty}");
    }
    for broken in [
        "",
        "<html>",
        r#"{"items":[{"value":null}]}"#,
        r#"{"items":7}"#,
        // No list at all is no empty one.
        "{}",
        r#"{"status":"ok"}"#,
    ] {
        let refusal = received(200, &[], broken).items(&pod).unwrap_err();
        assert_eq!(reason_and_message(refusal).0, Reason::SourceAnswerUnusable);
    }
}

#[test]
fn each_refusal_has_its_reason_and_the_servers_words() {
    let metric = external("etcd_reclaimable", "");
    let status = r#"{"kind":"Status","message":"so it is","code":1}"#;
    for (code, reason) in [
        (401, Reason::AuthFailed),
        (403, Reason::AuthFailed),
        (404, Reason::NoData),
        (400, Reason::QueryInvalid),
        (422, Reason::QueryInvalid),
        (429, Reason::RateLimited),
        (500, Reason::SourceUnavailable),
        (503, Reason::SourceUnavailable),
        (504, Reason::SourceUnavailable),
        (302, Reason::SourceAnswerUnusable),
    ] {
        let (is, message) = reason_and_message(refused(&metric, code, status));
        assert_eq!(is, reason, "{code}");
        assert!(message.contains("so it is"), "{code}: {message}");
    }
    let (_, forbidden) = reason_and_message(refused(&metric, 403, status));
    assert!(
        forbidden.contains("list on * of external.metrics.k8s.io")
            && forbidden.contains("rbac.metricsApis"),
        "{forbidden}"
    );
    let pod = object(described("v1", "Pod", "etcd-0"), "");
    let (_, forbidden) = reason_and_message(refused(&pod, 403, status));
    assert!(
        forbidden.contains("get on * of custom.metrics.k8s.io"),
        "{forbidden}"
    );
    // Text instead of a status, and far too much of it.
    let (_, long) = reason_and_message(refused(&metric, 503, &"no ".repeat(5000)));
    assert!(long.len() < 600, "{}", long.len());
}

#[test]
fn a_pause_that_is_asked_for_is_bounded() {
    let pause = |seconds: &str| {
        let answer = received(429, &[("retry-after", seconds)], "");
        answer.pause().map(|(wait, _)| wait)
    };
    assert_eq!(pause("30"), Some(SignedDuration::from_secs(30)));
    assert_eq!(pause("999999999"), Some(SignedDuration::from_mins(10)));
    assert_eq!(pause("soon"), None);
}

#[test]
fn a_clock_that_is_off_shows_in_the_date() {
    let ahead = |date: &str| received(200, &[("date", date)], "{}").ahead;
    assert_eq!(ahead("Sat, 31 Jan 2026 12:00:01 GMT"), SignedDuration::ZERO);
    assert_eq!(
        ahead("Sat, 31 Jan 2026 12:10:00 GMT").as_secs(),
        600,
        "the half second is a guess"
    );
    assert_eq!(ahead("some day"), SignedDuration::ZERO);
}

#[test]
fn kinds_are_looked_up_in_what_is_served() {
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let group = json(r#"{"versions":[{"version":"v1beta1"},{"version":"v1beta2"}]}"#);
    assert_eq!(kinds::version(Some(&group)).unwrap(), "v1beta2");
    let group = json(r#"{"versions":[{"version":"v1beta1"}]}"#);
    assert_eq!(kinds::version(Some(&group)).unwrap(), "v1beta1");
    let empty = json(r#"{"versions":null}"#);
    for unknown in [
        None,
        Some(json(r#"{"versions":[{"version":"v9"}]}"#)),
        Some(empty),
    ] {
        let refusal = kinds::version(unknown.as_ref()).unwrap_err();
        assert!(matches!(refusal, Refusal::Missing(_)));
    }

    let list = json(
        r#"{"resources":[
            {"name":"pods/status","kind":"Pod","namespaced":true},
            {"name":"pods","kind":"Pod","namespaced":true},
            {"name":"deployments","kind":"Deployment","namespaced":true},
            {"name":"namespaces","kind":"Namespace","namespaced":false},
            {"name":"nodes","kind":"Node","namespaced":false}]}"#,
    );
    let find = |api: &str, kind: &str| kinds::resource(&described(api, kind, "x"), Some(&list));
    assert_eq!(find("v1", "Pod").unwrap().as_deref(), Some("pods"));
    assert_eq!(
        find("apps/v1", "Deployment").unwrap().as_deref(),
        Some("deployments.apps")
    );
    assert_eq!(find("v1", "Namespace").unwrap(), None);
    assert_eq!(
        reason_and_message(find("v1", "Node").unwrap_err()).0,
        Reason::QueryInvalid
    );
    assert!(matches!(
        find("v1", "Etcd").unwrap_err(),
        Refusal::Missing(_)
    ));
    for other in ["{}", "[]", r#"{"versions":7,"resources":7}"#] {
        let other = json(other);
        let version = kinds::version(Some(&other)).unwrap_err();
        assert_eq!(reason_and_message(version).0, Reason::SourceAnswerUnusable);
        let kind = kinds::resource(&described("v1", "Pod", "x"), Some(&other)).unwrap_err();
        assert_eq!(reason_and_message(kind).0, Reason::SourceAnswerUnusable);
    }
    let gone = kinds::resource(&described("foo.io/v1", "Foo", "x"), None);
    assert!(matches!(gone.unwrap_err(), Refusal::Missing(_)));
    assert_eq!(
        kinds::resources_path(&described("apps/v1", "Deployment", "x")),
        "/apis/apps/v1"
    );
}
