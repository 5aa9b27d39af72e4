//! The house of `src/lib.rs`: which module may know which, and the wall around the core. Lints guard
//! what the core calls; this guards what anybody imports, in every file and in macros too.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Who may know whom. What stands nowhere on the right, `cli` for one, is known by `main` only.
const ARROWS: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("api", &["core"]),
    ("etcd", &["core"]),
    ("signals", &["core"]),
    ("telemetry", &["core", "signals"]),
    ("engine", &["core", "etcd", "signals", "telemetry"]),
    (
        "hosts",
        &["core", "api", "etcd", "signals", "engine", "telemetry"],
    ),
    (
        "cli",
        &[
            "core",
            "api",
            "etcd",
            "signals",
            "engine",
            "hosts",
            "telemetry",
        ],
    ),
];

/// Dependencies that compute and neither wait, nor ask a clock, nor talk to anybody.
const PURE_CRATES: &[&str] = &[
    "cel",
    "croner",
    "jiff",
    "promql_parser",
    "regex",
    "sha2",
    "strsim",
    "thiserror",
    "url",
];

/// What the core takes as an argument instead.
const IMPURE: &[&[&str]] = &[
    &["std", "env"],
    &["std", "fs"],
    &["std", "net"],
    &["std", "os"],
    &["std", "process"],
    &["std", "sync", "mpsc"],
    &["std", "task"],
    // A thread that is waited for is a larger stack, no more.
    &["std", "thread", "sleep"],
    &["std", "thread", "spawn"],
    &["thread", "sleep"],
    &["thread", "spawn"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
    &["jiff", "Timestamp", "now"],
    &["jiff", "Zoned", "now"],
    &["jiff", "tz", "TimeZone", "system"],
    &["Timestamp", "now"],
    &["Zoned", "now"],
    &["Instant", "now"],
    &["SystemTime", "now"],
    &["TimeZone", "system"],
];

/// A path as it stands in the source, `use` trees taken apart.
#[derive(Debug, PartialEq)]
struct Mention {
    segments: Vec<String>,
    /// It is imported; then its own children can be named by a shorter path.
    imported: bool,
    /// Inline modules around it.
    depth: usize,
}

impl Mention {
    fn path(&self) -> String {
        self.segments.join("::")
    }

    /// True when it is `wanted`, lies in it, or imports a module that `wanted` can be reached by.
    fn reaches(&self, wanted: &[&str]) -> bool {
        let common = self.segments.len().min(wanted.len());
        let same = self.segments.iter().zip(wanted).all(|(a, b)| a == b);
        // A type is no module: to import it is not yet to call what it has.
        let module = self.segments[common - 1].starts_with(char::is_lowercase);
        same && (common == wanted.len() || self.imported && module)
    }
}

/// Every path of a token stream, also inside of macros.
fn mentions(stream: TokenStream) -> Vec<Mention> {
    let mut found = Vec::new();
    walk(stream, &[], false, 0, &mut found);
    found
}

fn walk(
    stream: TokenStream,
    prefix: &[String],
    in_use: bool,
    depth: usize,
    found: &mut Vec<Mention>,
) {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let is =
        |i: usize, c: char| matches!(tokens.get(i), Some(TokenTree::Punct(p)) if p.as_char() == c);
    let separated = |i: usize| is(i, ':') && is(i + 1, ':');
    let mut imported = in_use;
    let mut enters_module = false;
    let mut i = 0;
    while i < tokens.len() {
        match &tokens[i] {
            TokenTree::Ident(word) if word == "use" => (imported, i) = (true, i + 1),
            TokenTree::Ident(word) if word == "mod" => {
                enters_module = true;
                i += 2;
            }
            TokenTree::Ident(word) => {
                let mut segments = prefix.to_vec();
                segments.push(word.to_string());
                i += 1;
                let mut tree = None;
                while separated(i) {
                    match tokens.get(i + 2) {
                        Some(TokenTree::Ident(next)) => segments.push(next.to_string()),
                        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                            tree = Some(group.stream());
                        }
                        // A glob, or the generic arguments of a turbofish.
                        _ => {
                            i += 2;
                            break;
                        }
                    }
                    i += 3;
                }
                match tree {
                    Some(tree) => walk(tree, &segments, true, depth, found),
                    None if segments.len() > 1 && segments.ends_with(&["self".to_owned()]) => {
                        segments.pop();
                        found.push(Mention {
                            segments,
                            imported,
                            depth,
                        });
                    }
                    None => found.push(Mention {
                        segments,
                        imported,
                        depth,
                    }),
                }
            }
            TokenTree::Group(group) => {
                walk(
                    group.stream(),
                    prefix,
                    imported,
                    depth + usize::from(enters_module),
                    found,
                );
                enters_module = false;
                i += 1;
            }
            TokenTree::Punct(p) if p.as_char() == ';' => {
                (imported, enters_module) = (in_use, false);
                i += 1;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => i += 1,
        }
    }
}

/// The module of this crate that a path leads into, seen from `module`.
fn leads_into<'a>(mention: &'a Mention, module: &'a [String]) -> Option<&'a str> {
    match mention.segments[0].as_str() {
        "crate" | "defragd" => mention.segments.get(1).map(String::as_str),
        "super" => {
            let up = mention
                .segments
                .iter()
                .take_while(|s| *s == "super")
                .count();
            match (module.len() + mention.depth).checked_sub(up) {
                Some(0) | None => mention.segments.get(up).map(String::as_str),
                Some(_) => module.first().map(String::as_str),
            }
        }
        _ => None,
    }
}

/// Everything that a file mentions and must not.
fn violations(module: &[String], source: &str, dependencies: &BTreeSet<String>) -> Vec<String> {
    let stream = match TokenStream::from_str(source) {
        Ok(stream) => stream,
        Err(error) => return vec![format!("cannot be read: {error}")],
    };
    let Some(home) = module.first() else {
        return Vec::new();
    };
    let Some((_, known)) = ARROWS.iter().find(|(name, _)| name == home) else {
        return vec![format!(
            "the module {home} has no place in the house: add it to ARROWS"
        )];
    };
    let mut wrong = BTreeSet::new();
    for mention in mentions(stream) {
        let into = leads_into(&mention, module);
        if let Some(into) = into
            && into != home
            && ARROWS.iter().any(|(name, _)| *name == into)
            && !known.contains(&into)
        {
            wrong.insert(format!("{home} must not know {into}: {}", mention.path()));
        }
        if home == "core" {
            let root = mention.segments[0].as_str();
            let names_crate = mention.imported || mention.segments.len() > 1;
            if names_crate && dependencies.contains(root) && !PURE_CRATES.contains(&root) {
                wrong.insert(format!(
                    "the core must not know the crate {root}: {}",
                    mention.path()
                ));
            }
            if IMPURE.iter().any(|impure| mention.reaches(impure)) {
                wrong.insert(format!(
                    "the core takes this as an argument: {}",
                    mention.path()
                ));
            }
            if ["async", "await"].contains(&root) {
                wrong.insert("the core is not async".to_owned());
            }
        }
    }
    wrong.into_iter().collect()
}

/// The names by which the code calls the crates that `Cargo.toml` depends on.
fn dependencies(root: &Path) -> BTreeSet<String> {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("Cargo.toml can be read");
    let section = manifest
        .split("\n[")
        .find_map(|section| section.strip_prefix("dependencies]"));
    let lines = section.expect("Cargo.toml has dependencies").lines();
    lines
        .filter_map(|line| Some(line.split_once(" =")?.0.replace('-', "_")))
        .collect()
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("src can be read") {
        let path = entry.expect("src can be read").path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// `src/core/rule/mod.rs` and `src/core/rule.rs` are both `[core, rule]`.
fn module_of(relative: &Path) -> Vec<String> {
    let path = relative.with_extension("");
    let mut module: Vec<String> = path
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    module.pop_if(|last| last == "mod");
    module
}

#[test]
fn every_file_of_the_house_keeps_to_its_arrows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dependencies = dependencies(root);
    assert!(
        dependencies.contains("etcd_client") && dependencies.contains("tokio"),
        "{dependencies:?}"
    );
    let src = root.join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for file in &files {
        let relative = file.strip_prefix(&src).expect("it was found there");
        let module = module_of(relative);
        if ["lib", "main"].contains(&module[0].as_str()) {
            continue;
        }
        seen.insert(module[0].clone());
        let text = fs::read_to_string(file).expect("a source file can be read");
        let found = violations(&module, &text, &dependencies);
        wrong.extend(
            found
                .into_iter()
                .map(|what| format!("src/{}: {what}", relative.display())),
        );
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    for (module, _) in ARROWS {
        assert!(
            seen.contains(*module),
            "there is no module {module} any more: take it out of ARROWS"
        );
    }
}

/// The guard itself: what it must catch, and what it must let pass.
#[test]
fn the_guard_sees_through_every_way_to_name_a_thing() {
    let dependencies: BTreeSet<String> = [
        "kube",
        "tokio",
        "reqwest",
        "etcd_client",
        "jiff",
        "thiserror",
    ]
    .map(str::to_owned)
    .into();
    let check = |module: &str, source: &str| {
        let module: Vec<String> = module.split("::").map(str::to_owned).collect();
        violations(&module, source, &dependencies)
    };
    for source in [
        "use kube::Client;",
        "use tokio;",
        "use {jiff::Timestamp, reqwest::{Url, Client as C}};",
        "fn f() { tokio::spawn(g()); }",
        "fn f() -> ::etcd_client::Client { todo!() }",
        "fn f() { println!(\"{}\", tokio::task::id()); }",
        "async fn f() {}",
        "use std::time::Instant;",
        "use std::{fmt, time::{Duration, Instant}};",
        "use std::time::{self, Duration};",
        "use std::time; fn f() { time::SystemTime::now(); }",
        "use std::time::*;",
        "fn f() { std::fs::read(\"x\"); }",
        "fn f() { let now = Timestamp::now(); }",
        "use crate::engine::Host;",
        "use crate::{core::reason::Reason, api::policy::X};",
        "fn f(a: crate::signals::Sources) {}",
        "use super::super::super::etcd::Member;",
        "mod inner { use super::super::super::super::cli; }",
        "mod inner { mod deeper { fn f() { crate::telemetry::x() } } }",
    ] {
        assert!(
            !check("core::decide::policy", source).is_empty(),
            "not caught: {source}"
        );
    }
    for source in [
        "use jiff::{SignedDuration, Timestamp};",
        "use std::{fmt, time::Duration};",
        "use crate::core::rule::Rule;",
        "use super::super::rule::Rule;",
        "mod tests { use super::*; use super::super::rule::{self, Rule}; }",
        "// use tokio::time;\n/// `kube::Client`\nfn f() { let s = \"crate::api\"; }",
        "fn f(now: Timestamp) -> Timestamp { now }",
        "#[derive(thiserror::Error)] enum E {}",
    ] {
        assert_eq!(
            check("core::decide::policy", source),
            Vec::<String>::new(),
            "{source}"
        );
    }
    for (module, source) in [
        ("api::policy", "use crate::engine::ObjectKey;"),
        ("etcd", "use super::api;"),
        ("signals::prometheus", "use crate::etcd::Connection;"),
        ("engine::run", "use crate::hosts::standalone;"),
        ("hosts::standalone", "fn f() { crate::cli::main(); }"),
        ("attic", "fn f() {}"),
    ] {
        assert!(
            !check(module, source).is_empty(),
            "not caught in {module}: {source}"
        );
    }
    assert!(
        check(
            "engine::run",
            "use crate::{core, etcd::Connection, telemetry}; use tokio::sync;"
        )
        .is_empty()
    );
}
