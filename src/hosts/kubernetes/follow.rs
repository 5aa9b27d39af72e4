//! Objects of others, followed while somebody needs them: pods, and the custom
//! resources of other operators, whose definitions may come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::watch::{Failure, Sink};
use crate::telemetry::Telemetry;

/// What can be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Resource {
    Pods,
    CozystackClusters,
    CozystackMembers,
    CozystackDefrags,
    EtcdIoClusters,
}

impl Resource {
    pub(super) const ALL: [Resource; 5] = [
        Resource::Pods,
        Resource::CozystackClusters,
        Resource::CozystackMembers,
        Resource::CozystackDefrags,
        Resource::EtcdIoClusters,
    ];

    /// As in rules and in the words of `kubectl`.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Resource::Pods => "pods",
            Resource::CozystackClusters => "etcdclusters.etcd-operator.cozystack.io",
            Resource::CozystackMembers => "etcdmembers.etcd-operator.cozystack.io",
            Resource::CozystackDefrags => "etcddefrags.etcd-operator.cozystack.io",
            Resource::EtcdIoClusters => "etcdclusters.operator.etcd.io",
        }
    }

    fn api_resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Resource::Pods => ("", "v1", "Pod", "pods"),
            Resource::CozystackClusters => (
                "etcd-operator.cozystack.io",
                "v1alpha2",
                "EtcdCluster",
                "etcdclusters",
            ),
            Resource::CozystackMembers => (
                "etcd-operator.cozystack.io",
                "v1alpha2",
                "EtcdMember",
                "etcdmembers",
            ),
            Resource::CozystackDefrags => (
                "etcd-operator.cozystack.io",
                "v1alpha2",
                "EtcdDefrag",
                "etcddefrags",
            ),
            Resource::EtcdIoClusters => (
                "operator.etcd.io",
                "v1alpha1",
                "EtcdCluster",
                "etcdclusters",
            ),
        };
        let kind = GroupVersionKind::gvk(group, version, kind);
        ApiResource::from_gvk_with_plural(&kind, plural)
    }
}

/// Some objects of one namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Need {
    pub(super) resource: Resource,
    pub(super) namespace: String,
    /// A label selector; empty: all.
    pub(super) labels: String,
}

/// What is known of a [`Need`].
#[derive(Clone, Debug)]
pub(super) enum Known {
    /// The first list has not arrived yet.
    NotYet,
    /// The server does not have the resource.
    NotServed,
    /// Nothing was ever listed, for this reason.
    Failed(String),
    /// As last seen, in the order of names.
    Objects(Vec<Arc<DynamicObject>>),
}

#[derive(Debug)]
struct Followed {
    known: Known,
    task: AbortHandle,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Table = Arc<Mutex<BTreeMap<Need, Followed>>>;

/// Follows what is needed.
pub(super) struct Follower {
    client: Client,
    telemetry: Arc<Telemetry>,
    table: Table,
    changes: watch::Sender<u64>,
}

fn lock(table: &Table) -> MutexGuard<'_, BTreeMap<Need, Followed>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Follower {
    pub(super) fn new(client: Client, telemetry: Arc<Telemetry>) -> Self {
        Follower {
            client,
            telemetry,
            table: Table::default(),
            changes: watch::Sender::new(0),
        }
    }

    /// Changes whenever anything followed did.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Follows just these from now on.
    pub(super) fn want(&self, needs: BTreeSet<Need>) {
        let mut table = lock(&self.table);
        table.retain(|need, _| needs.contains(need));
        for need in needs {
            if table.contains_key(&need) {
                continue;
            }
            let api = Api::namespaced_with(
                self.client.clone(),
                &need.namespace,
                &need.resource.api_resource(),
            );
            let sink = TableSink {
                need: need.clone(),
                objects: BTreeMap::new(),
                listing: None,
                table: self.table.clone(),
                telemetry: self.telemetry.clone(),
                changes: self.changes.clone(),
                said: None,
            };
            let labels = need.labels.clone();
            let watching = async move { super::watch::follow(api, &labels, sink).await };
            let task = tokio::spawn(watching).abort_handle();
            table.insert(
                need,
                Followed {
                    known: Known::NotYet,
                    task,
                },
            );
        }
    }

    pub(super) fn known(&self, need: &Need) -> Known {
        lock(&self.table)
            .get(need)
            .map_or(Known::NotYet, |followed| followed.known.clone())
    }
}

/// Keeps the table's entry of one need.
struct TableSink {
    need: Need,
    objects: BTreeMap<String, Arc<DynamicObject>>,
    /// The list that is arriving.
    listing: Option<BTreeMap<String, Arc<DynamicObject>>>,
    table: Table,
    telemetry: Arc<Telemetry>,
    changes: watch::Sender<u64>,
    /// The failure that the log tells of.
    said: Option<Failure>,
}

impl TableSink {
    fn publish(&self, known: Known) {
        if let Some(followed) = lock(&self.table).get_mut(&self.need) {
            followed.known = known;
        }
        self.changes
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    fn publish_objects(&self) {
        self.publish(Known::Objects(self.objects.values().cloned().collect()));
    }
}

impl Sink for TableSink {
    fn begin(&mut self) {
        self.listing = Some(BTreeMap::new());
    }

    fn seen(&mut self, mut object: DynamicObject) {
        self.said = None;
        object.metadata.managed_fields = None;
        let name = object.metadata.name.clone().unwrap_or_default();
        let object = Arc::new(object);
        match &mut self.listing {
            Some(listing) => {
                listing.insert(name, object);
            }
            None => {
                self.objects.insert(name, object);
                self.publish_objects();
            }
        }
    }

    fn complete(&mut self) {
        self.said = None;
        if let Some(listing) = self.listing.take() {
            self.objects = listing;
        }
        self.publish_objects();
    }

    fn gone(&mut self, object: &DynamicObject) {
        if let Some(name) = &object.metadata.name {
            self.objects.remove(name);
        }
        self.publish_objects();
    }

    fn failed(&mut self, failure: Failure) {
        let resource = self.need.resource.as_str();
        self.telemetry.watch_failed(resource);
        let known = match failure {
            Failure::Expired => return,
            Failure::NotServed => {
                self.objects.clear();
                Known::NotServed
            }
            Failure::Other(ref problem) => {
                let problem = problem.clone();
                if self.said.as_ref() != Some(&failure) {
                    tracing::warn!(
                        resource,
                        namespace = self.need.namespace,
                        "unable to watch, trying again: {problem}"
                    );
                    self.said = Some(failure);
                }
                let listed = lock(&self.table)
                    .get(&self.need)
                    .is_some_and(|f| matches!(f.known, Known::Objects(_)));
                // What was last seen is still the best that is known; who
                // answers is checked before anything is done.
                if listed {
                    return;
                }
                Known::Failed(problem)
            }
        };
        self.publish(known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_failure_is_told_once_until_it_is_another_or_over() {
        let mut sink = TableSink {
            need: Need {
                resource: Resource::Pods,
                namespace: "a".to_owned(),
                labels: String::new(),
            },
            objects: BTreeMap::new(),
            listing: None,
            table: Table::default(),
            telemetry: Arc::default(),
            changes: watch::Sender::new(0),
            said: None,
        };
        let busy = || Failure::Other("busy".to_owned());
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..100 {
                sink.failed(busy());
            }
            sink.failed(Failure::Other("gone".to_owned()));
            sink.complete();
            sink.failed(busy());
        });
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(log.lines().count(), 3, "{log}");
    }
}
