//! Where the servers' binaries are.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::Error;

/// The etcd versions that defragd is tested with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum EtcdVersion {
    V3_4,
    V3_5,
    #[default]
    V3_6,
    V3_7,
}

impl EtcdVersion {
    /// Every version, oldest first.
    pub const ALL: [Self; 4] = [Self::V3_4, Self::V3_5, Self::V3_6, Self::V3_7];

    fn name(self) -> &'static str {
        match self {
            Self::V3_4 => "etcd-3.4",
            Self::V3_5 => "etcd-3.5",
            Self::V3_6 => "etcd-3.6",
            Self::V3_7 => "etcd-3.7",
        }
    }

    /// The `etcd` binary, made first when it is missing.
    ///
    /// # Errors
    /// [`Error::Provision`] with what the provision script said.
    pub async fn etcd(self) -> Result<PathBuf, Error> {
        Ok(folder(self.name()).await?.join("etcd"))
    }

    /// The `etcdctl` of the same version.
    ///
    /// # Errors
    /// [`Error::Provision`] with what the provision script said.
    pub async fn etcdctl(self) -> Result<PathBuf, Error> {
        Ok(folder(self.name()).await?.join("etcdctl"))
    }
}

/// The Prometheus versions that defragd is tested with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum PrometheusVersion {
    V2,
    #[default]
    V3,
}

impl PrometheusVersion {
    /// Every version, oldest first.
    pub const ALL: [Self; 2] = [Self::V2, Self::V3];

    fn name(self) -> &'static str {
        match self {
            Self::V2 => "prometheus-2",
            Self::V3 => "prometheus-3",
        }
    }

    /// The `prometheus` binary, made first when it is missing.
    ///
    /// # Errors
    /// [`Error::Provision`] with what the provision script said.
    pub async fn prometheus(self) -> Result<PathBuf, Error> {
        Ok(folder(self.name()).await?.join("prometheus"))
    }
}

/// The folder of one server, asked from the provision script once per process.
async fn folder(name: &'static str) -> Result<PathBuf, Error> {
    static KNOWN: LazyLock<Mutex<HashMap<&'static str, PathBuf>>> = LazyLock::new(Mutex::default);
    let ask = move || {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = known.get(name) {
            return Ok(folder.clone());
        }
        let folder = provision(name)?;
        known.insert(name, folder.clone());
        Ok(folder)
    };
    tokio::task::spawn_blocking(ask)
        .await
        .map_err(|e| Error::Provision {
            server: name.to_owned(),
            output: e.to_string(),
        })?
}

fn provision(name: &str) -> Result<PathBuf, Error> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../servers/provision");
    let output = Command::new(&script)
        .args(["--print", name])
        .output()
        .map_err(|e| Error::io(format!("run {}", script.display()), e))?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let folder = stdout
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    match folder {
        Some(folder) if output.status.success() => Ok(PathBuf::from(folder)),
        _ => Err(Error::Provision {
            server: name.to_owned(),
            output: format!(
                "{}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            ),
        }),
    }
}
