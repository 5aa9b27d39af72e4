//! Reads the folder of objects that people write.
//!
//! Only the folder itself is read, not the folders in it; `*.yaml`, `*.yml` and
//! `*.json`, through symbolic links as well, so that a mounted ConfigMap works
//! (its `..data` is hidden, the links beside it are read). Names that begin with
//! a dot, or end as editors' backups do, are left out by that.
//!
//! People and tools write files in many ways, and a file may be read while it is
//! half written. So:
//!
//! - a file's content counts once it has been left alone for [`SETTLE`];
//! - each document of a file is parsed by itself: a bad one does not hide the
//!   others, and is an object *with an error* when its kind and name can be read;
//! - a file that cannot be read, or holds a document without a readable name, is
//!   [`Snapshot::opaque`]: nothing that is known to stand in it counts as removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::Deserialize;
use serde_json::Value;

use super::stored::Kind;
use crate::api::document::{self, Object};
use crate::api::validate::Place;
use crate::engine::ObjectKey;

/// How long a file must have been left alone before its content counts.
pub(super) const SETTLE: Duration = Duration::from_millis(300);
/// Largest file that is read, in bytes.
const MAX_FILE: u64 = 4 << 20;
/// The namespace of a document that names none.
pub(super) const DEFAULT_NAMESPACE: &str = "default";
/// How many errors of one document are told.
const MAX_ERRORS: usize = 10;

/// Kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Ref {
    pub(super) kind: Kind,
    pub(super) key: ObjectKey,
}

/// What one document says.
#[derive(Clone, Debug)]
pub(super) struct Document {
    /// The file's name.
    pub(super) file: Arc<str>,
    pub(super) line: usize,
    /// The object, or what is wrong with the document.
    pub(super) object: Result<Arc<Object>, String>,
    /// The cluster that the document names, where that can be read.
    pub(super) cluster: Option<String>,
}

/// The folder as it was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) documents: BTreeMap<Ref, Document>,
    /// What is wrong and belongs to no object: unreadable files, documents
    /// without a name, a second definition of an object.
    pub(super) problems: Vec<String>,
    /// Files of which it is not known what they hold, with the reason.
    pub(super) opaque: BTreeMap<String, String>,
    /// The folder could not be read: nothing is known of any file.
    pub(super) blind: bool,
    /// A file is being written: read again soon.
    pub(super) unsettled: bool,
}

impl Snapshot {
    /// Why it cannot be said whether the file still holds what it held.
    pub(super) fn doubt(&self, file: Option<&str>) -> Option<&str> {
        if self.blind {
            return Some(
                self.problems
                    .first()
                    .map_or("the folder cannot be read", String::as_str),
            );
        }
        self.opaque.get(file?).map(String::as_str)
    }
}

/// The folder, with what was read of it before.
#[derive(Debug)]
pub(super) struct Folder {
    dir: PathBuf,
    files: BTreeMap<String, Known>,
}

/// Changes whenever a file's content may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// True when the last change lies at least [`SETTLE`] back. A change in the
    /// future, as a wrong clock leaves behind, says nothing.
    fn is_old(&self, wall: SystemTime) -> bool {
        let (Ok(seconds), Ok(nanos)) =
            (u64::try_from(self.changed.0), u32::try_from(self.changed.1))
        else {
            return false;
        };
        let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos);
        wall.duration_since(changed).is_ok_and(|age| age >= SETTLE)
    }
}

/// One file.
#[derive(Debug, Default)]
struct Known {
    /// Seen, and since when.
    seen: Option<(Stamp, Instant)>,
    /// The content that counts.
    taken: Option<(Stamp, Content)>,
}

#[derive(Debug, Default)]
struct Content {
    documents: Vec<(Ref, Document)>,
    problems: Vec<String>,
    opaque: Option<String>,
}

impl Folder {
    pub(super) fn new(dir: &Path) -> Self {
        Folder {
            dir: dir.to_owned(),
            files: BTreeMap::new(),
        }
    }

