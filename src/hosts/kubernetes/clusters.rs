//! From what is known of targets, pods and other operators' objects to how each
//! cluster is reached.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;

use super::cache::{Cache, Entry, TargetExtra};
use super::follow::{Follower, Known, Need, Resource};
use super::host::KubernetesHost;
use super::objects::Targets;
use super::resolve::{self, Cozystack, EtcdIo, PodSelector, PodView, Resolved, SecretValue};
use crate::core::key::{ClusterKey, ClusterKind, ObjectKey};
use crate::core::reason::Reason;
use crate::core::run::Note;
use crate::core::target::{Members, Target};
use crate::core::view::ClusterId;
use crate::engine::TargetView;
use crate::etcd::{Auth, ConnectError, Connection, Endpoint, SecretKey, SecretReader, Source, Tls};
use crate::hosts::connection::connection;
use crate::hosts::views::Views;

/// Changes that come together are worked out together.
const PAUSE: Duration = Duration::from_millis(100);

/// Works out how clusters are reached.
pub(super) struct Clusters {
    follower: Follower,
    secrets: Arc<dyn SecretReader>,
    /// Ids of clusters that are not targets; theirs stand in their status.
    ids: Mutex<BTreeMap<ClusterKey, ClusterId>>,
    versions: AtomicU64,
}

/// How a cluster is reached, or why nobody can say.
struct Reached {
    connection: Result<Arc<Connection>, Note>,
    busy: Option<Note>,
    cluster_id: Option<ClusterId>,
    remarks: Vec<String>,
}

impl Reached {
    fn not(note: Note) -> Self {
        Reached {
            connection: Err(note),
            busy: None,
            cluster_id: None,
            remarks: Vec::new(),
        }
    }
}

impl Clusters {
    pub(super) fn new(follower: Follower, secrets: Arc<dyn SecretReader>) -> Self {
        Clusters {
            follower,
            secrets,
            ids: Mutex::default(),
            versions: AtomicU64::new(0),
        }
    }

    fn ids(&self) -> MutexGuard<'_, BTreeMap<ClusterKey, ClusterId>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a target as it is now, or that it is gone.
    pub(super) fn show_target(&self, cache: &Cache, views: &Views, key: &ObjectKey) {
        let cluster = ClusterKey::target(key.clone());
        match cache.targets.get(key) {
            Some(entry) => {
                let reached = self.reach_target(key, entry);
                self.put(views, cluster, entry.generation, reached);
            }
            None => views.remove_target(&cluster),
        }
    }

    /// Remembers the id that an observed cluster has.
    pub(super) fn identified(&self, views: &Views, cluster: &ClusterKey, id: ClusterId) {
        if self.ids().insert(cluster.clone(), id) == Some(id) {
            return;
        }
        if let Some(view) = views.target(cluster) {
            let reached = Reached {
                connection: view.spec.clone(),
                busy: view.busy.clone(),
                cluster_id: Some(id),
                remarks: view.remarks.clone(),
            };
            self.put(views, cluster.clone(), view.generation, reached);
        }
    }

    /// Shows the cluster unless it looks as before.
    fn put(&self, views: &Views, key: ClusterKey, generation: i64, reached: Reached) {
        let Reached {
            connection: spec,
            busy,
            cluster_id,
            remarks,
        } = reached;
        let old = views.target(&key);
        let same = old.as_ref().is_some_and(|old| {
            old.generation == generation
                && old.spec == spec
                && old.busy == busy
                && old.cluster_id == cluster_id
                && old.remarks == remarks
        });
        if same {
            return;
        }
        // An object of others has no status of ours to say it in.
        if key.kind != ClusterKind::EtcdTarget
            && !remarks.is_empty()
            && old.is_none_or(|old| old.remarks != remarks)
        {
            tracing::warn!(cluster = %key, "{}", remarks.join("; "));
        }
        views.put_target(Arc::new(TargetView {
            key,
            generation,
            version: self.versions.fetch_add(1, Ordering::Relaxed) + 1,
            spec,
            cluster_id,
            busy,
            remarks,
        }));
    }

    fn reach_target(&self, key: &ObjectKey, entry: &Entry<Targets, TargetExtra>) -> Reached {
        let cluster_id = entry.cluster_id();
        let target = match &entry.extra.target {
            Ok(target) => target,
            Err(note) => {
                return Reached {
                    cluster_id,
                    ..Reached::not(note.clone())
                };
            }
        };
        let (endpoints, busy, remarks) = match &target.members {
            Members::Endpoints(urls) => (Ok(urls.clone()), None, Vec::new()),
            Members::Pods { .. } => match self.pods_of(key, target) {
                Ok(members) => (Ok(members.endpoints), members.busy, members.remarks),
                Err(note) => (Err(note), None, Vec::new()),
            },
        };
        let connection = endpoints.and_then(|endpoints| {
            let secrets = Some((key.namespace.as_str(), self.secrets.clone()));
            connection(target, endpoints, secrets)
                .map(Arc::new)
                .map_err(|error| Note::new(Reason::InvalidSpec, error.to_string()))
        });
        Reached {
            connection,
            busy,
            cluster_id,
            remarks,
        }
    }

