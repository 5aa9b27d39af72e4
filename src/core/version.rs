//! What is known of etcd versions and defragmentation. Source: etcd's
//! changelogs of 3.4, 3.5 and 3.6.

use std::fmt;

/// `major.minor.patch`; a suffix (`-rc.0`, `+git`) is left out of comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl Version {
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Version {
            major,
            minor,
            patch,
        }
    }

    /// Parses what Status reports, such as `3.5.21` or `3.6.0-rc.2`. `None` when
    /// it is not a version.
    pub fn parse(text: &str) -> Option<Self> {
        let core = text
            .trim()
            .trim_start_matches('v')
            .split(['-', '+'])
            .next()?;
        let mut parts = core.split('.').map(|p| p.parse::<u32>().ok());
        let version = Version {
            major: parts.next()??,
            minor: parts.next()??,
            patch: parts.next().unwrap_or(Some(0))?,
        };
        parts.next().is_none().then_some(version)
    }

    fn below(self, minor: u32, patch: u32) -> bool {
        self.major == 3 && self.minor == minor && self.patch < patch
    }

    /// Why a member of this version must not be defragmented.
    pub fn refusal(self) -> Option<&'static str> {
        (self.below(5, 6)).then_some(
            "etcd 3.5.0 to 3.5.5 can diverge when it stops during a defragmentation; \
             upgrade to 3.5.6 or newer first",
        )
    }

    /// What a person should know before a member of this version is defragmented.
    pub fn advice(self) -> Vec<&'static str> {
        let mut advice = Vec::new();
        if self.below(4, 35) || self.below(5, 17) {
            advice.push("a defragmentation that fails on a full disk crashes this version (fixed in 3.4.35 and 3.5.17)");
        }
        if self.below(4, 38) || self.below(5, 23) || self.below(6, 5) {
            advice.push("a raft snapshot applied during a defragmentation corrupts the file of this version (fixed in 3.4.38, 3.5.23 and 3.6.5)");
        }
        if self.below(4, 19) || self.below(5, 3) {
            advice.push("this version is slower after a defragmentation until it restarts (fixed in 3.4.19 and 3.5.3)");
        }
        advice
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_servers_report() {
        for (text, want) in [
            ("3.5.21", Some(Version::new(3, 5, 21))),
            ("v3.6.0", Some(Version::new(3, 6, 0))),
            ("3.7.0-rc.2", Some(Version::new(3, 7, 0))),
            ("3.6", Some(Version::new(3, 6, 0))),
            ("", None),
            ("three", None),
            ("3.5.x", None),
            ("3.5.1.2", None),
        ] {
            assert_eq!(Version::parse(text), want, "{text:?}");
        }
    }

    #[test]
    fn r55_refuses_exactly_the_diverging_versions() {
        for patch in 0..=5 {
            assert!(Version::new(3, 5, patch).refusal().is_some(), "3.5.{patch}");
        }
        for version in [
            Version::new(3, 5, 6),
            Version::new(3, 4, 0),
            Version::new(3, 6, 0),
        ] {
            assert_eq!(version.refusal(), None, "{version}");
        }
    }

    #[test]
    fn r50_advice_ends_with_the_fixed_version() {
        for (version, count) in [
            (Version::new(3, 4, 18), 3),
            (Version::new(3, 4, 23), 2),
            (Version::new(3, 4, 36), 1),
            (Version::new(3, 4, 38), 0),
            (Version::new(3, 5, 21), 1),
            (Version::new(3, 5, 23), 0),
            (Version::new(3, 6, 4), 1),
            (Version::new(3, 6, 5), 0),
            (Version::new(3, 7, 3), 0),
        ] {
            assert_eq!(version.advice().len(), count, "{version}");
        }
    }
}
