//! When a member is worth defragmenting: the rule of a run, and of the probe.
//!
//! A rule looks at one member's numbers. A number that is not known stays
//! unknown: it is never read as zero, and it makes the verdict unknown unless
//! the rest of the rule decides without it.

mod expression;
mod percent;

pub use expression::{Expression, ExpressionError, Kind, MAX_LEN, VARIABLES};
pub use percent::{Percent, PercentError};

use super::quantity::human_bytes;
use expression::{Stop, Values};

/// Free space above which a member is due when nothing else is said: 200 MiB.
pub const DEFAULT_FREE_SPACE_ABOVE: u64 = 200 << 20;

/// Below this, a full file is taken to have nothing to give back: 32 MiB.
pub const DEFAULT_MIN_RECLAIM: u64 = 32 << 20;

/// From which share of the quota a file counts as full when the rule names
/// none: the share at which the etcd mixin's `etcdDatabaseQuotaLowSpace` warns.
const FULL_PERCENT: u64 = 95;

/// What is known of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// Size of the file in bytes; `None` when it could not be read.
    pub db_size: Option<u64>,
    /// Bytes of it in use; `None` when it could not be read, and before etcd 3.4,
    /// which reports zero (T93).
    pub db_size_in_use: Option<u64>,
    /// The limit of the file's size.
    pub quota: Quota,
}

/// A member's limit for the size of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quota {
    /// There is one.
    Known {
        /// The limit in bytes, above zero.
        bytes: u64,
        /// Where the number is from.
        source: QuotaSource,
    },
    /// etcd was told to have none (a negative quota): nothing is ever full.
    None,
    /// There is one and nobody told it.
    Unknown,
}

/// Where a quota is from, best first (R47).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuotaSource {
    /// etcd's own Status (3.6 and later).
    Status,
    /// The member's `/metrics`.
    Metrics,
    /// The target's `quotaBytes`.
    Target,
    /// etcd's default of 2 GiB, taken because nothing said otherwise.
    Default,
}

/// When a member is due.
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    /// Always, also when its sizes are unknown.
    All,
    /// When an arm fires: enough to give back, or too full and something to give back.
    Threshold {
        /// Fires when more bytes than this can be given back.
        free_space_above: Option<u64>,
        /// Fires when the file is larger than this share of the quota, and at
        /// least `min_reclaim` can be given back.
        quota_usage_above: Option<Percent>,
        /// Bytes below which a full file is left alone.
        min_reclaim: u64,
    },
    /// When the expression holds.
    Expression(Expression),
}

impl Default for Rule {
    fn default() -> Self {
        Self::Threshold {
            free_space_above: Some(DEFAULT_FREE_SPACE_ABOVE),
            quota_usage_above: None,
            min_reclaim: DEFAULT_MIN_RECLAIM,
        }
    }
}

/// What a rule says about a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Defragment it.
    Due {
        /// Bytes that it can give back, when they are known.
        reclaimable: Option<u64>,
        /// What decided.
        why: Why,
    },
    /// Leave it alone.
    NotDue {
        /// What decided.
        why: Why,
    },
    /// It hangs on something that is not known.
    Unknown {
        /// The number that is missing, by its name in expressions, or
        /// `"expression"` when all are known and it has no value all the same.
        missing: &'static str,
        /// A sentence for a person.
        message: String,
    },
}

/// What decided a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// The part of the rule that decided.
    pub arm: Arm,
    /// A sentence for a person: no capital, no full stop, human sizes.
    pub message: String,
}

/// The parts of a rule that can decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arm {
    /// The rule is `all`.
    All,
    /// `freeSpaceAbove` fired.
    FreeSpace,
    /// `quotaUsageAbove` fired.
    QuotaUsage,
    /// No threshold fired.
    BelowThresholds,
    /// The file is full and defragmenting would not help (R31, R32).
    FullButNotFragmented,
    /// The expression decided.
    Expression,
}

impl Arm {
    /// A stable name for statuses and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "All",
            Self::FreeSpace => "FreeSpace",
            Self::QuotaUsage => "QuotaUsage",
            Self::BelowThresholds => "BelowThresholds",
            Self::FullButNotFragmented => "FullButNotFragmented",
            Self::Expression => "Expression",
        }
    }
}

