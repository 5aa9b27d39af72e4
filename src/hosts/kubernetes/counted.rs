//! Every request to the API server is counted, whoever makes it, where all of them pass.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{Method, Request, Response, Uri};
use tower::{Layer, Service};

use super::follow::Resource;
use super::objects::{Kind, Policies, Runs, Targets};
use crate::telemetry::Telemetry;

/// What is asked for; nothing of it comes from an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    verb: &'static str,
    resource: &'static str,
}

impl Asked {
    fn of(method: &Method, uri: &Uri) -> Self {
        let parts: Vec<&str> = uri.path().split('/').filter(|p| !p.is_empty()).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _version, rest @ ..] => ("", rest),
            ["apis", group, _version, rest @ ..] => (*group, rest),
            _ => ("", &[][..]),
        };
        let (resource, named) = match rest {
            ["namespaces", _, resource, name @ ..] => (*resource, !name.is_empty()),
            [resource, name @ ..] => (*resource, !name.is_empty()),
            [] => ("", true),
        };
        let watches = || {
            let query = uri.query().unwrap_or_default();
            query.split('&').any(|part| part == "watch=true")
        };
        let verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ if watches() => "watch",
            _ if named => "get",
            _ => "list",
        };
        Asked {
            verb,
            resource: label(group, resource),
        }
    }
}

/// The resource in the words of the other metrics; a closed list.
fn label(group: &str, resource: &str) -> &'static str {
    let own = [Policies::PLURAL, Runs::PLURAL, Targets::PLURAL];
    let known = match group {
        crate::api::GROUP => own.into_iter().find(|plural| *plural == resource),
        "" => ["pods", "secrets", "configmaps"]
            .into_iter()
            .find(|plural| *plural == resource),
        "coordination.k8s.io" => Some("leases"),
        "events.k8s.io" => Some("events"),
        "custom.metrics.k8s.io" => Some("custom.metrics.k8s.io"),
        "external.metrics.k8s.io" => Some("external.metrics.k8s.io"),
        _ => Resource::ALL
            .iter()
            .map(|known| known.as_str())
            .find(|known| {
                let of_group = known.strip_prefix(resource);
                of_group.and_then(|rest| rest.strip_prefix('.')) == Some(group)
            }),
    };
    known.unwrap_or("other")
}

/// Counts what passes a client.
#[derive(Clone, Debug)]
pub(super) struct Counting(pub(super) Arc<Telemetry>);

impl<S> Layer<S> for Counting {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted {
            inner,
            telemetry: self.0.clone(),
        }
    }
}

/// A client whose requests are counted.
#[derive(Clone, Debug)]
pub(super) struct Counted<S> {
    inner: S,
    telemetry: Arc<Telemetry>,
}

impl<S, A, B> Service<Request<A>> for Counted<S>
where
    S: Service<Request<A>, Response = Response<B>> + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let pending = Pending {
            asked: Asked::of(request.method(), request.uri()),
            began: Instant::now(),
            code: None,
            telemetry: self.telemetry.clone(),
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let mut pending = pending;
            let answer = answer.await;
            if let Ok(response) = &answer {
                pending.code = Some(response.status().as_u16());
            }
            answer
        })
    }
}

/// A request under way. It is counted with the value, also one that is given up.
struct Pending {
    asked: Asked,
    began: Instant,
    code: Option<u16>,
    telemetry: Arc<Telemetry>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Asked { verb, resource } = self.asked;
        let took = self.began.elapsed();
        self.telemetry.api_request(verb, resource, self.code, took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_told_by_what_it_asks_for() {
        let own = "/apis/defragd.dev/v1alpha1";
        for (method, uri, verb, resource) in [
            (
                "GET",
                format!("{own}/etcddefrags?limit=500"),
                "list",
                "etcddefrags",
            ),
            (
                "GET",
                format!("{own}/namespaces/a/etcdtargets?watch=true&timeoutSeconds=60"),
                "watch",
                "etcdtargets",
            ),
            (
                "PATCH",
                format!("{own}/namespaces/a/etcddefragpolicies/p/status?force=true"),
                "patch",
                "etcddefragpolicies",
            ),
            (
                "POST",
                format!("{own}/namespaces/a/etcddefrags"),
                "create",
                "etcddefrags",
            ),
            (
                "DELETE",
                format!("{own}/namespaces/a/etcddefrags/r"),
                "delete",
                "etcddefrags",
            ),
            (
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/a/leases/defragd".to_owned(),
                "update",
                "leases",
            ),
            (
                "POST",
                "/apis/events.k8s.io/v1/namespaces/a/events".to_owned(),
                "create",
                "events",
            ),
            (
                "GET",
                "/api/v1/namespaces/a/secrets/etcd".to_owned(),
                "get",
                "secrets",
            ),
            (
                "GET",
                "/api/v1/namespaces/a/pods?labelSelector=x".to_owned(),
                "list",
                "pods",
            ),
            (
                "GET",
                "/apis/operator.etcd.io/v1alpha1/namespaces/a/etcdclusters".to_owned(),
                "list",
                "etcdclusters.operator.etcd.io",
            ),
            (
                "GET",
                "/apis/etcd-operator.cozystack.io/v1alpha2/namespaces/a/etcdmembers?watch=true"
                    .to_owned(),
                "watch",
                "etcdmembers.etcd-operator.cozystack.io",
            ),
            (
                "GET",
                "/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/pods/x/m".to_owned(),
                "get",
                "custom.metrics.k8s.io",
            ),
            (
                "GET",
                "/apis/custom.metrics.k8s.io".to_owned(),
                "get",
                "other",
            ),
            ("GET", "/api/v1/nodes/n".to_owned(), "get", "other"),
            ("GET", "/version".to_owned(), "get", "other"),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let asked = Asked::of(&method, &uri.parse().unwrap());
            assert_eq!(asked, Asked { verb, resource }, "{method} {uri}");
        }
    }
}
