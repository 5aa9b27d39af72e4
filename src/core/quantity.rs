//! Kubernetes quantities (`100Mi`, `1500m`, `1e3`), held exactly.
//!
//! A threshold that is off by one rounding step is a threshold that fires at
//! the wrong moment, so nothing in here goes through a float: a quantity is a
//! whole number of billionths, and a sample is compared with it exactly.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

/// Billionths in one unit: `n` is the smallest suffix Kubernetes knows.
const NANO: i128 = 1_000_000_000;

/// The largest magnitude a Kubernetes quantity may have (2^63 - 1).
const MAX_WHOLE: i128 = i64::MAX as i128;

/// Longer texts are refused unread: no real quantity comes near it.
const MAX_LEN: usize = 64;

const BINARY: [(&str, u32); 6] = [
    ("Ei", 60),
    ("Pi", 50),
    ("Ti", 40),
    ("Gi", 30),
    ("Mi", 20),
    ("Ki", 10),
];

/// Suffix and power of ten, largest first.
const DECIMAL: [(&str, i32); 10] = [
    ("E", 18),
    ("P", 15),
    ("T", 12),
    ("G", 9),
    ("M", 6),
    ("k", 3),
    ("", 0),
    ("m", -3),
    ("u", -6),
    ("n", -9),
];

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantityError {
    /// There is nothing to read.
    #[error("the quantity is empty, want a number with an optional suffix such as \"100Mi\"")]
    Empty,
    /// The part before the suffix is not a decimal number.
    #[error(
        "quantity {value:?} does not start with a number, want one such as \"100Mi\" or \"0.5\""
    )]
    Number {
        /// The text as given, cut short when it is very long.
        value: String,
    },
    /// The part after the number is no suffix of Kubernetes.
    #[error(
        "quantity {value:?} has the unknown suffix {suffix:?}, want one of n u m k M G T P E Ki Mi Gi Ti Pi Ei or an \
         exponent such as e3{hint}"
    )]
    Suffix {
        /// The text as given, cut short when it is very long.
        value: String,
        /// What follows the number.
        suffix: String,
        /// A guess at what was meant, or nothing.
        hint: &'static str,
    },
    /// The magnitude is beyond what Kubernetes can hold.
    #[error(
        "quantity {value:?} is too large, want at most 9223372036854775807 (just under 8Ei) in magnitude"
    )]
    Overflow {
        /// The text as given, cut short when it is very long.
        value: String,
    },
    /// The value is no whole number of billionths.
    #[error("quantity {value:?} is finer than a billionth (1n), want fewer decimal places")]
    TooPrecise {
        /// The text as given, cut short when it is very long.
        value: String,
    },
}

/// How a quantity was written: decides how it is printed, never what it is worth.
#[derive(Debug, Clone, Copy)]
enum Notation {
    Binary,
    Decimal,
    Exponent,
}

/// A Kubernetes quantity, exact to a billionth.
///
/// Two quantities are equal when they are worth the same: `1Ki` equals `1024`.
/// `Display` prints Kubernetes' canonical form in the notation it was written
/// in (`1024Mi` becomes `1Gi`, `1000m` becomes `1`).
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nano: i128,
    notation: Notation,
}

