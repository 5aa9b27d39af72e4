//! Scalars of the custom resources: times, integers or strings, exact numbers.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A moment, written as RFC 3339 with milliseconds. What is finer is cut off on
/// the way in, so that writing and reading again gives the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Timestamp);

impl Time {
    /// The moment as a timestamp of whole milliseconds.
    pub const fn timestamp(self) -> Timestamp {
        self.0
    }
}

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Self {
        // The millisecond of a timestamp is within the range of timestamps.
        Time(Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at))
    }
}

impl From<Time> for Timestamp {
    fn from(time: Time) -> Self {
        time.0
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse::<Timestamp>().map(Time::from).map_err(|_| {
            de::Error::custom(format_args!(
                "{text:?} is not a time; write it as RFC 3339 does, such as \"2026-01-31T22:00:00Z\""
            ))
        })
    }
}

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// What Kubernetes calls `int-or-string`: quantities are written as `200Mi`,
/// `"1500m"` or `104857600`. A YAML float with a fraction is refused, because
/// binary floating point would change the number before anybody could compare
/// it exactly.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum IntOrString {
    Int(i64),
    String(String),
}

/// Integers up to here are exact in a float.
const EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;

impl IntOrString {
    /// The integer that a float stands for, or why it cannot be taken.
    pub(crate) fn from_float(value: f64) -> Result<Self, String> {
        if value.fract() == 0.0 && value.abs() <= EXACT_FLOAT {
            // Whole and within 2^53: the conversion is exact.
            Ok(IntOrString::Int(value as i64))
        } else {
            Err(format!(
                "{value} is a floating-point number; put it in quotes: \"{value}\""
            ))
        }
    }
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntOrString::Int(value) => value.fmt(f),
            IntOrString::String(text) => f.write_str(text),
        }
    }
}

impl From<&str> for IntOrString {
    fn from(text: &str) -> Self {
        IntOrString::String(text.to_owned())
    }
}

impl Serialize for IntOrString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            IntOrString::Int(value) => serializer.serialize_i64(*value),
            IntOrString::String(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for IntOrString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = IntOrString;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer or a string")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<IntOrString, E> {
                Ok(IntOrString::Int(value))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<IntOrString, E> {
                // Beyond i64 the text carries it; the quantity's parser judges the range.
                Ok(i64::try_from(value)
                    .map_or_else(|_| IntOrString::String(value.to_string()), IntOrString::Int))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<IntOrString, E> {
                IntOrString::from_float(value).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<IntOrString, E> {
                Ok(IntOrString::String(text.to_owned()))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for IntOrString {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "IntOrString".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-int-or-string": true })
    }
}

/// A floating-point number written as text, as Prometheus writes samples:
/// `NaN` and `+Inf` exist, and every value survives the way through JSON.
#[derive(Clone, Copy, Debug)]
pub struct Number(pub f64);

impl PartialEq for Number {
    /// Bit by bit, so that NaN equals itself and a status can be compared.
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits() || (self.0.is_nan() && other.0.is_nan())
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        let magnitude = value.abs();
        if value.is_nan() {
            f.write_str("NaN")
        } else if value.is_infinite() {
            f.write_str(if value > 0.0 { "+Inf" } else { "-Inf" })
        } else if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
            write!(f, "{value:e}")
        } else {
            write!(f, "{value}")
        }
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map(Number).map_err(|_| {
            de::Error::custom(format_args!(
                "{text:?} is not a number; write it as \"1.5\""
            ))
        })
    }
}

impl JsonSchema for Number {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Number".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// Declares an enum of the API with the same variants as one of core, and the
/// conversions both ways. The names in YAML are the variants' names.
macro_rules! mirror {
    ($(#[$meta:meta])* $name:ident = $core:path { $($variant:ident),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash,
            serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        #[schemars(inline)]
        pub enum $name { $($variant),+ }

        impl From<$core> for $name {
            fn from(value: $core) -> Self {
                match value { $(<$core>::$variant => $name::$variant),+ }
            }
        }

        impl From<$name> for $core {
            fn from(value: $name) -> Self {
                match value { $($name::$variant => <$core>::$variant),+ }
            }
        }
    };
}
pub(crate) use mirror;
