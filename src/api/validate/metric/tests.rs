use super::*;
use crate::api::validate::FieldError;

fn judged(yaml: &str, place: Place) -> Result<MetricSignal, Vec<FieldError>> {
    let spec: MetricSignalSpec = serde_yaml::from_str(yaml).expect("of the right types");
    let mut check = Check::at(place);
    let signal = metric(&mut check, &spec);
    check
        .finish(())
        .map(|()| signal.expect("nothing was wrong"))
}

fn said(yaml: &str) -> String {
    let errors = judged(yaml, Place::Kubernetes).expect_err(yaml);
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    errors.join("\n")
}

#[test]
fn a_selector_becomes_kubernetes_text() {
    let yaml = "{external: {name: 'a.b|c', selector: {matchLabels: {z: '', app.io/y: x}, matchExpressions: [
        {key: a, operator: In, values: [b, c]}, {key: d, operator: NotIn, values: [e]},
        {key: f, operator: Exists}, {key: g, operator: DoesNotExist}]}}, above: 100Mi}";
    let signal = judged(yaml, Place::Kubernetes).unwrap();
    let Metric::External { name, selector } = signal.metric else {
        panic!("{signal:?}");
    };
    assert_eq!(name, "a.b|c");
    assert_eq!(selector, "app.io/y=x,z=,a in (b,c),d notin (e),f,!g");
}

#[test]
fn an_object_is_of_the_core_unless_said_otherwise() {
    let of = |object: &str| {
        let yaml = format!("{{object: {{describedObject: {object}, name: m}}, below: '0.5'}}");
        match judged(&yaml, Place::Kubernetes).unwrap().metric {
            Metric::Object { described, .. } => described,
            Metric::External { .. } => panic!("{yaml}"),
        }
    };
    let pod = of("{kind: Pod, name: etcd-0}");
    assert_eq!((pod.api_version.as_str(), pod.group()), ("v1", ""));
    let set = of("{apiVersion: apps/v1, kind: StatefulSet, name: etcd}");
    assert_eq!(set.group(), "apps");
}

#[test]
fn standalone_has_no_metrics_api() {
    let yaml = "{external: {name: m}, above: 1}";
    let errors = judged(yaml, Place::Standalone).unwrap_err();
    assert_eq!(errors.len(), 1);
    let said = errors[0].to_string();
    assert!(
        said.starts_with("spec.signal.metric: a metric works in Kubernetes only"),
        "{said}"
    );
    assert!(judged(yaml, Place::Anywhere).is_ok());
}

#[test]
fn what_is_wrong_is_named_with_its_field_value_and_remedy() {
    let long = "x".repeat(254);
    for (yaml, words) in [
        (
            "{above: 1}",
            "spec.signal.metric: the metric is missing; give external or object",
        ),
        (
            "{external: {name: m}}",
            "nothing to compare the metric with; add above or below",
        ),
        (
            "{external: {name: m}, above: 1, below: 2}",
            "above and below exclude one another",
        ),
        (
            "{external: {name: m}, object: {describedObject: {kind: Pod, name: a}, name: m}, above: 1}",
            "external and object exclude one another",
        ),
        (
            "{external: {name: m}, above: 100mi}",
            "spec.signal.metric.above: ",
        ),
        (
            "{external: {name: a/b}, above: 1}",
            "spec.signal.metric.external.name: \"a/b\" is no name",
        ),
        (
            "{external: {name: '..'}, above: 1}",
            "\"..\" is no name of a metric",
        ),
        (
            "{external: {name: 'a%2fb'}, above: 1}",
            "is no name of a metric",
        ),
        (
            &format!("{{external: {{name: {long}}}, above: 1}}"),
            "is no name of a metric",
        ),
        (
            "{external: {name: m, selector: {}}, above: 1}",
            "selector: the selector is empty",
        ),
        (
            "{external: {name: m, selector: {matchLabels: {'a b': c}}}, above: 1}",
            "selector.matchLabels: \"a b\" is not the key of a label",
        ),
        (
            "{external: {name: m, selector: {matchLabels: {a: 'b,c=d'}}}, above: 1}",
            "\"b,c=d\" is not the value of a label",
        ),
        (
            "{external: {name: m, selector: {matchExpressions: [{key: a, operator: In}]}}, above: 1}",
            "matchExpressions[0].values: In and NotIn compare with values, and none is given",
        ),
        (
            "{external: {name: m, selector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}, above: 1}",
            "has no meaning with Exists",
        ),
        (
            "{object: {describedObject: {apiVersion: a/b/c, kind: pods, name: A}, name: m}, above: 1}",
            "describedObject.apiVersion: \"a/b/c\" is no version of an API",
        ),
        (
            "{object: {describedObject: {kind: pods, name: a}, name: m}, above: 1}",
            "describedObject.kind: \"pods\" is no kind of an object; write one such as \"Pod\"",
        ),
        (
            "{object: {describedObject: {kind: Pod, name: A}, name: m}, above: 1}",
            "describedObject.name: \"A\" is not a name",
        ),
    ] {
        let said = said(yaml);
        assert!(said.contains(words), "{yaml}: {said}");
    }
}
