//! Writing results and complaints, and the tables of the text form.

use std::fmt::Display;
use std::io::{self, Write};

use jiff::SignedDuration;
use serde::Serialize;

use super::CliError;
use crate::core::duration;
use crate::core::quantity::human_bytes;

/// How a result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people; may change with any release
    Text,
    /// One JSON document, nothing else
    Json,
    /// One YAML document, nothing else
    Yaml,
}

/// Writes a result to standard output. A reader that has closed its end wanted
/// no more of it, which is no error.
pub(super) fn emit(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CliError::Output(error)),
        _ => Ok(()),
    }
}

/// Writes one line to standard error. When that cannot be written there is
/// nowhere left to say so.
pub(super) fn say(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Says what went wrong, as clap does for what it finds itself.
pub(super) fn complain(error: &CliError) {
    say(format_args!("error: {error}"));
}

/// Writes an object as JSON or YAML.
pub(super) fn emit_object<T: Serialize>(object: &T, yaml: bool) -> Result<(), CliError> {
    let text = if yaml {
        serde_yaml::to_string(object).map_err(|e| CliError::Render(e.to_string()))?
    } else {
        let mut text =
            serde_json::to_string_pretty(object).map_err(|e| CliError::Render(e.to_string()))?;
        text.push('\n');
        text
    };
    emit(&text)
}

/// The members of a run, a row each.
pub(super) fn member_table(rows: &[[String; 8]]) -> String {
    let heading = [
        "MEMBER",
        "ROLE",
        "OUTCOME",
        "BEFORE",
        "AFTER",
        "RECLAIMED",
        "TOOK",
        "REASON",
    ];
    table(heading, rows)
}

/// Lines up rows under a heading. The last column is not padded.
pub(super) fn table<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = heading.map(|cell| cell.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let heading = heading.map(str::to_owned);
    for row in std::iter::once(&heading).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A size, or a dash when it is not known.
pub(super) fn size(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), human_bytes)
}

/// How long something took: tenths of a second matter below a minute.
pub(super) fn took(span: SignedDuration) -> String {
    if span < SignedDuration::from_mins(1) {
        format!("{:.1}s", span.as_secs_f64().max(0.0))
    } else {
        duration::human(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_have_no_tail() {
        let rows = [
            ["a".to_owned(), "größer".to_owned()],
            ["bcd".to_owned(), String::new()],
        ];
        assert_eq!(table(["X", "Y"], &rows), "X    Y\na    größer\nbcd\n");
    }

    #[test]
    fn spans_are_fine_below_a_minute_and_coarse_above() {
        for (millis, text) in [
            (-5, "0.0s"),
            (420, "0.4s"),
            (59_000, "59.0s"),
            (61_000, "1m 1s"),
        ] {
            assert_eq!(took(SignedDuration::from_millis(millis)), text);
        }
    }
}
