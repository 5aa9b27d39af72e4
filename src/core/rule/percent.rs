//! A whole percentage, as `quotaUsageAbove` is written.

use std::fmt;
use std::str::FromStr;

/// A whole percentage from 1 to 99. Zero would always fire and one hundred
/// never (etcd stops writing first), so neither can be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent(u8);

/// Why a text is not a [`Percent`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PercentError {
    /// There is no percent sign.
    #[error("percentage {value:?} has no percent sign, want one such as \"80%\"")]
    NoSign {
        /// The text as given, cut short when it is very long.
        value: String,
    },
    /// What stands before the percent sign is not a whole number from 1 to 99.
    #[error("percentage {value:?} is out of range, want a whole number from \"1%\" to \"99%\"")]
    Range {
        /// The text as given, cut short when it is very long.
        value: String,
    },
}

impl Percent {
    /// Reads `"80%"`.
    ///
    /// # Errors
    /// Anything but one or two digits and a percent sign, and `0%`.
    pub fn parse(text: &str) -> Result<Self, PercentError> {
        let value = || -> String { text.chars().take(32).collect() };
        let Some(number) = text.strip_suffix('%') else {
            return Err(PercentError::NoSign { value: value() });
        };
        let is_short = matches!(number.len(), 1 | 2) && number.bytes().all(|b| b.is_ascii_digit());
        match number.parse() {
            Ok(percent @ 1..=99) if is_short => Ok(Self(percent)),
            _ => Err(PercentError::Range { value: value() }),
        }
    }

    /// The number before the percent sign.
    #[must_use]
    pub fn get(self) -> u8 {
        self.0
    }

    /// Whether `part` is more than this percentage of `whole`, exactly.
    #[must_use]
    pub fn is_exceeded_by(self, part: u64, whole: u64) -> bool {
        u128::from(part) * 100 > u128::from(whole) * u128::from(self.0)
    }
}

impl FromStr for Percent {
    type Err = PercentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_percentages_between_the_ends() {
        for percent in 1..=99_u8 {
            let text = format!("{percent}%");
            let parsed = Percent::parse(&text).expect(&text);
            assert_eq!((parsed.get(), parsed.to_string()), (percent, text));
        }
        for (text, part) in [
            ("80", "no percent sign"),
            ("0.8", "no percent sign"),
            ("", "no percent sign"),
            ("%", "out of range"),
            ("0%", "out of range"),
            ("100%", "out of range"),
            ("-5%", "out of range"),
            ("+5%", "out of range"),
            ("8.5%", "out of range"),
            ("80 %", "out of range"),
            ("080%", "out of range"),
        ] {
            let error = Percent::parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn the_comparison_is_strict_and_does_not_overflow() {
        let eighty = Percent::parse("80%").expect("a percentage");
        assert!(!eighty.is_exceeded_by(80, 100));
        assert!(eighty.is_exceeded_by(81, 100));
        assert!(eighty.is_exceeded_by(u64::MAX, u64::MAX));
        assert!(!eighty.is_exceeded_by(u64::MAX / 5 * 4, u64::MAX));
    }
}
