//! The image as it lies on disk, read without the tools that made it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

/// An OCI layout with one image.
pub(crate) struct Image {
    /// Where the layout and the archive are.
    pub(crate) folder: PathBuf,
    pub(crate) tag: String,
    pub(crate) digest: String,
    pub(crate) manifest: Value,
    pub(crate) config: Value,
}

impl Image {
    /// What `make image` has left.
    pub(crate) fn built() -> Self {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .parent()
            .expect("cargo's folder for tests is in its target folder");
        let folder = target.join("image");
        assert!(
            folder.join("oci").is_dir(),
            "there is no image in {}: build it with `make image`",
            folder.display()
        );
        Self::read(folder)
    }

    pub(crate) fn read(folder: PathBuf) -> Self {
        let index = fs::read(folder.join("oci/index.json")).expect("a layout has an index");
        let index: Value = serde_json::from_slice(&index).expect("JSON");
        let [entry] = &index["manifests"].as_array().expect("a list")[..] else {
            panic!("one image, not {index:#}");
        };
        let tag = entry["annotations"]["org.opencontainers.image.ref.name"].clone();
        let mut image = Self {
            folder,
            tag: text(&tag).to_owned(),
            digest: text(&entry["digest"]).to_owned(),
            manifest: Value::Null,
            config: Value::Null,
        };
        image.manifest = image.json(&image.digest);
        image.config = image.json(text(&image.manifest["config"]["digest"]));
        image
    }

    /// The file of a blob, whose name is shown to be its digest.
    pub(crate) fn blob(&self, digest: &str) -> PathBuf {
        let name = digest.strip_prefix("sha256:").expect("a digest by SHA-256");
        let path = self.folder.join("oci/blobs/sha256").join(name);
        let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let found: String = Sha256::digest(bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(found, name, "{}", path.display());
        path
    }

    fn json(&self, digest: &str) -> Value {
        let bytes = fs::read(self.blob(digest)).expect("it was just read");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// The one layer: a compressed archive.
    pub(crate) fn layer(&self) -> PathBuf {
        let [layer] = &self.manifest["layers"].as_array().expect("a list")[..] else {
            panic!("one layer, not {:#}", self.manifest);
        };
        self.blob(text(&layer["digest"]))
    }

    /// An `org.opencontainers.image` label.
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.config["config"]["Labels"][format!("org.opencontainers.image.{name}")].as_str()
    }
}

/// The text of a JSON value that has to be one.
#[track_caller]
pub(crate) fn text(value: &Value) -> &str {
    value
        .as_str()
        .unwrap_or_else(|| panic!("a text, not {value}"))
}