impl Quantity {
    /// Reads a quantity by Kubernetes' rules.
    ///
    /// # Errors
    /// Whatever Kubernetes would refuse, and also what it would silently cap
    /// (beyond 2^63 - 1) or round (finer than a billionth): a threshold must be
    /// the one that was written.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Empty);
        }
        let value = || -> String { text.chars().take(MAX_LEN).collect() };
        if text.len() > MAX_LEN {
            return Err(QuantityError::Number { value: value() });
        }
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let number_len = unsigned
            .bytes()
            .take_while(|b| b.is_ascii_digit() || *b == b'.')
            .count();
        let (number, suffix) = unsigned.split_at(number_len);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(QuantityError::Number { value: value() });
        }
        let Some((factor, exponent, notation)) = scale_of(suffix) else {
            return Err(QuantityError::Suffix {
                value: value(),
                suffix: suffix.to_owned(),
                hint: hint_for(suffix),
            });
        };

        // value = digits * factor * 10^(exponent - len(fraction)), in billionths.
        let fraction = fraction.trim_end_matches('0');
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return Ok(Self { nano: 0, notation });
        }
        let overflow = || QuantityError::Overflow { value: value() };
        // Digits that do not fit can still be too precise rather than too large
        // ("0." and forty digits), but never right.
        let Ok(mantissa) = digits.parse::<i128>() else {
            return Err(if whole.len() > 20 {
                overflow()
            } else {
                QuantityError::TooPrecise { value: value() }
            });
        };
        let fraction_len = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
        let power = exponent.saturating_add(9).saturating_sub(fraction_len);
        // Tens are taken out of the mantissa before twos go in, so that the
        // product stays small and the remainder says whether it is exact.
        let nano = if power >= 0 {
            let tens = u32::try_from(power)
                .ok()
                .and_then(|p| 10_i128.checked_pow(p));
            tens.and_then(|t| mantissa.checked_mul(t))
                .and_then(|n| n.checked_mul(factor))
                .ok_or_else(overflow)?
        } else {
            let scaled = mantissa.checked_mul(factor).ok_or_else(overflow)?;
            let tens = 10_i128.checked_pow(power.unsigned_abs());
            match tens {
                Some(t) if scaled % t == 0 => scaled / t,
                _ => return Err(QuantityError::TooPrecise { value: value() }),
            }
        };
        if nano > MAX_WHOLE * NANO {
            return Err(overflow());
        }
        Ok(Self {
            nano: if negative { -nano } else { nano },
            notation,
        })
    }

    /// The quantity of that many bytes, printed in binary notation (`100Mi`).
    ///
    /// Above 2^63 - 1 the value is held and compared exactly, though its text is
    /// one that Kubernetes would not read back.
    #[must_use]
    pub fn from_bytes(bytes: u64) -> Self {
        Self {
            nano: i128::from(bytes) * NANO,
            notation: Notation::Binary,
        }
    }

    /// Compares a sample with this quantity, exactly: `Some(Greater)` when
    /// `v > self`. Infinities are ordered at the ends; `None` when `v` is NaN.
    #[must_use]
    pub fn cmp_f64(&self, v: f64) -> Option<Ordering> {
        if v.is_nan() {
            return None;
        }
        if v == 0.0 || self.nano == 0 || (v > 0.0) != (self.nano > 0) {
            // At least one is zero or the signs differ: the signs decide.
            let sign = if v > 0.0 { 1 } else { -i128::from(v < 0.0) };
            return Some(sign.cmp(&self.nano.signum()));
        }
        let magnitudes = cmp_magnitude(v.abs(), self.nano.unsigned_abs());
        Some(if v > 0.0 {
            magnitudes
        } else {
            magnitudes.reverse()
        })
    }

    /// The value in bytes: `None` when it is negative, not whole, or beyond `u64`.
    #[must_use]
    pub fn to_bytes(&self) -> Option<u64> {
        (self.nano % NANO == 0)
            .then_some(self.nano / NANO)
            .and_then(|whole| u64::try_from(whole).ok())
    }

    /// The value as a float, for showing: rounded, so never compare with it
    /// (see [`Quantity::cmp_f64`]).
    #[must_use]
    pub fn as_f64(&self) -> f64 {
        if self.nano % NANO == 0 {
            (self.nano / NANO) as f64
        } else {
            self.nano as f64 / NANO as f64
        }
    }

    /// Whether the value is above zero.
    #[must_use]
    pub fn is_positive(&self) -> bool {
        self.nano > 0
    }

    /// Whether the value is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.nano == 0
    }

    /// The sum, exact for up to ten thousand million quantities. Like
    /// [`Quantity::from_bytes`] it may be more than Kubernetes would read back.
    #[must_use]
    pub fn sum(quantities: impl IntoIterator<Item = Self>) -> Self {
        let zero = Self {
            nano: 0,
            notation: Notation::Decimal,
        };
        quantities.into_iter().fold(zero, |sum, next| Self {
            nano: sum.nano.saturating_add(next.nano),
            notation: next.notation,
        })
    }

    /// So many times the value, exact.
    #[must_use]
    pub fn times(&self, factor: u32) -> Self {
        Self {
            nano: self.nano.saturating_mul(i128::from(factor)),
            notation: self.notation,
        }
    }
}

/// Factor, power of ten and notation of a suffix; `None` for one that is unknown.
fn scale_of(suffix: &str) -> Option<(i128, i32, Notation)> {
    if let Some((_, bits)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Some((1_i128 << bits, 0, Notation::Binary));
    }
    if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((1, *exponent, Notation::Decimal));
    }
    // `E` alone is exa; followed by a number it is an exponent, as `e` is.
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // An exponent beyond i32 is as hopeless as one of a thousand.
    let magnitude = digits.parse::<i32>().unwrap_or(1000).min(1000);
    let exponent = if exponent.starts_with('-') {
        -magnitude
    } else {
        magnitude
    };
    Some((1, exponent, Notation::Exponent))
}

