//! What the image holds and says, and that it can be made again.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::container::{Bundle, succeed};
use crate::layout::{Image, text};

const MIB: u64 = 1 << 20;
/// What a node has to fetch.
const MAX_COMPRESSED: u64 = 20 * MIB;

/// Mode, owner and name of everything in the image. What is not here, such as a shell, a package
/// manager or a library, is not in the image.
const FILES: &[&str] = &[
    "drwxr-xr-x 0/0 etc/",
    "-rw-r--r-- 0/0 etc/group",
    "-rw-r--r-- 0/0 etc/passwd",
    "drwxr-xr-x 0/0 etc/ssl/",
    "drwxr-xr-x 0/0 etc/ssl/certs/",
    "-rw-r--r-- 0/0 etc/ssl/certs/ca-certificates.crt",
    "drwxr-xr-x 0/0 usr/",
    "drwxr-xr-x 0/0 usr/bin/",
    "-rwxr-xr-x 0/0 usr/bin/defragd",
    "drwxr-xr-x 0/0 usr/share/",
    "drwxr-xr-x 0/0 usr/share/licenses/",
    "drwxr-xr-x 0/0 usr/share/licenses/defragd/",
    "-rw-r--r-- 0/0 usr/share/licenses/defragd/LICENSE",
];

fn checkout(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn nothing_but_the_binary_and_what_it_reads() {
    let image = Image::built();
    let listing = succeed(
        Command::new("tar")
            .args(["--list", "--verbose", "--numeric-owner", "--gzip", "--file"])
            .arg(image.layer()),
    );
    let files: Vec<String> = listing
        .lines()
        .map(
            |line| match line.split_whitespace().collect::<Vec<_>>()[..] {
                [mode, owner, _size, _day, _time, name] => format!("{mode} {owner} {name}"),
                _ => panic!("not a plain file: {line}"),
            },
        )
        .collect();
    assert_eq!(files, FILES);

    let bundle = Bundle::unpack(&image);
    let read = |path: &str| fs::read(bundle.root().join(path)).expect("it is listed");
    let authorities = read("etc/ssl/certs/ca-certificates.crt");
    let authorities = reqwest::Certificate::from_pem_bundle(&authorities).expect("PEM");
    assert!(authorities.len() > 100, "{} are few", authorities.len());
    let license = fs::read(checkout("LICENSE")).expect("the checkout is whole");
    assert_eq!(read("usr/share/licenses/defragd/LICENSE"), license);
}

#[test]
fn the_binary_does_not_say_where_it_was_built() {
    let bundle = Bundle::unpack(&Image::built());
    let binary = fs::read(bundle.root().join("usr/bin/defragd")).expect("it is there");
    let contains = |words: &str| {
        let mut windows = binary.windows(words.len());
        windows.any(|window| window == words.as_bytes())
    };
    // Panics name their place, so there is something to replace.
    assert!(contains("/cargo/registry/"));
    let home = std::env::var("HOME").expect("a home");
    let cargo = std::env::var("CARGO_HOME").unwrap_or_else(|_| format!("{home}/.cargo"));
    for path in [env!("CARGO_MANIFEST_DIR"), &cargo] {
        assert!(!contains(&format!("{path}/")), "{path} is in the binary");
    }
}

#[test]
fn the_image_says_what_it_is() {
    let image = Image::built();
    assert_eq!(image.config["os"], "linux");
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    assert_eq!(image.config["architecture"], architecture);

    let config = &image.config["config"];
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["Entrypoint"], json!(["/usr/bin/defragd"]));
    assert_eq!(config["Env"], json!(["PATH=/usr/bin"]));
    assert_eq!(config["Cmd"], Value::Null);

    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(image.tag, version);
    for (label, wanted) in [
        ("title", "defragd"),
        ("description", env!("CARGO_PKG_DESCRIPTION")),
        ("version", version),
        ("licenses", env!("CARGO_PKG_LICENSE")),
        ("created", text(&image.config["created"])),
    ] {
        assert_eq!(image.label(label), Some(wanted), "{label}");
    }
    if let Some(revision) = image.label("revision") {
        let commit = revision.trim_end_matches("-dirty");
        let hex = commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(hex && commit.len() == 40, "{revision}");
    }
}

/// No engine is there to build it, but what it says can be compared.
#[test]
fn the_dockerfile_says_the_same() {
    let image = Image::built();
    let dockerfile = fs::read_to_string(checkout("Dockerfile")).expect("the checkout is whole");
    let (_, last_stage) = dockerfile
        .split_once("\nFROM scratch\n")
        .expect("the image is from scratch");
    let joined = last_stage.replace("\\\n", " ");
    let mut said = BTreeMap::new();
    for line in joined.lines() {
        if let Some((instruction, rest)) = line.split_once(' ') {
            said.insert(instruction, rest.trim());
        }
    }

    let config = &image.config["config"];
    assert_eq!(said["USER"], text(&config["User"]));
    let entrypoint: Value = serde_json::from_str(said["ENTRYPOINT"]).expect("JSON");
    assert_eq!(entrypoint, config["Entrypoint"]);
    assert_eq!(json!([said["ENV"]]), config["Env"]);
    let mut labels = config["Labels"].as_object().expect("labels").clone();
    // What depends on the commit: one is an argument there, the other one the engine's own.
    labels.remove("org.opencontainers.image.created");
    labels.remove("org.opencontainers.image.revision");
    for (label, value) in labels {
        let pair = format!("{label}={value}");
        assert!(said["LABEL"].contains(&pair), "no {pair} in {said:#?}");
    }
}

#[test]
fn the_image_is_small() {
    let image = Image::built();
    let compressed = fs::metadata(image.layer()).expect("it is there").len();
    assert!(
        compressed <= MAX_COMPRESSED,
        "{:.1} MiB to fetch, wanted at most {} MiB",
        compressed as f64 / MIB as f64,
        MAX_COMPRESSED / MIB
    );
}

/// The same files, at another time, elsewhere, with other modes, in another time zone and language.
#[test]
fn made_again_it_has_the_same_digest() {
    let image = Image::built();
    let bundle = Bundle::unpack(&image);
    let passwd = bundle.root().join("etc/passwd");
    fs::set_permissions(&passwd, Permissions::from_mode(0o600)).expect("it is ours");
    let file = File::options().append(true).open(&passwd);
    file.and_then(|file| file.set_modified(SystemTime::now()))
        .expect("it is ours");

    let again = TempDir::new().expect("a temporary folder");
    let created: Timestamp = text(&image.config["created"]).parse().expect("a time");
    let mut assemble = Command::new("sh");
    assemble
        .args(["-c", r#"umask 077; exec "$@""#, "sh"])
        .arg(checkout("image/assemble"))
        .arg(bundle.root())
        .arg(again.path())
        .current_dir("/")
        .env("TZ", "Asia/Tokyo")
        .env("LC_ALL", "C.UTF-8")
        .env("SOURCE_DATE_EPOCH", created.as_second().to_string());
    if let Some(revision) = image.label("revision") {
        assemble.env("REVISION", revision);
    }
    let said = succeed(&mut assemble);
    assert_eq!(said.trim_end(), image.digest);
    assert_eq!(
        Image::read(again.path().to_owned()).config,
        image.config,
        "the digest is that of what was written"
    );
    let archive = |folder: &Path| fs::read(folder.join("defragd.tar")).expect("an archive");
    assert!(
        archive(again.path()) == archive(&image.folder),
        "the archives differ"
    );
}
