//! Unpacking the image with umoci and running it with runc, both pinned by `tests/servers/provision`.
//!
//! Root unpacks and runs as an engine would, and the process is the image's user. Anybody else gets a
//! user namespace of their own, in which only their own id exists: there, the process is "root",
//! which outside is whoever runs the test.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::layout::Image;

/// An unpacked image, for one container at a time.
pub(crate) struct Bundle {
    folder: TempDir,
    config: Value,
}

impl Bundle {
    pub(crate) fn unpack(image: &Image) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let mut umoci = Command::new(tool("umoci"));
        umoci.arg("unpack");
        if !is_root() {
            umoci.arg("--rootless");
        }
        let layout = image.folder.join("oci");
        umoci
            .arg("--image")
            .arg(format!("{}:{}", layout.display(), image.tag))
            .arg(folder.path().join("bundle"));
        succeed(&mut umoci);
        let config = fs::read(folder.path().join("bundle/config.json")).expect("umoci wrote it");
        Self {
            config: serde_json::from_slice(&config).expect("JSON"),
            folder,
        }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("bundle/rootfs")
    }

    /// A folder whose files the container finds in `/files` and cannot change.
    pub(crate) fn files(&self) -> PathBuf {
        let files = self.folder.path().join("files");
        fs::create_dir_all(&files).expect("the folder is ours");
        fs::set_permissions(&files, Permissions::from_mode(0o755)).expect("the folder is ours");
        files
    }

    /// Copies a file to `/files`, where the container's user can read it.
    pub(crate) fn add(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.files().join(name);
        fs::write(&path, content).expect("the folder is ours");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("the file is ours");
    }

    /// Runs the image's entrypoint to its end: the image's user without any privilege, a root that
    /// cannot be written to, the network of this machine.
    pub(crate) fn run(&self, args: &[&str], env: &[&str]) -> Output {
        let mut config = self.config.clone();
        let process = &mut config["process"];
        process["terminal"] = json!(false);
        process["capabilities"] = json!({});
        assert_eq!(process["user"], json!({"uid": 65532, "gid": 65532}));
        assert_eq!(process["noNewPrivileges"], true);
        if !is_root() {
            process["user"] = json!({"uid": 0, "gid": 0});
        }
        append(&mut process["args"], args.iter().map(|arg| json!(arg)));
        append(&mut process["env"], env.iter().map(|value| json!(value)));
        config["root"]["readonly"] = json!(true);
        let files = json!({
            "destination": "/files",
            "type": "bind",
            "source": self.files(),
            "options": ["rbind", "ro", "nosuid", "nodev", "noexec"],
        });
        append(&mut config["mounts"], [files]);
        config["linux"]["namespaces"]
            .as_array_mut()
            .expect("a list")
            .retain(|namespace| namespace["type"] != "network");
        let bundle = self.folder.path().join("bundle");
        let text = serde_json::to_vec(&config).expect("JSON");
        fs::write(bundle.join("config.json"), text).expect("the folder is ours");

        let log = self.folder.path().join("runc.log");
        let name = self.folder.path().file_name().expect("it has a name");
        let output = Command::new(tool("runc"))
            .arg("--root")
            .arg(self.folder.path().join("runc"))
            .args(["--log-format", "json", "--log"])
            .arg(&log)
            .args(["run", "--bundle"])
            .arg(&bundle)
            // Container names do not begin with a dot, as temporary folders do.
            .arg(format!("defragd{}", name.to_string_lossy()))
            .stdin(Stdio::null())
            .output()
            .expect("runc starts");
        // runc's own exit code is as the container's would be.
        let log = fs::read_to_string(&log).unwrap_or_default();
        assert!(
            !log.contains(r#""level":"error""#),
            "runc cannot run a container here, as {}: this test needs a Linux that lets root, or \
             anybody in a user namespace of their own, do so\n{log}",
            if is_root() {
                "root"
            } else {
                "an ordinary user"
            },
        );
        output
    }
}

fn append(list: &mut Value, values: impl IntoIterator<Item = Value>) {
    list.as_array_mut().expect("a list").extend(values);
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A pinned tool of that name.
fn tool(name: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/provision");
    let said = succeed(Command::new(script).args(["--print", name]));
    let folder = said
        .trim_end()
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix('='));
    Path::new(folder.expect("NAME=FOLDER")).join(name)
}

/// What a command says that has to succeed.
#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}