    /// Reads what has changed. Blocks on the disk.
    pub(super) fn read(&mut self) -> Snapshot {
        self.read_at(Instant::now(), SystemTime::now())
    }

    fn read_at(&mut self, now: Instant, wall: SystemTime) -> Snapshot {
        let names = match names(&self.dir) {
            Ok(names) => names,
            Err(error) => {
                let problem = format!("the objects' folder {:?} cannot be read: {error}", self.dir);
                return Snapshot {
                    problems: vec![problem],
                    blind: true,
                    ..Snapshot::default()
                };
            }
        };
        self.files.retain(|name, _| names.contains(name));
        let mut snapshot = Snapshot::default();
        for name in names {
            let known = self.files.entry(name.clone()).or_default();
            let path = self.dir.join(&name);
            match fs::metadata(&path) {
                Ok(metadata) if metadata.is_file() => {
                    known.look(&path, &name, Stamp::of(&metadata), now, wall);
                }
                // A folder, a pipe: not ours.
                Ok(_) => continue,
                Err(error) => {
                    let problem = format!("{name}: cannot be read: {error}");
                    snapshot.problems.push(problem.clone());
                    snapshot.opaque.insert(name, problem);
                    continue;
                }
            }
            let settled = matches!((&known.seen, &known.taken), (Some((seen, _)), Some((taken, _))) if seen == taken);
            snapshot.unsettled |= !settled;
            match &known.taken {
                Some((_, content)) => snapshot.add(&name, content),
                None => {
                    snapshot
                        .opaque
                        .insert(name.clone(), format!("{name}: is being written"));
                }
            }
        }
        snapshot
    }
}

impl Snapshot {
    fn add(&mut self, file: &str, content: &Content) {
        self.problems.extend(content.problems.iter().cloned());
        if let Some(reason) = &content.opaque {
            self.opaque.insert(file.to_owned(), reason.clone());
        }
        for (reference, document) in &content.documents {
            if let Some(first) = self.documents.get(reference) {
                self.problems.push(format!(
                    "{file}:{}: {} {} is defined a second time; the first definition, {}:{}, is used: remove one",
                    document.line,
                    reference.kind.as_str(),
                    reference.key,
                    first.file,
                    first.line,
                ));
            } else {
                self.documents.insert(reference.clone(), document.clone());
            }
        }
    }
}

impl Known {
    /// Takes the file's content when it is new and has been left alone.
    fn look(&mut self, path: &Path, name: &str, stamp: Stamp, now: Instant, wall: SystemTime) {
        let since = match self.seen {
            Some((seen, since)) if seen == stamp => since,
            _ => now,
        };
        self.seen = Some((stamp, since));
        if self
            .taken
            .as_ref()
            .is_some_and(|(taken, _)| *taken == stamp)
        {
            return;
        }
        if !stamp.is_old(wall) && now.duration_since(since) < SETTLE {
            return;
        }
        let content = match content(path) {
            Ok(text) => parse(name, &text),
            Err(problem) => {
                let problem = format!("{name}: {problem}");
                Content {
                    problems: vec![problem.clone()],
                    opaque: Some(problem),
                    ..Content::default()
                }
            }
        };
        self.taken = Some((stamp, content));
    }
}

fn names(dir: &Path) -> std::io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let wanted = [".yaml", ".yml", ".json"]
            .iter()
            .any(|end| name.ends_with(end));
        if wanted && !name.starts_with('.') {
            names.insert(name);
        }
    }
    Ok(names)
}

fn content(path: &Path) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(cannot)?;
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!("is larger than {} MiB; split it", MAX_FILE >> 20));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8 text; save it as UTF-8".to_owned())
}

