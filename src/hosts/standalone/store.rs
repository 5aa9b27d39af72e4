//! The state folder: `targets/`, `policies/` and `runs/`, one JSON file an
//! object, and a lock that keeps a second process out.
//!
//! A file is written beside its place, synced, renamed, and the folder synced:
//! after a crash there is the old content or the new one, never a part. A file
//! that cannot be understood is reported, and neither overwritten nor removed.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;

use super::stored::{self, Kind, OfKind, StoredPolicy, StoredRun, StoredTarget, file_name};
use crate::engine::ObjectKey;

/// How our unfinished files begin. One that is found at the start was left by a
/// crash before its rename, and announces nothing.
const UNFINISHED: &str = ".defragd-";
/// What could not be read among the objects, for `defragd status`.
const DOCUMENTS: &str = "documents.json";
const LOCK: &str = "lock";
/// How often, and after what pause, a lock that is held is tried again at the start.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// What went wrong with the state folder.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error(
        "the state folder {path:?} cannot be used: {source}; it must exist or be creatable, and be writable by this user"
    )]
    Folder {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "the state folder {path:?} is in use by the process {holder}; stop it first, or give this one a folder of its own"
    )]
    InUse { path: PathBuf, holder: String },
    #[error(
        "unable to write {path:?}: {source}; free or widen the disk, or make the folder writable"
    )]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("unable to remove {path:?}: {source}")]
    Remove {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("unable to put {key} into JSON: {source}")]
    Encode {
        key: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("the write was not finished: {0}")]
    Aborted(String),
    /// The file stays as it is.
    #[error(
        "the state file {path:?} cannot be used: {problem}; restore it, or move it away to start over without what it remembers"
    )]
    Unusable { path: PathBuf, problem: String },
}

/// What a state folder holds.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) targets: BTreeMap<ObjectKey, StoredTarget>,
    pub(super) policies: BTreeMap<ObjectKey, StoredPolicy>,
    pub(super) runs: BTreeMap<ObjectKey, StoredRun>,
    /// Files that cannot be used, by kind and file name.
    pub(super) unusable: BTreeMap<(Kind, String), StateError>,
}

/// A state folder that this process holds.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
    /// Held open: the lock ends with it, also when the process is killed.
    lock: Arc<File>,
}

impl Store {
    /// Creates the folder where it is missing, takes the lock, reads everything.
    pub(super) fn open(dir: &Path) -> Result<(Store, Loaded), StateError> {
        let unusable = |source| StateError::Folder {
            path: dir.to_owned(),
            source,
        };
        for kind in Kind::ALL {
            fs::create_dir_all(dir.join(kind.folder())).map_err(unusable)?;
        }
        let lock = lock(dir)?;
        for kind in Kind::ALL {
            clear_unfinished(&dir.join(kind.folder())).map_err(unusable)?;
        }
        clear_unfinished(dir).map_err(unusable)?;
        Ok((
            Store {
                dir: dir.to_owned(),
                lock: Arc::new(lock),
            },
            load(dir)?,
        ))
    }

    /// Who writes beside the objects has this at hand meanwhile, and writes nothing
    /// once it is gone: the folder may be another process's by then.
    pub(super) fn lock(&self) -> Weak<File> {
        Arc::downgrade(&self.lock)
    }

    fn path(&self, kind: Kind, key: &ObjectKey) -> PathBuf {
        self.dir.join(kind.folder()).join(file_name(key))
    }

    /// Stores the object. When this returns it survives a crash.
    pub(super) fn write<O: OfKind>(&self, object: &O) -> Result<(), StateError> {
        let key = stored::key_of(object.metadata());
        write_json(&self.path(O::KIND, &key), &key.to_string(), object)
    }

