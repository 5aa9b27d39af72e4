//! Ctrl-C in the middle of `make demo` and of `make demo-kubernetes` leaves nothing behind, and a
//! demo that did not show everything says so.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use defragd_harness::eventually;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

/// For everything to start on a machine that is busy with other tests.
const START: Duration = Duration::from_secs(240);
const END: Duration = Duration::from_secs(60);
/// The demo says this when every process runs.
const ALL_STARTED: &str = "its status:";

/// A process by its id and its arguments: an id alone may be given away again.
#[derive(Debug)]
struct Running {
    pid: u32,
    args: Vec<String>,
}

impl Running {
    /// `None` for one that is gone; a zombie has no arguments any more.
    fn look(pid: u32) -> Option<Self> {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line);
        let args: Vec<String> = line.split_terminator('\0').map(str::to_owned).collect();
        (!args.is_empty()).then_some(Self { pid, args })
    }

    fn is_there(&self) -> bool {
        Self::look(self.pid).is_some_and(|now| now.args == self.args)
    }

    fn program(&self) -> &str {
        let path = Path::new(&self.args[0]);
        path.file_name().and_then(|n| n.to_str()).unwrap_or("")
    }

    /// The temporary folders of the harness that its arguments name.
    fn folders(&self) -> BTreeSet<PathBuf> {
        let stem = std::env::temp_dir().join("defragd-");
        let stem = stem.display().to_string();
        let named = self.args.iter().filter_map(|arg| {
            let path = &arg[arg.find(&stem)?..];
            let end = path[stem.len()..].find('/');
            Some(PathBuf::from(
                end.map_or(path, |at| &path[..stem.len() + at]),
            ))
        });
        named.collect()
    }
}

fn children(parent: u32) -> Vec<Running> {
    let entries = fs::read_dir("/proc").expect("/proc can be listed");
    let ids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|pid| parent_of(*pid) == Some(parent))
        .filter_map(Running::look)
        .collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before the parenthesis may hold anything; then come state and parent.
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(1)?.parse().ok()
}

/// A demo of which every process runs.
struct Demo {
    process: Child,
    out: BufReader<ChildStdout>,
    told: String,
    running: Vec<Running>,
    folders: BTreeSet<PathBuf>,
}

impl Demo {
    /// Starts it with these arguments and waits until it has started so many processes of each
    /// program.
    async fn start(args: &[&str], programs: &[(&str, usize)]) -> Self {
        let demo = Path::new(env!("CARGO_BIN_EXE_demo"));
        let defragd = demo.with_file_name("defragd");
        assert!(
            defragd.is_file(),
            "the demo needs {}: cargo build -p defragd, or test with --workspace",
            defragd.display()
        );
        // A group of its own: as a terminal does it, the whole group gets the signal.
        let mut process = Command::new(demo)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .expect("the demo starts");
        let pid = process.id().expect("it was not waited for");
        let mut out = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut told = String::new();
        let started = tokio::time::timeout(START, async {
            while !told.contains(ALL_STARTED) {
                let read = out.read_line(&mut told).await.expect("it can be read");
                assert!(read > 0, "the demo ended early:\n{told}");
            }
        });
        started.await.expect("everything starts in time");

        let running = children(pid);
        for (program, wanted) in programs {
            let count = running.iter().filter(|c| c.program() == *program).count();
            assert_eq!(count, *wanted, "{program} in {running:?}\n{told}");
        }
        let folders: BTreeSet<PathBuf> = running.iter().flat_map(Running::folders).collect();
        assert!(
            folders.len() >= 3 && folders.iter().all(|f| f.is_dir()),
            "{folders:?}"
        );
        Self {
            process,
            out,
            told,
            running,
            folders,
        }
    }

    /// Waits for its end and returns its exit code and all that it told.
    async fn end(mut self) -> (Option<i32>, String) {
        let ended = tokio::time::timeout(END, async {
            self.out
                .read_to_string(&mut self.told)
                .await
                .expect("it can be read to its end");
            self.process.wait().await.expect("the demo is ours")
        });
        let status = ended.await.expect("the demo ends in time");
        eventually(END, "every process and folder to be gone", async || {
            let alive: Vec<_> = self.running.iter().filter(|c| c.is_there()).collect();
            let left: Vec<_> = self.folders.iter().filter(|f| f.exists()).collect();
            if alive.is_empty() && left.is_empty() {
                Ok(())
            } else {
                Err(format!("{alive:?} {left:?}"))
            }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}"));
        (status.code(), self.told)
    }

    async fn interrupt(self) {
        let pid = self.process.id().expect("it was not waited for");
        let group = Pid::from_raw(pid.cast_signed()).expect("no process has the id 0");
        kill_process_group(group, Signal::INT).expect("the demo runs");
        let (code, told) = self.end().await;
        assert_eq!(code, Some(130), "{told}");
        assert!(told.contains("interrupted"), "{told}");
        assert!(!told.contains('\x1b'), "no terminal, no colours:\n{told}");
    }
}

const STANDALONE: [(&str, usize); 3] = [("etcd", 3), ("prometheus", 1), ("defragd", 1)];

#[tokio::test]
async fn ctrl_c_ends_the_demo_and_everything_that_it_started() {
    let demo = Demo::start(&[], &STANDALONE).await;
    demo.interrupt().await;
}

#[tokio::test]
async fn ctrl_c_ends_the_demo_on_kubernetes_and_everything_that_it_started() {
    let programs = [
        // The API server has one of its own.
        ("etcd", 4),
        ("prometheus", 1),
        ("kube-apiserver", 1),
        ("kube-controller-manager", 1),
        ("defragd", 2),
    ];
    let demo = Demo::start(&["kubernetes"], &programs).await;
    demo.interrupt().await;
}

#[tokio::test]
async fn without_defragd_the_story_does_not_come_true() {
    let demo = Demo::start(&[], &STANDALONE).await;
    let defragd = demo.running.iter().find(|c| c.program() == "defragd");
    let pid = defragd.expect("counted before").pid.cast_signed();
    let pid = Pid::from_raw(pid).expect("no process has the id 0");
    kill_process(pid, Signal::KILL).expect("it runs");
    let (code, told) = demo.end().await;
    assert_eq!(code, Some(1), "{told}");
    for words in [
        "the demo failed: defragd ended",
        "not seen: the run complete",
    ] {
        assert!(told.contains(words), "{words} in {told}");
    }
}

#[tokio::test]
async fn a_demo_of_something_else_is_refused() {
    let refused = Command::new(env!("CARGO_BIN_EXE_demo"))
        .arg("elsewhere")
        .output();
    let refused = refused.await.expect("it starts");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}
