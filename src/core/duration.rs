//! Durations as Prometheus writes them: `30s`, `5m`, `1h30m`, `1d`, `45m0s`.
//!
//! Grammar and limits are those of Prometheus' `model.ParseDuration`: whole
//! numbers with the units `y w d h m s ms`, largest first, each at most once; a
//! year is 365 days, a week 7, a day 24 hours; at most 2^63 - 1 nanoseconds.

use jiff::SignedDuration;

/// The texts that [`parse`] reads, as a regular expression for a schema. It
/// uses only what every dialect has (no look-ahead) and never matches an empty
/// text. Only the upper limit is left to [`parse`].
pub const PATTERN: &str = concat!(
    "^(0",
    "|[0-9]+y([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?",
    "|[0-9]+w([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?",
    "|[0-9]+d([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?",
    "|[0-9]+h([0-9]+m)?([0-9]+s)?([0-9]+ms)?",
    "|[0-9]+m([0-9]+s)?([0-9]+ms)?",
    "|[0-9]+s([0-9]+ms)?",
    "|[0-9]+ms",
    ")$",
);

/// Unit and its milliseconds, largest first.
const UNITS: [(&str, i64); 7] = [
    ("y", 365 * 24 * 3_600_000),
    ("w", 7 * 24 * 3_600_000),
    ("d", 24 * 3_600_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Prometheus holds a duration in 64 bits of nanoseconds.
const MAX_MILLIS: i64 = i64::MAX / 1_000_000;

/// How much of a bad text is repeated in a message.
const SHOWN: usize = 64;

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DurationError {
    /// There is nothing to read.
    #[error("the duration is empty, want one such as \"30s\" or \"1h30m\"")]
    Empty,
    /// A sign was given.
    #[error("duration {value:?} has a sign, want an unsigned one such as \"30s\"")]
    Signed {
        /// The text as given, cut short when it is very long.
        value: String,
    },
    /// A number stands alone.
    #[error("duration {value:?} lacks a unit, want one such as \"30s\" (units y w d h m s ms)")]
    NoUnit {
        /// The text as given, cut short when it is very long.
        value: String,
    },
    /// A number is broken by a point.
    #[error("duration {value:?} has a decimal point, want whole numbers such as \"1h30m\"")]
    Fraction {
        /// The text as given, cut short when it is very long.
        value: String,
    },
    /// A unit is not one of Prometheus'.
    #[error(
        "duration {value:?} has the unknown unit {unit:?}, want y, w, d, h, m, s or ms as in \"1h30m\""
    )]
    UnknownUnit {
        /// The text as given, cut short when it is very long.
        value: String,
        /// What stands where a unit was expected.
        unit: String,
    },
    /// A unit comes after a smaller one or for the second time.
    #[error(
        "duration {value:?} has the unit {unit:?} out of order, want each unit once and the largest first"
    )]
    Order {
        /// The text as given, cut short when it is very long.
        value: String,
        /// The unit that is misplaced.
        unit: &'static str,
    },
    /// The value is beyond what Prometheus can hold.
    #[error("duration {value:?} is too long, want at most 292y")]
    Overflow {
        /// The text as given, cut short when it is very long.
        value: String,
    },
}

/// Reads a duration: whole milliseconds, never negative. `"0"` is zero, as in
/// Prometheus; whether zero makes sense is for the caller to say.
///
/// # Errors
/// What Prometheus would refuse, with the text and what was wanted.
pub fn parse(text: &str) -> Result<SignedDuration, DurationError> {
    let value = || -> String { text.chars().take(SHOWN).collect() };
    match text {
        "" => return Err(DurationError::Empty),
        "0" => return Ok(SignedDuration::ZERO),
        _ if text.starts_with(['-', '+']) => return Err(DurationError::Signed { value: value() }),
        _ => {}
    }
    let mut rest = text;
    let mut units = &UNITS[..];
    let mut millis = Some(0_i64);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        let unit_len = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        if unit.is_empty() {
            return Err(DurationError::NoUnit { value: value() });
        }
        if unit.starts_with('.') {
            return Err(DurationError::Fraction { value: value() });
        }
        let known = UNITS.iter().find(|(name, _)| *name == unit);
        let (Some((name, size)), false) = (known, number.is_empty()) else {
            return Err(DurationError::UnknownUnit {
                value: value(),
                unit: unit.chars().take(SHOWN).collect(),
            });
        };
        let Some(place) = units.iter().position(|(other, _)| other == name) else {
            return Err(DurationError::Order {
                value: value(),
                unit: name,
            });
        };
        units = &units[place + 1..];
        let part = number
            .parse::<i64>()
            .ok()
            .and_then(|n| n.checked_mul(*size));
        millis = millis
            .zip(part)
            .and_then(|(sum, part)| sum.checked_add(part));
        rest = tail;
    }
    millis
        .filter(|millis| *millis <= MAX_MILLIS)
        .map(SignedDuration::from_millis)
        .ok_or_else(|| DurationError::Overflow { value: value() })
}

