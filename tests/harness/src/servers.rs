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

    /// The version whose flags a binary takes, from what it says of itself.
    pub(crate) async fn of(binary: &Path) -> Result<Self, Error> {
        let mut command = Command::new(binary);
        command.arg("--version");
        let output = tokio::task::spawn_blocking(move || command.output())
            .await
            .map_err(std::io::Error::from)
            .flatten()
            .map_err(|e| Error::io(format!("run {}", binary.display()), e))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let minor = said
            .strip_prefix("etcd Version: 3.")
            .and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
        match minor {
            Some(4) => Ok(Self::V3_4),
            Some(5) => Ok(Self::V3_5),
            Some(6) => Ok(Self::V3_6),
            Some(7..) => Ok(Self::V3_7),
            _ => Err(Error::Provision {
                server: binary.display().to_string(),
                output: format!("not an etcd that is known here: {said}"),
            }),
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

/// A binary of Kubernetes 1.34, made first when it is missing: `kube-apiserver`, `kubectl` or
/// `kube-controller-manager`.
///
/// # Errors
/// [`Error::Provision`] with what the provision script said.
pub async fn kubernetes(binary: &str) -> Result<PathBuf, Error> {
    Ok(folder("kubernetes-1.34").await?.join(binary))
}

/// The folder of `alertmanager` 0.28 and its `amtool`, made first when they are missing.
///
/// # Errors
/// [`Error::Provision`] with what the provision script said.
pub async fn alertmanager() -> Result<PathBuf, Error> {
    folder("alertmanager-0.28").await
}

/// The `helm` binary of version 3, made first when it is missing.
///
/// # Errors
/// [`Error::Provision`] with what the provision script said.
pub async fn helm() -> Result<PathBuf, Error> {
    Ok(folder("helm-3").await?.join("helm"))
}

/// The `adapter` binary of prometheus-adapter 0.12, made first when it is missing.
///
/// # Errors
/// [`Error::Provision`] with what the provision script said.
pub async fn adapter() -> Result<PathBuf, Error> {
    Ok(folder("prometheus-adapter-0.12").await?.join("adapter"))
}

/// A library that a process loads first (`LD_PRELOAD`) to be shown the time that `FAKETIME` says,
/// unpacked first when it is missing.
///
/// # Errors
/// [`Error::Provision`] with what the provision script said.
pub async fn faketime() -> Result<PathBuf, Error> {
    Ok(folder("faketime").await?.join("libfaketimeMT.so.1"))
}

/// The folder of one pinned server.
async fn folder(name: &'static str) -> Result<PathBuf, Error> {
    ask_provision("--print", name).await
}

/// A binary of this kind, `etcd` or `prometheus`, of whatever version is at hand: installed, cached,
/// or made as a last resort. For the demo, which need not wait for a pinned one.
///
/// # Errors
/// [`Error::Provision`] with what the provision script said.
pub async fn any(kind: &'static str) -> Result<PathBuf, Error> {
    ask_provision("--any", kind).await
}

/// What the provision script answers for `name`, asked once per process.
async fn ask_provision(mode: &'static str, name: &'static str) -> Result<PathBuf, Error> {
    static KNOWN: LazyLock<Mutex<HashMap<&'static str, PathBuf>>> = LazyLock::new(Mutex::default);
    let ask = move || {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = known.get(name) {
            return Ok(path.clone());
        }
        let path = provision(mode, name)?;
        known.insert(name, path.clone());
        Ok(path)
    };
    let failed = |e: tokio::task::JoinError| Error::io("run the provision script", e.into());
    tokio::task::spawn_blocking(ask).await.map_err(failed)?
}

fn provision(mode: &str, name: &str) -> Result<PathBuf, Error> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../servers/provision");
    let output = Command::new(&script)
        .args([mode, name])
        .output()
        .map_err(|e| Error::io(format!("run {}", script.display()), e))?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let path = stdout
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    match path {
        Some(path) if output.status.success() => Ok(PathBuf::from(path)),
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
