//! Alerts that were delivered, one file a source in `alerts/` of the state folder.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::store::{StateError, clear_unfinished, write_durably};
use crate::signals::webhook::{AlertStore, Kept, StoreError};

/// The folder below the state folder.
const FOLDER: &str = "alerts";

/// The files. Whoever has this holds the state folder's lock.
#[derive(Debug)]
pub(super) struct FileAlerts {
    dir: PathBuf,
}

impl FileAlerts {
    /// Creates the folder where it is missing.
    pub(super) fn open(state: &Path) -> Result<Self, StateError> {
        let dir = state.join(FOLDER);
        let unusable = |source| StateError::Folder {
            path: dir.clone(),
            source,
        };
        fs::create_dir_all(&dir).map_err(unusable)?;
        clear_unfinished(&dir).map_err(unusable)?;
        Ok(FileAlerts { dir })
    }

    /// A source that is delivered to has a name without dots and slashes.
    fn path(&self, source: &str) -> PathBuf {
        self.dir.join(format!("{source}.json"))
    }
}

impl AlertStore for FileAlerts {
    fn load<'a>(&'a self, source: &'a str) -> BoxFuture<'a, Result<Kept, StoreError>> {
        let path = self.path(source);
        async move {
            match tokio::fs::read_to_string(&path).await {
                Ok(content) => Ok(Kept {
                    content: Some(content),
                    version: None,
                }),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(Kept::default()),
                Err(error) => Err(StoreError::Failed(format!(
                    "unable to read {path:?}: {error}"
                ))),
            }
        }
        .boxed()
    }

    fn save<'a>(
        &'a self,
        source: &'a str,
        content: String,
        _version: Option<String>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let path = self.path(source);
        async move {
            let shown = path.clone();
            tokio::task::spawn_blocking(move || write_durably(&path, content.as_bytes()))
                .await
                .map_err(|error| StoreError::Failed(format!("the write was not finished: {error}")))?
                .map_err(|error| {
                    StoreError::Failed(format!(
                        "unable to write {shown:?}: {error}; free or widen the disk, or make the folder writable"
                    ))
                })
        }
        .boxed()
    }
}