/// Parses a file document by document.
fn parse(file: &str, text: &str) -> Content {
    let mut content = Content::default();
    let label: Arc<str> = file.into();
    for (line, piece) in pieces(file, text) {
        // The lines before it are kept as empty ones: lines in messages are the file's.
        let padded = format!("{}{piece}", "\n".repeat(line - 1));
        let parsed = document::parse(file, &padded);
        let errors: Vec<String> = parsed.errors.iter().map(ToString::to_string).collect();
        for located in parsed.objects {
            let errors: Vec<String> = located
                .value
                .errors(Place::Standalone)
                .iter()
                .map(|error| located.locate(error).to_string())
                .collect();
            let line = located.line;
            let object = with_namespace(located.value);
            let cluster = cluster(&object);
            let reference = reference(&object);
            let object = if errors.is_empty() {
                Ok(Arc::new(object))
            } else {
                Err(told(&errors))
            };
            content.documents.push((
                reference,
                Document {
                    file: label.clone(),
                    line,
                    object,
                    cluster,
                },
            ));
        }
        if errors.is_empty() {
            continue;
        }
        let told = told(&errors);
        match identity(piece) {
            Some((reference, cluster)) => content.documents.push((
                reference,
                Document {
                    file: label.clone(),
                    line,
                    object: Err(told),
                    cluster,
                },
            )),
            None => {
                content.opaque.get_or_insert_with(|| told.clone());
                content.problems.push(told);
            }
        }
    }
    content
}

fn told(errors: &[String]) -> String {
    let mut told = errors
        .iter()
        .take(MAX_ERRORS)
        .cloned()
        .collect::<Vec<_>>()
        .join(" | ");
    if errors.len() > MAX_ERRORS {
        told.push_str(&format!(" | and {} more", errors.len() - MAX_ERRORS));
    }
    told
}

/// The documents of a file with the line that each begins at. A line that
/// begins with `---` parts documents wherever it stands in YAML.
fn pieces<'a>(file: &str, text: &'a str) -> Vec<(usize, &'a str)> {
    if file.ends_with(".json") {
        return vec![(1, text)];
    }
    let mut pieces = Vec::new();
    let (mut begin, mut line, mut at) = (0, 1, 0);
    for (number, content) in text.split_inclusive('\n').enumerate() {
        let marker = content
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
        if marker && at > begin {
            pieces.push((line, &text[begin..at]));
            (begin, line) = (at, number + 1);
        }
        at += content.len();
    }
    pieces.push((line, &text[begin..]));
    pieces
}

fn with_namespace(mut object: Object) -> Object {
    let metadata = match &mut object {
        Object::Target(target) => &mut target.metadata,
        Object::Policy(policy) => &mut policy.metadata,
        Object::Run(run) => &mut run.metadata,
    };
    if metadata.namespace.as_deref().is_none_or(str::is_empty) {
        metadata.namespace = Some(DEFAULT_NAMESPACE.to_owned());
    }
    object
}

fn reference(object: &Object) -> Ref {
    let (kind, metadata) = match object {
        Object::Target(target) => (Kind::Target, &target.metadata),
        Object::Policy(policy) => (Kind::Policy, &policy.metadata),
        Object::Run(run) => (Kind::Run, &run.metadata),
    };
    Ref {
        kind,
        key: super::stored::key_of(metadata),
    }
}

fn cluster(object: &Object) -> Option<String> {
    match object {
        Object::Target(_) => None,
        Object::Policy(policy) => Some(policy.spec.cluster_ref.as_ref()?.name.clone()),
        Object::Run(run) => Some(run.spec.cluster_ref.name.clone()),
    }
}

/// Whose document it is, and the cluster it names, of one that is not valid as
/// a whole.
fn identity(piece: &str) -> Option<(Ref, Option<String>)> {
    let document = serde_yaml::Deserializer::from_str(piece).next()?;
    let value = Value::deserialize(document).ok()?;
    let kind = value.get("kind")?.as_str()?;
    let kind = Kind::ALL.into_iter().find(|known| known.as_str() == kind)?;
    let metadata = value.get("metadata")?;
    let text = |name: &str| {
        metadata
            .get(name)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    let key = ObjectKey {
        namespace: text("namespace").unwrap_or(DEFAULT_NAMESPACE).into(),
        name: text("name")?.into(),
    };
    let cluster = value
        .pointer("/spec/clusterRef/name")
        .and_then(Value::as_str)
        .map(str::to_owned);
    Some((Ref { kind, key }, cluster))
}

#[cfg(test)]
mod tests;
