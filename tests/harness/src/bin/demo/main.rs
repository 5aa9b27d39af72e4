//! `make demo` and `make demo-kubernetes`: a policy sweeps a real etcd cluster, before one's eyes.
//!
//! Everything is real and on loopback: three etcd members, the Prometheus that scrapes them, the
//! defragd that asks Prometheus, and for the second one the Kubernetes API server that holds its
//! objects. The exit code is 0 only when all of it was seen.

mod findings;
mod host;
mod kubernetes;
mod scene;
mod screen;
mod stage;
mod standalone;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use findings::Findings;
use host::Host;
use kubernetes::InKubernetes;
use scene::Scene;
use screen::Screen;
use stage::Stage;
use standalone::Standalone;

/// How long after a failure an interrupt may still be on its way.
const NOTICE: Duration = Duration::from_millis(500);

/// What went wrong, in words for a person.
type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    match asked.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => show::<Standalone>().await,
        ["kubernetes"] => show::<InKubernetes>().await,
        _ => {
            eprintln!("usage: demo [kubernetes], not with {}", asked.join(" "));
            ExitCode::from(2)
        }
    }
}

async fn show<H: Host>() -> ExitCode {
    let mut screen = Screen::new();
    let begun = Instant::now();
    // Whatever wins, the other is dropped: servers and folders go with it.
    let mut interrupted = std::pin::pin!(interrupted());
    let mut ended = tokio::select! {
        biased;
        () = &mut interrupted => None,
        played = tokio::time::timeout(H::LIMIT, play::<H>(&mut screen)) => Some(played),
    };
    // Ctrl-C goes to the servers too: their end may be noticed first, and is no failure then.
    if matches!(ended, Some(Ok(Err(_)))) && tokio::time::timeout(NOTICE, interrupted).await.is_ok()
    {
        ended = None;
    }
    screen.finish();
    match ended {
        None => {
            screen.say("interrupted: everything that was started is gone again");
            ExitCode::from(130)
        }
        Some(Ok(Ok(()))) => {
            screen.say(&format!(
                "the demo took {:.0} s",
                begun.elapsed().as_secs_f64()
            ));
            ExitCode::SUCCESS
        }
        Some(Ok(Err(failure))) => {
            screen.say(&format!("the demo failed: {}", chain(&*failure)));
            ExitCode::FAILURE
        }
        Some(Err(_)) => {
            screen.say(&format!(
                "the demo failed: not everything was seen within {} s; is the machine very busy?",
                H::LIMIT.as_secs()
            ));
            ExitCode::FAILURE
        }
    }
}

/// The story, from nothing to the summary.
async fn play<H: Host>(screen: &mut Screen) -> Result<(), Failure> {
    screen.title(H::TITLE);
    let stage = Stage::<H>::build(screen).await?;
    let mut findings = Findings::default();
    let told = act(&stage, screen, &mut findings).await;
    screen.finish();
    let missing = findings.missing();
    if let (Ok(()), []) = (&told, missing.as_slice()) {
        findings.summary(screen);
        screen.say("\nthe servers and their folders are gone when this ends; to do the same on your own cluster:");
        H::ADVICE
            .iter()
            .for_each(|line| screen.say(&format!("  {line}")));
        return Ok(());
    }
    screen.say("\nthe end of defragd's log:");
    screen.say(&stage.host.log_tail());
    for what in &missing {
        screen.say(&format!("not seen: {what}"));
    }
    told.and(Err(format!(
        "{} of the things to see were not seen",
        missing.len()
    )
    .into()))
}

async fn act<H: Host>(
    stage: &Stage<H>,
    screen: &mut Screen,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let mut scene = Scene::new(stage);
    scene
        .watch(screen, findings, "a quiet signal", |f| f.quiet_before)
        .await?;

    screen
        .step("writing and deleting keys until about 180 MiB of each member's file are free pages");
    findings.note_start(&stage.cluster).await?;
    scene
        .watch_during(
            screen,
            findings,
            stage.cluster.fragment(stage::FILE, stage::LIVE),
        )
        .await?;
    scene
        .watch(screen, findings, "a firing signal", |f| {
            f.fired_at.is_some()
        })
        .await?;
    scene
        .watch(screen, findings, "the run to end", |f| f.run_ended)
        .await?;
    findings.note_end(&stage.cluster).await?;

    screen
        .step("fragmenting the cluster again, so that the signal fires again within the cooldown");
    scene
        .watch_during(
            screen,
            findings,
            stage.cluster.fragment(stage::FILE_AGAIN, stage::LIVE),
        )
        .await?;
    scene
        .watch(
            screen,
            findings,
            "the cooldown to hold a firing signal back",
            |f| f.held_back(),
        )
        .await?;
    let answers = stage.host.answers(findings.run_name()).await?;
    findings.note_answers(answers);
    Ok(())
}

async fn interrupted() {
    let listen = |kind| signal(kind).ok();
    let (Some(mut int), Some(mut term)) = (
        listen(SignalKind::interrupt()),
        listen(SignalKind::terminate()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = int.recv() => {}
        _ = term.recv() => {}
    }
}

/// An error and everything below it.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(source) = below {
        text.push_str(&format!(": {source}"));
        below = source.source();
    }
    text
}
