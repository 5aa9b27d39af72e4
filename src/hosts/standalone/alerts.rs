//! Alerts that were delivered, one file a source in `alerts/` of the state folder.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Weak;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::store::{StateError, clear_unfinished, write_durably};
use crate::signals::webhook::{AlertStore, Kept, StoreError};

/// The folder below the state folder.
const FOLDER: &str = "alerts";

/// The files.
#[derive(Debug)]
pub(super) struct FileAlerts {
    dir: PathBuf,
    /// The state folder's lock, which is kept for as long as a write takes: a
    /// delivery may still arrive when nobody else holds it any more.
    lock: Weak<File>,
}

impl FileAlerts {
    /// Creates the folder where it is missing.
    pub(super) fn open(state: &Path, lock: Weak<File>) -> Result<Self, StateError> {
        let dir = state.join(FOLDER);
        let unusable = |source| StateError::Folder {
            path: dir.clone(),
            source,
        };
        fs::create_dir_all(&dir).map_err(unusable)?;
        clear_unfinished(&dir).map_err(unusable)?;
        Ok(FileAlerts { dir, lock })
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
        let lock = self.lock.upgrade();
        async move {
            let lock = lock.ok_or_else(|| {
                StoreError::Failed("the state folder is not held any more".to_owned())
            })?;
            let shown = path.clone();
            let write = move || {
                let _lock = lock;
                write_durably(&path, content.as_bytes())
            };
            tokio::task::spawn_blocking(write)
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

#[cfg(test)]
mod tests {
    use super::super::store::{Store, is_held};
    use super::*;

    #[tokio::test]
    async fn nothing_is_written_once_the_folder_is_not_held() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path()).unwrap();
        let alerts = FileAlerts::open(dir.path(), store.lock()).unwrap();
        alerts.save("a", "one".to_owned(), None).await.unwrap();
        let begun = alerts.save("a", "two".to_owned(), None);
        drop(store);
        assert!(is_held(dir.path()).unwrap(), "a write is under way");
        begun.await.unwrap();
        assert!(!is_held(dir.path()).unwrap());
        let late = alerts.save("a", "three".to_owned(), None).await;
        assert!(late.unwrap_err().to_string().contains("not held any more"));
        let kept = alerts.load("a").await.unwrap();
        assert_eq!(kept.content.as_deref(), Some("two"));
    }
}