    fn pods_of(&self, key: &ObjectKey, target: &Target) -> Result<resolve::Members, Note> {
        let (
            Members::Pods {
                match_labels,
                port,
                scheme,
            },
            Some(need),
        ) = (&target.members, need_of_target(key, target))
        else {
            return Err(Note::new(
                Reason::MembersUnresolved,
                "the target has no podSelector",
            ));
        };
        let selector = PodSelector {
            namespace: &key.namespace,
            match_labels,
            port: *port,
            scheme: scheme.as_str(),
        };
        let pods = self.pods(&need)?;
        resolve::pods(&selector, pods.iter().map(Arc::as_ref))
    }

    fn pods(&self, need: &Need) -> Result<Vec<Arc<PodView>>, Note> {
        let pods = self.objects(need)?;
        // What is no pod in spite of its kind runs no member.
        let pods = pods
            .iter()
            .filter_map(|object| (**object).clone().try_parse::<Pod>().ok());
        Ok(pods.map(|pod| Arc::new(PodView::from(&pod))).collect())
    }

    /// What is followed.
    pub(super) fn known(&self, need: &Need) -> Known {
        self.follower.known(need)
    }

    /// What is followed, or why it is not known.
    fn objects(&self, need: &Need) -> Result<Vec<Arc<DynamicObject>>, Note> {
        let resource = need.resource.as_str();
        let unresolved = |message: String| Note::new(Reason::MembersUnresolved, message);
        match self.follower.known(need) {
            Known::Objects(objects) => Ok(objects),
            Known::NotYet => Err(unresolved(format!("{resource} are being listed"))),
            Known::NotServed => Err(unresolved(format!(
                "the API server has no {resource}; install that operator's CRDs, or name an EtcdTarget"
            ))),
            Known::Failed(problem) => Err(unresolved(format!("{resource}: {problem}"))),
        }
    }

    fn reach_foreign(&self, cluster: &ClusterKey) -> Reached {
        let known_id = self.ids().get(cluster).copied();
        let resolved = match cluster.kind {
            ClusterKind::EtcdTarget => return Reached::not(not_found(cluster)),
            ClusterKind::CozystackCluster => self.cozystack(&cluster.object),
            ClusterKind::EtcdIoCluster => self.etcd_io(&cluster.object),
        };
        match resolved {
            Ok(resolved) => Reached {
                connection: self
                    .connect(&cluster.object.namespace, &resolved)
                    .map(Arc::new)
                    .map_err(|error| Note::new(Reason::MembersUnresolved, error.to_string())),
                busy: resolved.members.busy,
                cluster_id: resolved.cluster_id.or(known_id),
                remarks: resolved.members.remarks,
            },
            Err(note) => Reached {
                cluster_id: known_id,
                ..Reached::not(note)
            },
        }
    }

    fn cozystack(&self, key: &ObjectKey) -> Result<Resolved, Note> {
        let [clusters, members, defrags, pods] = cozystack_needs(key);
        let (cluster, installed) = self.named(&clusters, &key.name)?;
        // Without its kinds, or in a release without one of them, there are none.
        let members = self.objects_if_served(&members)?;
        let defrags = self.objects_if_served(&defrags)?;
        // They only save a question to the DNS.
        let pods = match self.follower.known(&pods) {
            Known::Failed(_) => Vec::new(),
            _ => self.pods(&pods)?,
        };
        let seen = Cozystack {
            installed,
            cluster: cluster.as_deref(),
            members: &members,
            defrags: &defrags,
            pods: &pods,
        };
        resolve::cozystack(key, &seen)
    }

    fn etcd_io(&self, key: &ObjectKey) -> Result<Resolved, Note> {
        let [clusters, pods] = etcd_io_needs(key);
        let (cluster, installed) = self.named(&clusters, &key.name)?;
        let pods = self.pods(&pods)?;
        let seen = EtcdIo {
            installed,
            cluster: cluster.as_deref(),
            pods: &pods,
        };
        resolve::etcd_io(key, &seen)
    }

    /// The object of that name, and whether its kind is served.
    fn named(&self, need: &Need, name: &str) -> Result<(Option<Arc<DynamicObject>>, bool), Note> {
        if matches!(self.follower.known(need), Known::NotServed) {
            return Ok((None, false));
        }
        let mut objects = self.objects(need)?.into_iter();
        let found = objects.find(|object| object.metadata.name.as_deref() == Some(name));
        Ok((found, true))
    }

    fn objects_if_served(&self, need: &Need) -> Result<Vec<Arc<DynamicObject>>, Note> {
        match self.follower.known(need) {
            Known::NotServed => Ok(Vec::new()),
            _ => self.objects(need),
        }
    }