impl Numbers {
    /// Bytes that defragmenting would give back: the size less what is in use,
    /// zero when etcd reports more in use than there is (it reads the two at
    /// different moments). `None` when either is unknown.
    #[must_use]
    pub fn reclaimable(&self) -> Option<u64> {
        Some(self.db_size?.saturating_sub(self.db_size_in_use?))
    }

    fn values(&self) -> Values {
        let double = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
        let size = double(self.db_size);
        // Without a quota the limit is infinite and the usage of it is nothing.
        let quota = match self.quota {
            Quota::Known { bytes, .. } if bytes > 0 => Some(bytes as f64),
            Quota::None => Some(f64::INFINITY),
            Quota::Known { .. } | Quota::Unknown => None,
        };
        let usage = size.zip(quota).map(|(size, quota)| size / quota);
        [
            size,
            double(self.db_size_in_use),
            double(self.reclaimable()),
            quota,
            usage,
        ]
    }

    /// The sizes for a sentence: "1.2 GiB with 300 MiB in use, quota 2 GiB".
    fn describe(&self) -> String {
        let size = self
            .db_size
            .map_or_else(|| "unknown size".to_owned(), human_bytes);
        let in_use = self
            .db_size_in_use
            .map_or_else(|| "an unknown part".to_owned(), human_bytes);
        let quota = match self.quota {
            Quota::Known {
                bytes,
                source: QuotaSource::Default,
            } => {
                format!("quota taken to be etcd's default of {}", human_bytes(bytes))
            }
            Quota::Known { bytes, .. } => format!("quota {}", human_bytes(bytes)),
            Quota::None => "no quota".to_owned(),
            Quota::Unknown => "quota unknown".to_owned(),
        };
        format!("{size} with {in_use} in use, {quota}")
    }
}

impl Rule {
    /// Judges one member.
    #[must_use]
    pub fn judge(&self, numbers: &Numbers) -> Verdict {
        match self {
            Self::All => {
                let reclaimable = numbers.reclaimable();
                let message = match reclaimable {
                    Some(bytes) => {
                        format!("the rule is all: every member is due, {} can be given back", human_bytes(bytes))
                    }
                    None => "the rule is all: every member is due, though what it can give back is unknown".to_owned(),
                };
                Verdict::Due {
                    reclaimable,
                    why: Why {
                        arm: Arm::All,
                        message,
                    },
                }
            }
            Self::Threshold {
                free_space_above,
                quota_usage_above,
                min_reclaim,
            } => judge_thresholds(*free_space_above, *quota_usage_above, *min_reclaim, numbers),
            Self::Expression(expression) => judge_expression(expression, numbers),
        }
    }
}

fn judge_expression(expression: &Expression, numbers: &Numbers) -> Verdict {
    let why = |verb: &str| Why {
        arm: Arm::Expression,
        message: format!(
            "the expression {expression} {verb} ({})",
            numbers.describe()
        ),
    };
    match expression.evaluate(&numbers.values()) {
        Ok(true) => Verdict::Due {
            reclaimable: numbers.reclaimable(),
            why: why("holds"),
        },
        Ok(false) => Verdict::NotDue {
            why: why("does not hold"),
        },
        Err(Stop::Missing(missing)) => Verdict::Unknown {
            missing,
            message: format!(
                "the expression {expression} hangs on {missing}, which is unknown ({})",
                numbers.describe()
            ),
        },
        Err(Stop::NoValue(reason)) => Verdict::Unknown {
            missing: "expression",
            message: format!(
                "the expression {expression} has no value: {reason} ({})",
                numbers.describe()
            ),
        },
    }
}

