//! Where the demo talks to: a table that is drawn again and again on a terminal, lines elsewhere.

use std::io::{IsTerminal, Write, stdout};
use std::time::Instant;

/// Lines that stay, and below them on a terminal a table that changes.
pub(crate) struct Screen {
    terminal: bool,
    begun: Instant,
    table: Vec<String>,
    /// How many lines of the table are on the terminal now.
    drawn: usize,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self {
            terminal: stdout().is_terminal() && !dumb,
            begun: Instant::now(),
            table: Vec::new(),
            drawn: 0,
        }
    }

    pub(crate) fn title(&mut self, text: &str) {
        let bold = self.bold(text);
        self.say(&bold);
    }

    /// What is done next.
    pub(crate) fn step(&mut self, text: &str) {
        let line = self.bold(&format!("{} > {text}", self.clock()));
        self.say(&line);
    }

    /// Something that happened.
    pub(crate) fn event(&mut self, text: &str) {
        let line = format!("{}   {text}", self.clock());
        self.say(&line);
    }

    /// Something that is quoted, such as a file.
    pub(crate) fn quote(&mut self, text: &str) {
        for line in text.trim_end().lines() {
            self.say(format!("          {line}").trim_end());
        }
    }

    /// A line that stays.
    pub(crate) fn say(&mut self, text: &str) {
        self.print(&format!("{}{text}\n{}", self.erase(), self.draw()));
        self.drawn = if self.terminal { self.table.len() } else { 0 };
    }

    /// The table as it is now.
    pub(crate) fn show(&mut self, table: Vec<String>) {
        if !self.terminal || table == self.table {
            return;
        }
        let erase = self.erase();
        self.table = table;
        self.print(&format!("{erase}{}", self.draw()));
        self.drawn = self.table.len();
    }

    /// The table stays as it is, and what follows comes below it.
    pub(crate) fn finish(&mut self) {
        self.table.clear();
        self.drawn = 0;
    }

    fn clock(&self) -> String {
        format!("{:5.1} s", self.begun.elapsed().as_secs_f64())
    }

    fn bold(&self, text: &str) -> String {
        if self.terminal {
            format!("\x1b[1m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    fn erase(&self) -> String {
        match self.drawn {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\r\x1b[J"),
        }
    }

    fn draw(&self) -> String {
        if !self.terminal || self.table.is_empty() {
            return String::new();
        }
        // Without automatic margins: a line that is too long must not become two.
        format!("\x1b[?7l{}\n\x1b[?7h", self.table.join("\n"))
    }

    /// A reader that has gone away is no reason to end: the servers are cleaned up all the same.
    fn print(&self, text: &str) {
        let mut out = stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

/// Bytes for people.
pub(crate) fn mib(bytes: u64) -> String {
    // Sizes of files are far below 2^52.
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
