//! `defragd sweep`: one run in the foreground, from flags. It holds no state
//! and resumes nothing, but obeys every rule that the hosts obey.

mod args;
mod narrate;
mod report;
mod screen;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as MetaTime;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::defrag::{EtcdDefrag, EtcdDefragStatus};
use crate::core::duration;
use crate::core::reason::Reason;
use crate::core::run::{Note, RunRecord};
use crate::core::sweep::{Control, Step};
use crate::engine::drive::{Driven, Orders, Recorder, drive};
use crate::engine::{HostError, now};
use crate::etcd::{ClusterClient, Guard};

use super::output::{self, Format};
use super::signals::Signals;
use super::{CliError, Exit};
use narrate::{Narrator, label};
use screen::Screen;

pub(super) use args::Args;

/// Sweeps once and says how it went.
pub(super) async fn run(args: Args) -> Result<Exit, CliError> {
    let connection = args.connection()?;
    let (mut object, spec) = args.run()?;
    // Reads every file that the flags name, so that a wrong one is told at once
    // and as what it is. Nothing is connected yet.
    ClusterClient::connect(connection.clone())
        .await
        .map_err(|e| CliError::Usage(args::in_flags(&e.to_string())))?;
    let mut signals = Signals::listen().map_err(CliError::Start)?;

    object.metadata.creation_timestamp = Some(MetaTime(now()));
    let (orders, follow) = watch::channel(Orders {
        connection: Arc::new(connection),
        spec,
        control: Control::default(),
    });
    let (held, holding) = watch::channel(None);
    let screen = Screen::open();
    let mut keeper = Keeper {
        object,
        record: RunRecord::default(),
        narrator: Narrator::default(),
        screen: screen.clone(),
        orders: orders.clone(),
        held,
    };
    let shutdown = CancellationToken::new();
    let aborted = {
        let driving = drive(RunRecord::default(), follow, &mut keeper, &shutdown);
        tokio::pin!(driving);
        let patience = patience(holding, args.wait);
        tokio::pin!(patience);
        let mut interrupted = false;
        let mut gave_up = false;
        loop {
            tokio::select! {
                // First what has been done, then what is asked of it.
                biased;
                driven = &mut driving => match driven {
                    Driven::Finished(_) | Driven::ShutDown(_) | Driven::Superseded(_) => break false,
                },
                () = signals.next() => {
                    if interrupted {
                        break true;
                    }
                    interrupted = true;
                    screen.line(
                        "interrupted: it ends after the member in progress; a second signal aborts at once",
                    );
                    let note = Note::new(Reason::Interrupted, "interrupted by a signal");
                    orders.send_modify(|orders| orders.control.stop = Some(note));
                }
                note = &mut patience, if !gave_up => {
                    gave_up = true;
                    // An interrupt that came first stays the reason.
                    orders.send_modify(|orders| {
                        orders.control.stop.get_or_insert(note);
                    });
                }
            }
        }
    };
    screen.close();
    if aborted {
        return Ok(keeper.abort());
    }
    keeper.report(args.output)
}

/// A gate that is closed.
#[derive(Clone, Debug)]
struct Held {
    since: Instant,
    note: Note,
}

/// Ends when a closed gate has been waited for long enough.
async fn patience(mut holding: watch::Receiver<Option<Held>>, wait: Duration) -> Note {
    loop {
        let held = holding.borrow_and_update().clone();
        let Some(Held { since, note }) = held else {
            if holding.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            continue;
        };
        // No wait mends a wrong password, certificate or URL.
        let hopeless = matches!(
            note.reason,
            Reason::PermissionDenied | Reason::EndpointUnusable
        );
        let wait = if hopeless { Duration::ZERO } else { wait };
        tokio::select! {
            () = tokio::time::sleep_until(since + wait) => {}
            Ok(()) = holding.changed() => continue,
        }
        let waited = jiff::SignedDuration::try_from(wait).unwrap_or(jiff::SignedDuration::MAX);
        return match hopeless || wait.is_zero() {
            true => note,
            false => Note::new(
                note.reason,
                format!(
                    "{} (waited for {}, see --wait)",
                    note.message,
                    duration::human(waited)
                ),
            ),
        };
    }
}

/// Keeps the record, in memory only, and shows what is new about it.
struct Keeper {
    object: EtcdDefrag,
    record: RunRecord,
    narrator: Narrator,
    screen: Screen,
    orders: watch::Sender<Orders>,
    held: watch::Sender<Option<Held>>,
}

impl Recorder for Keeper {
    async fn record(&mut self, record: &RunRecord, step: &Step) -> Result<(), HostError> {
        self.keep(record);
        let news = self.narrator.tell(record, step);
        self.screen.show(&news);
        self.hold(record, step);
        Ok(())
    }

    /// Nobody else works with this record.
    fn permit(&self) -> Result<(), HostError> {
        Ok(())
    }

    fn guard(&self) -> Guard {
        Arc::new(|| Ok(()))
    }
}

impl Keeper {
    fn keep(&mut self, record: &RunRecord) {
        let none = EtcdDefragStatus::default();
        let before = self.object.status.as_ref().unwrap_or(&none);
        let status =
            EtcdDefragStatus::from_record(record, self.object.metadata.generation, before, now());
        self.object.status = Some(status);
        self.record = record.clone();
    }

    /// Notes that the gate is closed, or open again.
    fn hold(&self, record: &RunRecord, step: &Step) {
        if record.touched() {
            // The gate opened at the last moment: from here on only a person or
            // the deadline ends it.
            self.held.send_replace(None);
            self.orders.send_if_modified(|orders| {
                let given_up = orders
                    .control
                    .stop
                    .as_ref()
                    .is_some_and(|note| note.reason != Reason::Interrupted);
                let withdrawn = given_up && record.stopping.is_none();
                if withdrawn {
                    orders.control.stop = None;
                }
                withdrawn
            });
            return;
        }
        let Step::Hold { note, .. } = step else {
            self.held.send_replace(None);
            return;
        };
        self.held.send_modify(|held| {
            let since = held.as_ref().map_or_else(Instant::now, |held| held.since);
            *held = Some(Held {
                since,
                note: note.clone(),
            });
        });
    }

    /// Says what was left behind by a second signal.
    fn abort(&self) -> Exit {
        let at_work = self
            .record
            .in_flight()
            .map(|member| label(&self.record, member.id));
        output::say(match at_work {
            Some(member) => format!(
                "aborted: {member} may still be at its defragmentation, which goes on without defragd; \
                 look at etcd_disk_defrag_inflight or wait until its Status answers before anything else is done to it"
            ),
            None => "aborted".to_owned(),
        });
        Exit::Interrupted
    }

    /// Writes the result.
    fn report(&self, format: Format) -> Result<Exit, CliError> {
        match format {
            Format::Text => output::emit(&report::text(&self.record))?,
            Format::Json | Format::Yaml => {
                self.screen.line(&report::result(&self.record));
                output::emit_object(&self.object, format == Format::Yaml)?;
            }
        }
        Ok(report::exit(&self.record))
    }
}
