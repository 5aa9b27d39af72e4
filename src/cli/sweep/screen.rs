//! Where the sweep's lines go: under a moving line on a terminal, plain
//! otherwise. All on standard error; standard output is for the result.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::narrate::News;
use crate::cli::output::say;

/// How often the moving line moves.
const TICK: Duration = Duration::from_millis(120);

/// Clones show on the same terminal.
#[derive(Clone)]
pub(super) enum Screen {
    Terminal(ProgressBar),
    Lines,
}

impl Screen {
    pub(super) fn open() -> Self {
        let style = ProgressStyle::with_template("{spinner} {pos}/{len} {msg} ({elapsed})");
        match style {
            Ok(style) if stderr().is_terminal() => {
                let bar = ProgressBar::new(0)
                    .with_style(style)
                    .with_message("looking at the cluster");
                bar.enable_steady_tick(TICK);
                Screen::Terminal(bar)
            }
            _ => Screen::Lines,
        }
    }

    pub(super) fn show(&self, news: &News) {
        for line in &news.lines {
            self.line(line);
        }
        if let Screen::Terminal(bar) = self {
            bar.set_length(news.members as u64);
            bar.set_position(news.done as u64);
            if let Some(now) = &news.now
                && bar.message() != *now
            {
                bar.set_message(now.clone());
                bar.reset_elapsed();
            }
        }
    }

    pub(super) fn line(&self, line: &str) {
        match self {
            Screen::Terminal(bar) => bar.println(line),
            Screen::Lines => say(line),
        }
    }

    /// Leaves the lines and takes the moving one away.
    pub(super) fn close(&self) {
        if let Screen::Terminal(bar) = self {
            bar.finish_and_clear();
        }
    }
}