    pub(super) fn remove(&self, kind: Kind, key: &ObjectKey) -> Result<(), StateError> {
        let path = self.path(kind, key);
        let failed = |source| StateError::Remove {
            path: path.clone(),
            source,
        };
        match fs::remove_file(&path) {
            Ok(()) => sync_parent(&path).map_err(failed),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// Reads one file again; `None` when it is gone.
    pub(super) fn read<O: OfKind>(&self, file: &str) -> Result<Option<O>, StateError> {
        read(&self.dir.join(O::KIND.folder()).join(file), file)
    }

    /// Stores what could not be read among the objects.
    pub(super) fn write_documents(&self, problems: &[String]) -> Result<(), StateError> {
        write_json(&self.dir.join(DOCUMENTS), DOCUMENTS, &problems)
    }
}

/// What could not be read among the objects, as last stored.
pub(super) fn read_documents(dir: &Path) -> Result<Vec<String>, StateError> {
    let path = dir.join(DOCUMENTS);
    let unusable = |problem: String| StateError::Unusable {
        path: path.clone(),
        problem,
    };
    match fs::read(&path) {
        Ok(content) => {
            serde_json::from_slice(&content).map_err(|error| unusable(error.to_string()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(unusable(error.to_string())),
    }
}

/// Whether a process holds the folder at this moment. The lock is shared and let
/// go at once: two that ask do not hinder one another.
///
/// # Errors
/// When the lock can neither be opened nor tried. A missing one means that no
/// process ever was here.
pub(super) fn is_held(dir: &Path) -> Result<bool, StateError> {
    let failed = |source| StateError::Folder {
        path: dir.to_owned(),
        source,
    };
    let file = match File::open(dir.join(LOCK)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(error)),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Reads a whole state folder, without a lock.
///
/// # Errors
/// When the folder cannot be listed. A file that cannot be used is part of the
/// result.
pub(super) fn load(dir: &Path) -> Result<Loaded, StateError> {
    let mut unusable = BTreeMap::new();
    Ok(Loaded {
        targets: load_kind::<StoredTarget>(dir, &mut unusable)?,
        policies: load_kind::<StoredPolicy>(dir, &mut unusable)?,
        runs: load_kind::<StoredRun>(dir, &mut unusable)?,
        unusable,
    })
}

fn load_kind<O: OfKind>(
    dir: &Path,
    unusable: &mut BTreeMap<(Kind, String), StateError>,
) -> Result<BTreeMap<ObjectKey, O>, StateError> {
    let folder = dir.join(O::KIND.folder());
    let failed = |source| StateError::Folder {
        path: folder.clone(),
        source,
    };
    let mut objects = BTreeMap::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        if name.starts_with('.') || !name.ends_with(".json") {
            continue;
        }
        match read::<O>(&path, &name) {
            Ok(Some(object)) => {
                objects.insert(stored::key_of(object.metadata()), object);
            }
            // It went while the folder was being listed.
            Ok(None) => {}
            Err(error) => {
                unusable.insert((O::KIND, name), error);
            }
        }
    }
    Ok(objects)
}

fn read<O: OfKind>(path: &Path, name: &str) -> Result<Option<O>, StateError> {
    let unusable = |problem: String| StateError::Unusable {
        path: path.to_owned(),
        problem,
    };
    match fs::read(path) {
        Ok(content) => {
            let object: O =
                stored::parse(name, &content).map_err(|error| unusable(error.to_string()))?;
            object
                .check()
                .map_err(|error| unusable(error.to_string()))?;
            Ok(Some(object))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable(error.to_string())),
    }
}

fn write_json(path: &Path, label: &str, content: &impl Serialize) -> Result<(), StateError> {
    let mut bytes = serde_json::to_vec_pretty(content).map_err(|source| StateError::Encode {
        key: label.to_owned(),
        source,
    })?;
    bytes.push(b'\n');
    write_durably(path, &bytes).map_err(|source| StateError::Write {
        path: path.to_owned(),
        source,
    })
}

pub(super) fn write_durably(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(UNFINISHED)
        // `defragd status` may run as somebody else; nothing in here is secret.
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    sync_parent(path)
}

/// A rename or a removal survives a crash only after the folder was synced.
fn sync_parent(path: &Path) -> std::io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

pub(super) fn clear_unfinished(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(UNFINISHED))
        {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Takes the lock, or finds that another process keeps it: `defragd status` holds it
/// for a moment to see whether anybody does.
fn patiently(file: &File) -> Result<(), TryLockError> {
    let mut tries = 0;
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if tries < LOCK_TRIES => {
                tries += 1;
                std::thread::sleep(LOCK_PAUSE);
            }
            result => return result,
        }
    }
}

fn lock(dir: &Path) -> Result<File, StateError> {
    let failed = |source| StateError::Folder {
        path: dir.to_owned(),
        source,
    };
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(dir.join(LOCK))
        .map_err(failed)?;
    match patiently(&file) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // The holder's number is a courtesy; without it the refusal stands.
            let read = file.read_to_string(&mut holder);
            let holder = match (read, holder.trim()) {
                (Ok(_), text) if !text.is_empty() => text.chars().take(16).collect(),
                _ => "(unknown)".to_owned(),
            };
            return Err(StateError::InUse {
                path: dir.to_owned(),
                holder,
            });
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    let mut name_us = || -> std::io::Result<()> {
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        writeln!(file, "{}", std::process::id())?;
        file.sync_all()
    };
    name_us().map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey {
            namespace: "default".into(),
            name: name.into(),
        }
    }

    fn target(name: &str) -> StoredTarget {
        StoredTarget::new(Kind::Target, &key(name), None, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn what_is_written_is_there_after_opening_again() {
        let dir = tempfile::tempdir().unwrap();
        let (store, loaded) = Store::open(dir.path()).unwrap();
        assert!(loaded.targets.is_empty());
        store.write(&target("demo")).unwrap();
        store.write(&target("gone")).unwrap();
        store.remove(Kind::Target, &key("gone")).unwrap();
        store.remove(Kind::Target, &key("never")).unwrap();
        drop(store);
        // A crash between writing and renaming leaves this behind.
        fs::write(dir.path().join("targets/.defragd-x"), "half").unwrap();
        let (_store, loaded) = Store::open(dir.path()).unwrap();
        assert_eq!(
            loaded.targets.into_keys().collect::<Vec<_>>(),
            [key("demo")]
        );
        let files: Vec<_> = fs::read_dir(dir.path().join("targets")).unwrap().collect();
        assert_eq!(files.len(), 1, "no unfinished file stays");
    }

    #[test]
    fn a_second_process_is_told_who_holds_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let (_store, _) = Store::open(dir.path()).unwrap();
        let error = Store::open(dir.path()).unwrap_err();
        let pid = std::process::id().to_string();
        assert!(
            matches!(&error, StateError::InUse { holder, .. } if *holder == pid),
            "{error}"
        );
        assert!(load(dir.path()).is_ok(), "reading works beside the holder");
    }

    #[test]
    fn whether_the_folder_is_held_is_told_without_keeping_it() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_held(dir.path()).unwrap(), "nobody was ever here");
        let (store, _) = Store::open(dir.path()).unwrap();
        assert!(is_held(dir.path()).unwrap());
        drop(store);
        assert!(!is_held(dir.path()).unwrap());
        Store::open(dir.path()).unwrap();
    }

    #[test]
    fn an_unusable_file_is_reported_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        drop(Store::open(dir.path()).unwrap());
        let broken = dir.path().join("runs/default_broken.json");
        fs::write(&broken, "{\"apiVersion\":").unwrap();
        fs::write(dir.path().join("runs/notes.txt"), "ignored").unwrap();
        let (_store, loaded) = Store::open(dir.path()).unwrap();
        assert_eq!(loaded.unusable.len(), 1);
        let error = &loaded.unusable[&(Kind::Run, "default_broken.json".to_owned())];
        assert!(error.to_string().contains("default_broken.json"), "{error}");
        assert_eq!(fs::read_to_string(&broken).unwrap(), "{\"apiVersion\":");
    }

    #[test]
    fn a_folder_that_cannot_be_written_names_itself_and_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Store::open(&file.join("state")).unwrap_err();
        assert!(
            error.to_string().contains("must exist or be creatable"),
            "{error}"
        );
    }

    #[test]
    fn a_failed_write_leaves_the_old_content() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path()).unwrap();
        store.write(&target("demo")).unwrap();
        let path = dir.path().join("targets/default_demo.json");
        let before = fs::read(&path).unwrap();
        // A folder in the file's place cannot be replaced by a file.
        let blocked = dir.path().join("targets/default_blocked.json");
        fs::create_dir_all(blocked.join("inside")).unwrap();
        let error = store.write(&target("blocked")).unwrap_err();
        assert!(matches!(error, StateError::Write { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), before);
        let unfinished = fs::read_dir(dir.path().join("targets"))
            .unwrap()
            .filter(|e| {
                e.as_ref()
                    .unwrap()
                    .file_name()
                    .to_string_lossy()
                    .starts_with(UNFINISHED)
            })
            .count();
        assert_eq!(unfinished, 0);
    }
}
