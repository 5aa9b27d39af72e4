use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

const TARGET: &str = "apiVersion: defragd.dev/v1alpha1\nkind: EtcdTarget\nmetadata: {name: demo}\n\
                      spec: {endpoints: ['http://127.0.0.1:2379']}\n";

fn run(name: &str) -> String {
    format!(
        "apiVersion: defragd.dev/v1alpha1\nkind: EtcdDefrag\nmetadata: {{name: {name}}}\n\
         spec:\n  clusterRef: {{name: demo}}\n"
    )
}

/// A folder whose files have all been left alone for long enough.
struct Scene {
    dir: TempDir,
    folder: Folder,
    start: Instant,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        Scene {
            dir,
            folder,
            start: Instant::now(),
        }
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    /// Reads as of `after` from now, so that nothing has to be waited for.
    fn read(&mut self, after: Duration) -> Snapshot {
        self.folder
            .read_at(self.start + after, SystemTime::now() + after)
    }

    fn settled(&mut self) -> Snapshot {
        self.read(SETTLE * 2)
    }
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    snapshot
        .documents
        .keys()
        .map(|r| format!("{} {}", r.kind.as_str(), r.key))
        .collect()
}

fn error<'a>(snapshot: &'a Snapshot, name: &str) -> &'a str {
    let (_, document) = snapshot
        .documents
        .iter()
        .find(|(r, _)| r.key.name == name)
        .unwrap();
    document.object.as_ref().unwrap_err()
}

#[test]
fn reads_yaml_and_json_and_leaves_the_rest() {
    let mut scene = Scene::new();
    scene.put("a.yaml", &format!("{TARGET}---\n{}", run("one")));
    scene.put("b.yml", &run("two"));
    scene.put(
        "c.json",
        r#"{"apiVersion":"defragd.dev/v1alpha1","kind":"EtcdDefrag","metadata":{"name":"three","namespace":"other"},"spec":{"clusterRef":{"name":"demo"}}}"#,
    );
    for name in [
        ".hidden.yaml",
        "d.yaml~",
        "e.yaml.bak",
        "#f.yaml#",
        "notes.txt",
        ".g.yaml.swp",
    ] {
        scene.put(name, "not: [yaml");
    }
    fs::create_dir(scene.dir.path().join("h.yaml")).unwrap();
    let snapshot = scene.settled();
    assert_eq!(
        names(&snapshot),
        [
            "EtcdTarget default/demo",
            "EtcdDefrag default/one",
            "EtcdDefrag default/two",
            "EtcdDefrag other/three"
        ]
    );
    assert!(
        snapshot.problems.is_empty() && snapshot.opaque.is_empty(),
        "{snapshot:?}"
    );
}

#[test]
fn a_bad_document_does_not_hide_the_others_and_keeps_its_name_and_line() {
    let mut scene = Scene::new();
    scene.put(
        "a.yaml",
        &format!(
            "{}  leeder: Move\n---\n# fine\n{TARGET}---\n{}  activeDeadline: 0s\n",
            run("typo"),
            run("zero")
        ),
    );
    let snapshot = scene.settled();
    assert_eq!(names(&snapshot).len(), 3);
    let typo = error(&snapshot, "typo");
    assert!(typo.starts_with("a.yaml:6: spec.leeder: "), "{typo}");
    let zero = error(&snapshot, "zero");
    assert!(
        zero.starts_with("a.yaml:19: spec.activeDeadline: "),
        "{zero}"
    );
    assert!(
        snapshot.opaque.is_empty(),
        "every document's name could be read"
    );
}

#[test]
fn a_document_without_a_readable_name_makes_its_file_opaque() {
    for (text, part) in [
        ("kind: [", "a.yaml:"),
        (
            "kind: EtcdTarget\napiVersion: defragd.dev/v1alpha1\nspec: {endpoints: []}\n",
            "name",
        ),
        ("just text", "a.yaml:"),
        (
            "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n",
            "Secret",
        ),
    ] {
        let mut scene = Scene::new();
        scene.put("a.yaml", &format!("{TARGET}---\n{text}"));
        scene.put("b.yaml", &run("one"));
        let snapshot = scene.settled();
        assert_eq!(names(&snapshot).len(), 2, "{text}: {snapshot:?}");
        assert!(snapshot.doubt(Some("a.yaml")).is_some(), "{text}");
        assert!(snapshot.doubt(Some("b.yaml")).is_none(), "{text}");
        assert!(
            snapshot.problems.iter().any(|p| p.contains(part)),
            "{text}: {:?}",
            snapshot.problems
        );
    }
}

