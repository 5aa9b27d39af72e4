//! How objects are told apart.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A name or a namespace. Copies share one text: each object is known in a dozen places.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for Name {
    fn from(text: T) -> Self {
        Name(text.into())
    }
}

impl Default for Name {
    fn default() -> Self {
        Name::from("")
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl PartialEq<Name> for String {
    fn eq(&self, other: &Name) -> bool {
        **self == **other
    }
}

impl PartialEq<Name> for &str {
    fn eq(&self, other: &Name) -> bool {
        **self == **other
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Namespace and name of an object; the kind is known from the context.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    pub namespace: Name,
    pub name: Name,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What describes a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClusterKind {
    /// An `EtcdTarget` of ours.
    EtcdTarget,
    /// An `EtcdCluster` of cozystack's etcd-operator.
    CozystackCluster,
    /// An `EtcdCluster` of etcd-io's etcd-operator.
    EtcdIoCluster,
}

impl ClusterKind {
    /// Every kind there is.
    pub const ALL: [ClusterKind; 3] = [
        ClusterKind::EtcdTarget,
        ClusterKind::CozystackCluster,
        ClusterKind::EtcdIoCluster,
    ];

    /// The one that is sorted before the others.
    pub const FIRST: ClusterKind = ClusterKind::ALL[0];

    /// What stands in `kind`.
    pub const fn kind(self) -> &'static str {
        match self {
            ClusterKind::EtcdTarget => "EtcdTarget",
            ClusterKind::CozystackCluster | ClusterKind::EtcdIoCluster => "EtcdCluster",
        }
    }

    /// The API group.
    pub const fn group(self) -> &'static str {
        match self {
            ClusterKind::EtcdTarget => "defragd.dev",
            ClusterKind::CozystackCluster => "etcd-operator.cozystack.io",
            ClusterKind::EtcdIoCluster => "operator.etcd.io",
        }
    }

    /// The version of the API group.
    pub const fn version(self) -> &'static str {
        match self {
            ClusterKind::EtcdTarget | ClusterKind::EtcdIoCluster => "v1alpha1",
            ClusterKind::CozystackCluster => "v1alpha2",
        }
    }
}

/// A cluster: the object that describes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterKey {
    pub kind: ClusterKind,
    pub object: ObjectKey,
}

impl ClusterKey {
    /// The cluster that an `EtcdTarget` describes.
    pub const fn target(object: ObjectKey) -> Self {
        ClusterKey {
            kind: ClusterKind::EtcdTarget,
            object,
        }
    }

    /// Its name within its namespace: a target's own name, and for other kinds
    /// `EtcdCluster.<group>/<name>`. No target has such a name.
    pub fn local_name(&self) -> String {
        match self.kind {
            ClusterKind::EtcdTarget => self.object.name.to_string(),
            kind => format!("{}.{}/{}", kind.kind(), kind.group(), self.object.name),
        }
    }
}

/// `namespace/name` of a target, and for other kinds
/// `EtcdCluster.<group>/namespace/name`. Names of runs are made of it.
impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ClusterKind::EtcdTarget => self.object.fmt(f),
            kind => write!(f, "{}.{}/{}", kind.kind(), kind.group(), self.object),
        }
    }
}

/// A policy on one of its clusters: what is evaluated, remembered and reported
/// by itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyOn {
    pub policy: ObjectKey,
    pub cluster: ClusterKey,
}

impl fmt::Display for PolicyOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.policy, self.cluster.local_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_of_different_kinds_have_different_names() {
        let keys = ClusterKind::ALL.map(|kind| ClusterKey {
            kind,
            object: ObjectKey {
                namespace: "a".into(),
                name: "b".into(),
            },
        });
        assert_eq!(
            keys.each_ref().map(ToString::to_string),
            [
                "a/b",
                "EtcdCluster.etcd-operator.cozystack.io/a/b",
                "EtcdCluster.operator.etcd.io/a/b"
            ]
        );
        assert_eq!(
            keys.each_ref().map(ClusterKey::local_name),
            [
                "b",
                "EtcdCluster.etcd-operator.cozystack.io/b",
                "EtcdCluster.operator.etcd.io/b"
            ]
        );
    }
}