/// What people write when they mean a suffix.
fn hint_for(suffix: &str) -> &'static str {
    match suffix {
        "K" => "; for a thousand write k, for 1024 write Ki",
        "KB" | "kB" | "kb" | "KiB" | "kib" | "ki" | "KI" => "; for kibibytes write Ki",
        "MB" | "mb" | "MiB" | "mib" | "mi" | "MI" => "; for mebibytes write Mi",
        "GB" | "gb" | "GiB" | "gib" | "gi" | "g" | "GI" => "; for gibibytes write Gi",
        "TB" | "tb" | "TiB" | "tib" | "ti" | "t" | "TI" => "; for tebibytes write Ti",
        "%" => "; a quantity is absolute, write a fraction such as 0.8",
        _ if suffix.starts_with(char::is_whitespace) => "; leave out the space",
        _ => "",
    }
}

/// Compares `v` with `nano` billionths; both are above zero and `v` is not NaN.
fn cmp_magnitude(v: f64, nano: u128) -> Ordering {
    const NANO: u128 = 1_000_000_000;
    // Any quantity is below 2^65; this also takes care of infinity.
    if v >= 36_893_488_147_419_103_232.0 {
        return Ordering::Greater;
    }
    let (whole, rest) = (nano / NANO, nano % NANO);
    let by_whole = (v.trunc() as u128).cmp(&whole);
    if by_whole != Ordering::Equal {
        return by_whole;
    }
    let fraction = v.fract();
    if fraction == 0.0 || rest == 0 {
        return (fraction > 0.0).cmp(&(rest > 0));
    }
    // fraction = mantissa / 2^shift, so compare mantissa * 10^9 with rest * 2^shift.
    let bits = fraction.to_bits();
    let raw_exponent = (bits >> 52) & 0x7ff;
    let stored = u128::from(bits & ((1 << 52) - 1));
    let (mantissa, shift) = if raw_exponent == 0 {
        (stored, 1074)
    } else {
        (stored | (1 << 52), 1075 - raw_exponent)
    };
    if shift > 90 {
        // mantissa * 10^9 < 2^83, and rest * 2^shift > 2^90.
        return Ordering::Less;
    }
    (mantissa * NANO).cmp(&(rest << shift))
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nano.hash(state);
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_whole = self.nano % NANO == 0;
        let whole = self.nano / NANO;
        if matches!(self.notation, Notation::Binary) && is_whole && whole.abs() >= 1024 {
            let fitting = BINARY
                .iter()
                .find(|(_, bits)| whole % (1_i128 << bits) == 0);
            return match fitting {
                Some((suffix, bits)) => write!(f, "{}{suffix}", whole >> bits),
                None => write!(f, "{whole}"),
            };
        }
        // Small or fractional values read better in decimal, as Kubernetes has it.
        let fitting = DECIMAL.iter().find_map(|(suffix, exponent)| {
            let unit = 10_i128.pow((exponent + 9).unsigned_abs());
            (self.nano % unit == 0).then_some((suffix, *exponent, self.nano / unit))
        });
        match fitting {
            _ if self.nano == 0 => f.write_str("0"),
            Some((_, exponent, mantissa))
                if matches!(self.notation, Notation::Exponent) && exponent != 0 =>
            {
                write!(f, "{mantissa}e{exponent}")
            }
            Some((suffix, _, mantissa)) => write!(f, "{mantissa}{suffix}"),
            // Unreachable: the last unit is one billionth.
            None => write!(f, "{}n", self.nano),
        }
    }
}

/// A size for a sentence: `"512 B"`, `"1.2 GiB"`, `"200 MiB"`. Rounded to a
/// tenth, so it is for people only.
#[must_use]
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let bytes = u128::from(bytes);
    let tenths_in = |power: usize| {
        let unit = 1_u128 << (10 * (power + 1));
        (bytes * 10 + unit / 2) / unit
    };
    // The first unit in which the rounded value stays below 1024, so that no
    // size is ever shown as "1024 MiB".
    let power = (0..UNITS.len())
        .find(|power| tenths_in(*power) < 10_240)
        .unwrap_or(UNITS.len() - 1);
    let (tenths, unit) = (tenths_in(power), UNITS[power]);
    if tenths % 10 == 0 {
        format!("{} {unit}", tenths / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests;