#[test]
fn a_file_counts_once_it_has_been_left_alone() {
    let mut scene = Scene::new();
    scene.put("a.yaml", &run("one"));
    let snapshot = scene.read(Duration::ZERO);
    assert!(snapshot.unsettled && snapshot.documents.is_empty());
    assert!(
        snapshot.doubt(Some("a.yaml")).is_some(),
        "what stands in it is not known yet"
    );
    assert_eq!(names(&scene.settled()), ["EtcdDefrag default/one"]);

    // Cut short while it is written again: what was read before still counts.
    scene.put("a.yaml", "apiVersion: defragd.dev/v1alpha1\nkind: Etcd");
    let snapshot = scene.read(Duration::ZERO);
    assert!(snapshot.unsettled);
    assert_eq!(names(&snapshot), ["EtcdDefrag default/one"]);
    assert!(snapshot.documents.values().all(|d| d.object.is_ok()));
}

#[test]
fn a_clock_that_runs_behind_does_not_keep_files_out() {
    let mut scene = Scene::new();
    scene.put("a.yaml", &run("one"));
    let behind = SystemTime::now() - Duration::from_secs(3600);
    let start = scene.start;
    assert!(scene.folder.read_at(start, behind).unsettled);
    let snapshot = scene.folder.read_at(start + SETTLE, behind);
    assert!(!snapshot.unsettled);
    assert_eq!(snapshot.documents.len(), 1);
}

#[test]
fn the_second_definition_is_an_error_that_names_both_places() {
    let mut scene = Scene::new();
    scene.put("a.yaml", TARGET);
    scene.put("b.yaml", &format!("{}---\n{TARGET}", run("one")));
    let snapshot = scene.settled();
    assert_eq!(names(&snapshot).len(), 2);
    assert_eq!(snapshot.problems.len(), 1);
    let problem = &snapshot.problems[0];
    assert!(
        problem.starts_with("b.yaml:") && problem.contains("a.yaml:1"),
        "{problem}"
    );
    assert!(snapshot.opaque.is_empty());
}

#[test]
fn a_mounted_config_map_is_followed_through_its_links() {
    let mut scene = Scene::new();
    let root = scene.dir.path().to_owned();
    for (version, name) in [("..v1", "one"), ("..v2", "two")] {
        fs::create_dir(root.join(version)).unwrap();
        fs::write(root.join(version).join("a.yaml"), run(name)).unwrap();
    }
    symlink("..v1", root.join("..data")).unwrap();
    symlink("..data/a.yaml", root.join("a.yaml")).unwrap();
    assert_eq!(names(&scene.settled()), ["EtcdDefrag default/one"]);
    symlink("..v2", root.join("..next")).unwrap();
    fs::rename(root.join("..next"), root.join("..data")).unwrap();
    assert_eq!(names(&scene.settled()), ["EtcdDefrag default/two"]);
    fs::remove_dir_all(root.join("..v2")).unwrap();
    let snapshot = scene.settled();
    assert!(
        snapshot.doubt(Some("a.yaml")).is_some(),
        "a dangling link says nothing about removal"
    );
}

#[test]
fn an_unreadable_file_or_folder_proves_nothing() {
    let mut scene = Scene::new();
    scene.put("a.yaml", &run("one"));
    scene.put("big.yaml", &"# much\n".repeat(700_000));
    fs::write(scene.dir.path().join("latin.yaml"), b"kind: \xe9").unwrap();
    let snapshot = scene.settled();
    assert_eq!(
        snapshot.opaque.keys().collect::<Vec<_>>(),
        ["big.yaml", "latin.yaml"]
    );
    assert!(
        snapshot.problems[0].contains("larger than 4 MiB"),
        "{:?}",
        snapshot.problems
    );

    let gone = scene.dir.path().to_owned();
    fs::remove_dir_all(&gone).unwrap();
    let snapshot = scene.settled();
    assert!(
        snapshot.blind
            && snapshot.doubt(Some("a.yaml")).is_some()
            && snapshot.doubt(None).is_some()
    );
}