fn judge_thresholds(
    free_space_above: Option<u64>,
    quota_usage_above: Option<Percent>,
    min_reclaim: u64,
    numbers: &Numbers,
) -> Verdict {
    let Some(size) = numbers.db_size else {
        return Verdict::Unknown {
            missing: "dbSize",
            message: "the member did not tell the size of its file".to_owned(),
        };
    };
    let Some(in_use) = numbers.db_size_in_use else {
        return Verdict::Unknown {
            missing: "dbSizeInUse",
            message: format!(
                "the member did not tell how much of its {} is in use (etcd before 3.4 cannot), so what it can give \
                 back is unknown; rule all does without",
                human_bytes(size)
            ),
        };
    };
    let reclaimable = size.saturating_sub(in_use);
    let due = |arm, message| Verdict::Due {
        reclaimable: Some(reclaimable),
        why: Why { arm, message },
    };
    let free = human_bytes(reclaimable);

    if let Some(floor) = free_space_above.filter(|floor| reclaimable > *floor) {
        let message = format!(
            "{free} can be given back, more than freeSpaceAbove {}",
            human_bytes(floor)
        );
        return due(Arm::FreeSpace, message);
    }

    let worthwhile = reclaimable >= min_reclaim;
    match (quota_usage_above, numbers.quota) {
        (Some(percent), Quota::Known { bytes, .. })
            if bytes > 0 && worthwhile && percent.is_exceeded_by(size, bytes) =>
        {
            let message = format!(
                "the file of {} is above {percent} of its quota of {} and {free} can be given back",
                human_bytes(size),
                human_bytes(bytes)
            );
            return due(Arm::QuotaUsage, message);
        }
        // With too little to give back the arm is false whatever the quota is.
        (Some(percent), Quota::Unknown | Quota::Known { bytes: 0, .. }) if worthwhile => {
            return Verdict::Unknown {
                missing: "dbQuota",
                message: format!(
                    "quotaUsageAbove {percent} needs the quota, which the member does not tell; set quotaBytes of the \
                     target"
                ),
            };
        }
        _ => {}
    }

    let why = if is_full(size, quota_usage_above, numbers.quota) && !worthwhile {
        Why {
            arm: Arm::FullButNotFragmented,
            message: format!(
                "the file is full but not fragmented ({}): defragmenting would give back only {free}, less than \
                 minReclaim {}; raise the quota, delete keys, or compact old revisions",
                numbers.describe(),
                human_bytes(min_reclaim)
            ),
        }
    } else {
        Why {
            arm: Arm::BelowThresholds,
            message: below(free_space_above, quota_usage_above, size, in_use, numbers),
        }
    };
    Verdict::NotDue { why }
}

/// Whether the file takes more of its quota than the rule names, or than
/// [`FULL_PERCENT`] when it names none. Unknown is not full.
fn is_full(size: u64, quota_usage_above: Option<Percent>, quota: Quota) -> bool {
    let Quota::Known {
        bytes: bytes @ 1.., ..
    } = quota
    else {
        return false;
    };
    match quota_usage_above {
        Some(percent) => percent.is_exceeded_by(size, bytes),
        None => u128::from(size) * 100 > u128::from(bytes) * u128::from(FULL_PERCENT),
    }
}

/// The sentence for a member that no threshold reached.
fn below(
    free_space_above: Option<u64>,
    quota_usage_above: Option<Percent>,
    size: u64,
    in_use: u64,
    numbers: &Numbers,
) -> String {
    let mut message = format!(
        "{} can be given back",
        human_bytes(size.saturating_sub(in_use))
    );
    if let Some(floor) = free_space_above {
        message.push_str(&format!(
            ", not more than freeSpaceAbove {}",
            human_bytes(floor)
        ));
    }
    if let Some(percent) = quota_usage_above {
        message.push_str(&format!(", and quotaUsageAbove {percent} does not fire"));
    }
    message.push_str(&format!(" ({})", numbers.describe()));
    // R34: without compaction, old revisions count as in use.
    let almost_all_in_use = u128::from(in_use) * 20 >= u128::from(size) * 19;
    if almost_all_in_use && size > free_space_above.unwrap_or(DEFAULT_FREE_SPACE_ABOVE) {
        message.push_str(
            "; almost all of it is in use, and old revisions count as in use until they are compacted: without \
             compaction there is nothing to give back",
        );
    }
    message
}

#[cfg(test)]
mod tests;
