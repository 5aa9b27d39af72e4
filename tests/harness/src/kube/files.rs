//! The files that the servers and their clients read.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::tls::signing_keys;
use crate::{Error, Pki};

/// One folder for all of it.
pub(super) struct Files {
    /// Shown by the API server, and trusted as an authority for its clients.
    pub(super) pki: Pki,
    /// Shown by the API server to servers behind it, which believe what it says of the user.
    pub(super) front_proxy: Pki,
    /// What signs the tokens of service accounts, and what checks them.
    pub(super) account_keys: (PathBuf, PathBuf),
    /// The token of the administrator.
    pub(super) admin: String,
    /// The token of the controller manager, which may everything too.
    pub(super) controller_manager: String,
    next: AtomicU32,
    scratch: TempDir,
}

impl Files {
    pub(super) fn create(scratch: TempDir) -> Result<Self, Error> {
        let folder = scratch.path();
        let names = ["localhost", "127.0.0.1", "kubernetes.default.svc"].map(str::to_owned);
        let files = Self {
            pki: Pki::create(&folder.join("tls"), &names)?,
            front_proxy: Pki::create(&folder.join("front-proxy"), &[])?,
            account_keys: signing_keys(folder, "accounts")?,
            admin: token(),
            controller_manager: token(),
            next: AtomicU32::new(0),
            scratch,
        };
        let user = |token: &str, name: &str| format!("{token},{name},{name},system:masters\n");
        let tokens = user(&files.admin, "admin")
            + &user(&files.controller_manager, "system:kube-controller-manager");
        write(&files.tokens(), &tokens)?;
        // JSON is YAML, and needs no thought about quotes.
        write(&files.audit_policy(), &audit_policy().to_string())?;
        let home = files.home();
        fs::create_dir(&home).map_err(|e| Error::io(format!("create {}", home.display()), e))?;
        Ok(files)
    }

    pub(super) fn folder(&self) -> &Path {
        self.scratch.path()
    }

    pub(super) fn tokens(&self) -> PathBuf {
        self.folder().join("tokens.csv")
    }

    pub(super) fn audit_policy(&self) -> PathBuf {
        self.folder().join("audit-policy.yaml")
    }

    pub(super) fn audit_log(&self) -> PathBuf {
        self.folder().join("audit.log")
    }

    /// The home of kubectl and helm, for their caches.
    pub(super) fn home(&self) -> PathBuf {
        self.folder().join("home")
    }

    /// Writes a kubeconfig for this server, token and namespace, under a name of its own.
    pub(super) fn kubeconfig(
        &self,
        server: SocketAddr,
        token: &str,
        namespace: &str,
    ) -> Result<PathBuf, Error> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.folder().join(format!("kubeconfig-{number}.yaml"));
        let named = |kind: &str, value: Value| json!([{ "name": "test", kind: value }]);
        let cluster = json!({
            "server": format!("https://{server}"),
            "certificate-authority": self.pki.ca(),
        });
        let context = json!({ "cluster": "test", "user": "test", "namespace": namespace });
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": named("cluster", cluster),
            "users": named("user", json!({ "token": token })),
            "contexts": named("context", context),
            "current-context": "test",
        });
        write(&path, &config.to_string())?;
        Ok(path)
    }
}

/// Every request is written down, with who made it and how it ended, but what the API server asks
/// of itself. Bodies are not.
fn audit_policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            { "level": "None", "users": ["system:apiserver", "system:anonymous"] },
            { "level": "Metadata" },
        ],
    })
}

/// Something that no other test's API server takes for its administrator. The standard library
/// seeds this hasher from the operating system's randomness.
fn token() -> String {
    format!("{:016x}", RandomState::new().hash_one("token"))
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|e| Error::io(format!("write {}", path.display()), e))
}