/// Writes a duration so that [`parse`] gives it back: `1h30m`, `90d`, `0s`.
///
/// Years and weeks appear only when nothing is left over, as in Prometheus
/// (`90d` rather than `12w6d`). What is finer than a millisecond is cut off; a
/// negative duration, which the grammar has no way to say, is written `0s`.
#[must_use]
pub fn format(duration: SignedDuration) -> String {
    let mut millis = duration.as_millis().max(0);
    if millis == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, size) in UNITS {
        let size = i128::from(size);
        let only_when_exact = matches!(unit, "y" | "w");
        if millis < size || (only_when_exact && millis % size != 0) {
            continue;
        }
        text.push_str(&std::format!("{}{unit}", millis / size));
        millis %= size;
    }
    text
}

/// A duration for a sentence: `2m 5s`, `1d 4h`. Rounded to the nearest second,
/// so it is for people only; a negative one reads `0s`.
#[must_use]
pub fn human(duration: SignedDuration) -> String {
    let mut seconds = (duration.as_millis().max(0) + 500) / 1000;
    if seconds == 0 {
        return "0s".to_owned();
    }
    let mut parts = Vec::new();
    for (unit, size) in [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)] {
        if seconds >= size {
            parts.push(std::format!("{}{unit}", seconds / size));
            seconds %= size;
        }
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whether [`PATTERN`] matches, asked of the regular expressions that a
    /// Kubernetes API server also has (RE2's dialect, here through CEL).
    fn pattern_matches(text: &str) -> bool {
        let program =
            cel::Program::compile("text.matches(pattern)").expect("a constant expression");
        let mut context = cel::Context::default();
        context.add_variable_from_value("text", text.to_owned());
        context.add_variable_from_value("pattern", PATTERN.to_owned());
        matches!(program.execute(&context), Ok(cel::Value::Bool(true)))
    }

    #[test]
    fn what_prometheus_reads_is_read() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("45m0s", 2_700_000),
            ("1d", 86_400_000),
            ("1w", 604_800_000),
            ("1y", 31_536_000_000),
            ("1y2w3d4h5m6s7ms", 33_019_506_007),
            ("1500ms", 1500),
            ("007s", 7000),
            ("90m", 5_400_000),
            ("9223372036854ms", 9_223_372_036_854),
        ] {
            assert_eq!(
                parse(text),
                Ok(SignedDuration::from_millis(millis)),
                "{text}"
            );
            assert!(pattern_matches(text), "{text}");
        }
    }

    #[test]
    fn what_prometheus_refuses_is_refused_with_a_remedy() {
        for (text, part) in [
            ("", "empty"),
            ("-5m", "has a sign"),
            ("+5m", "has a sign"),
            ("5", "lacks a unit"),
            ("1h30", "lacks a unit"),
            ("1.5h", "decimal point"),
            ("5min", "unknown unit \"min\""),
            ("5M", "unknown unit \"M\""),
            ("5us", "unknown unit \"us\""),
            ("1h 30m", "unknown unit \"h \""),
            (" 5m", "unknown unit \" \""),
            ("5m ", "unknown unit \"m \""),
            ("h", "unknown unit \"h\""),
            ("forever", "unknown unit \"forever\""),
            ("٣s", "unknown unit"),
            ("1m1h", "out of order"),
            ("1s1s", "out of order"),
            ("1ms1s", "out of order"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(
                text.is_empty() || error.contains(&std::format!("{text:?}")),
                "{text}: {error}"
            );
            assert!(!pattern_matches(text), "{text}");
        }
        for text in [
            "293y",
            "9223372036855ms",
            "99999999999999999999s",
            "292y53w",
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains("too long"), "{text}: {error}");
        }
    }

    #[test]
    fn written_as_prometheus_writes() {
        for (millis, text) in [
            (0, "0s"),
            (-5000, "0s"),
            (1, "1ms"),
            (30_000, "30s"),
            (5_400_000, "1h30m"),
            (86_400_000, "1d"),
            (604_800_000, "1w"),
            (90 * 86_400_000, "90d"),
            (365 * 86_400_000, "1y"),
            (3_600_001, "1h1ms"),
        ] {
            assert_eq!(format(SignedDuration::from_millis(millis)), text);
        }
    }

    #[test]
    fn read_well_in_a_sentence() {
        for (millis, text) in [
            (125_000, "2m 5s"),
            (124_500, "2m 5s"),
            (124_499, "2m 4s"),
            (499, "0s"),
            (-10_000, "0s"),
            (3_600_000, "1h"),
            (59_999, "1m"),
            (100_800_000, "1d 4h"),
        ] {
            assert_eq!(human(SignedDuration::from_millis(millis)), text);
        }
        assert_eq!(human(SignedDuration::MIN), "0s");
        assert!(human(SignedDuration::MAX).starts_with("106751991167300d"));
    }

    proptest! {
        #[test]
        fn round_trips(millis in 0..=MAX_MILLIS) {
            let duration = SignedDuration::from_millis(millis);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn never_panics(text in "\\PC{0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn the_pattern_and_the_parser_agree(text in "([0-9]{0,3}(y|w|d|h|m|s|ms|x|\\.)?){0,4}") {
            let is_grammatical = matches!(parse(&text), Ok(_) | Err(DurationError::Overflow { .. }));
            prop_assert_eq!(is_grammatical, pattern_matches(&text), "{}", text);
        }
    }
}