    /// The way to a cluster that another operator's objects describe.
    fn connect(&self, namespace: &str, resolved: &Resolved) -> Result<Connection, ConnectError> {
        let Resolved {
            members,
            addresses,
            tls,
            auth,
            expected_voters,
            quota_bytes,
            metrics_urls,
            cluster_id: _,
        } = resolved;
        let endpoints = members.endpoints.iter();
        let endpoints = endpoints
            .map(|url| Endpoint::parse(url.as_str()))
            .collect::<Result<_, _>>()?;
        let source = |value: &SecretValue| {
            let secret = ObjectKey {
                namespace: namespace.into(),
                name: value.secret.as_str().into(),
            };
            Source::Secret(SecretKey::new(self.secrets.clone(), secret, value.key))
        };
        let mut connection = Connection::new(endpoints);
        connection.expected_voters = Some(*expected_voters);
        connection.quota_bytes = *quota_bytes;
        connection.metrics_urls.clone_from(metrics_urls);
        connection.addresses.clone_from(addresses);
        connection.tls = tls.as_ref().map(|tls| Tls {
            ca: Some(source(&tls.ca)),
            certificate: tls
                .identity
                .as_ref()
                .map(|(certificate, _)| source(certificate)),
            key: tls.identity.as_ref().map(|(_, key)| source(key)),
            server_name: None,
        });
        connection.auth = auth.as_ref().map(|auth| Auth {
            username: Source::given(auth.user),
            password: source(&auth.password),
        });
        connection.validate()?;
        Ok(connection)
    }
}

fn not_found(cluster: &ClusterKey) -> Note {
    let message = format!("there is no {} {}", cluster.kind.kind(), cluster.object);
    Note::new(Reason::ClusterNotFound, message)
}

fn need(resource: Resource, namespace: &str, labels: String) -> Need {
    Need {
        resource,
        namespace: namespace.to_owned(),
        labels,
    }
}

fn cozystack_needs(key: &ObjectKey) -> [Need; 4] {
    let pods = format!("etcd-operator.cozystack.io/cluster={}", key.name);
    [
        need(Resource::CozystackClusters, &key.namespace, String::new()),
        need(Resource::CozystackMembers, &key.namespace, String::new()),
        need(Resource::CozystackDefrags, &key.namespace, String::new()),
        need(Resource::Pods, &key.namespace, pods),
    ]
}

fn etcd_io_needs(key: &ObjectKey) -> [Need; 2] {
    let labels = format!("controller={}", key.name);
    [
        need(Resource::EtcdIoClusters, &key.namespace, String::new()),
        need(Resource::Pods, &key.namespace, labels),
    ]
}

fn need_of_target(key: &ObjectKey, target: &Target) -> Option<Need> {
    let Members::Pods { match_labels, .. } = &target.members else {
        return None;
    };
    let labels: Vec<String> = match_labels
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    Some(need(Resource::Pods, &key.namespace, labels.join(",")))
}

/// Keeps every cluster that an object names worked out, for ever.
pub(super) async fn keep_resolved(host: Arc<KubernetesHost>) {
    let mut named = host.views.changes();
    let mut followed = host.clusters.follower.changes();
    loop {
        named.mark_unchanged();
        followed.mark_unchanged();
        refresh(&host);
        let changed = tokio::select! {
            changed = named.changed() => changed,
            changed = followed.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What has to be followed to know the clusters of a kind; `None` for targets, which
/// are watched anyway.
pub(super) fn needs_of_kind(kind: ClusterKind, namespace: &str) -> Option<Need> {
    let resource = match kind {
        ClusterKind::EtcdTarget => return None,
        ClusterKind::CozystackCluster => Resource::CozystackClusters,
        ClusterKind::EtcdIoCluster => Resource::EtcdIoClusters,
    };
    Some(need(resource, namespace, String::new()))
}

fn refresh(host: &KubernetesHost) {
    host.refresh_fleets();
    let foreign: BTreeSet<ClusterKey> = host
        .views
        .clusters_named()
        .into_iter()
        .filter(|cluster| cluster.kind != ClusterKind::EtcdTarget)
        .collect();
    let by_pods: Vec<(ObjectKey, Need)> = {
        let cache = host.store.cache();
        let targets = cache.targets.iter().filter_map(|(key, entry)| {
            let target = entry.extra.target.as_ref().ok()?;
            Some((key.clone(), need_of_target(key, target)?))
        });
        targets.collect()
    };
    let mut needs: BTreeSet<Need> = by_pods.iter().map(|(_, need)| need.clone()).collect();
    needs.extend(host.fleet_needs());
    for cluster in &foreign {
        match cluster.kind {
            ClusterKind::EtcdTarget => {}
            ClusterKind::CozystackCluster => needs.extend(cozystack_needs(&cluster.object)),
            ClusterKind::EtcdIoCluster => needs.extend(etcd_io_needs(&cluster.object)),
        }
    }
    let clusters = &host.clusters;
    clusters.follower.want(needs);
    for (key, _) in by_pods {
        clusters.show_target(&host.store.cache(), &host.views, &key);
    }
    for cluster in host.views.cluster_keys() {
        if cluster.kind != ClusterKind::EtcdTarget && !foreign.contains(&cluster) {
            clusters.ids().remove(&cluster);
            host.views.remove_target(&cluster);
        }
    }
    for cluster in foreign {
        let reached = clusters.reach_foreign(&cluster);
        clusters.put(&host.views, cluster, 0, reached);
    }
}
