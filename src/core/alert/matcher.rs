//! Matchers in Alertmanager's own syntax.

use std::fmt;

use regex::Regex;

use super::{Labels, pattern};

/// Most matchers of one signal.
pub const MAX_MATCHERS: usize = 32;
/// Longest text of one matcher, in bytes.
pub const MAX_MATCHER: usize = 1024;

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    Equal,
    NotEqual,
    Matches,
    NotMatches,
}

impl Operator {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Operator::Equal => "=",
            Operator::NotEqual => "!=",
            Operator::Matches => "=~",
            Operator::NotMatches => "!~",
        }
    }
}

/// One condition on a label. A label that an alert lacks has the empty value.
#[derive(Clone, Debug)]
pub struct Matcher {
    name: String,
    operator: Operator,
    value: String,
    /// Of `=~` and `!~`; it matches whole values only.
    regex: Option<Regex>,
}

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.operator, &self.value) == (&other.name, other.operator, &other.value)
    }
}

/// Why a text is no matcher.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatcherError {
    #[error("it is empty, wanted a matcher such as alertname=\"etcdFragmented\"")]
    Empty,
    #[error("it is {len} bytes long, wanted at most {MAX_MATCHER}")]
    TooLong { len: usize },
    #[error(
        "no label name at character {at}, wanted one such as alertname, or \"a name\" in quotes, without braces"
    )]
    NoName { at: usize },
    #[error("no operator at character {at}, wanted =, !=, =~ or !~")]
    NoOperator { at: usize },
    #[error("no value at character {at}, wanted a value in quotes; for an empty one write \"\"")]
    NoValue { at: usize },
    #[error("the quote that opens at character {at} is never closed")]
    Unclosed { at: usize },
    #[error("{found:?} at character {at} has to stand in quotes")]
    Reserved { at: usize, found: char },
    #[error(
        "{found:?} at character {at} is left over: one matcher an entry, without braces and commas"
    )]
    LeftOver { at: usize, found: char },
    #[error("the value is no regular expression: {problem}")]
    Regex { problem: String },
}

/// All conditions together; every one has to hold.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Matchers(Vec<Matcher>);

impl Matchers {
    pub fn new(matchers: Vec<Matcher>) -> Self {
        Matchers(matchers)
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Matcher> {
        self.0.iter()
    }

    /// True for an alert with these labels.
    pub fn match_labels(&self, labels: &Labels) -> bool {
        self.0
            .iter()
            .all(|matcher| matcher.holds(labels.get(&matcher.name).map_or("", String::as_str)))
    }

    /// True when an alert without any label would match, and so every alert
    /// that lacks those named.
    pub fn match_nothing_in_particular(&self) -> bool {
        self.0.iter().all(|matcher| matcher.holds(""))
    }
}

impl<'a> IntoIterator for &'a Matchers {
    type Item = &'a Matcher;
    type IntoIter = std::slice::Iter<'a, Matcher>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// `{alertname="etcdFragmented", severity=~"warning|critical"}`
impl fmt::Display for Matchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, matcher) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{matcher}")?;
        }
        f.write_str("}")
    }
}

/// As every Alertmanager reads it alike: the value in quotes, the name too where
/// it has to be.
impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_classic_name(&self.name) {
            f.write_str(&self.name)?;
        } else {
            quote(&self.name, f)?;
        }
        f.write_str(self.operator.as_str())?;
        quote(&self.value, f)
    }
}

fn quote(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

fn is_classic_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || matches!(c, '_' | ':'))
        && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':'))
}

impl Matcher {
    /// Reads one matcher.
    ///
    /// # Errors
    /// What is wrong, and at which character, counted from 1.
    pub fn parse(text: &str) -> Result<Matcher, MatcherError> {
        if text.len() > MAX_MATCHER {
            return Err(MatcherError::TooLong { len: text.len() });
        }
        let mut reader = Reader {
            chars: text.chars().collect(),
            at: 0,
        };
        reader.blanks();
        if reader.peek().is_none() {
            return Err(MatcherError::Empty);
        }
        let at = reader.place();
        let name = reader.word()?.filter(|name| !name.is_empty());
        let name = name.ok_or(MatcherError::NoName { at })?;
        reader.blanks();
        let operator = reader.operator()?;
        reader.blanks();
        let at = reader.place();
        let value = reader.word()?.ok_or(MatcherError::NoValue { at })?;
        reader.blanks();
        if let Some(found) = reader.peek() {
            let at = reader.place();
            return Err(MatcherError::LeftOver { at, found });
        }
        let regex = match operator {
            Operator::Equal | Operator::NotEqual => None,
            Operator::Matches | Operator::NotMatches => {
                Some(pattern::compile(&value).map_err(|problem| MatcherError::Regex { problem })?)
            }
        };
        Ok(Matcher {
            name,
            operator,
            value,
            regex,
        })
    }

    /// The label's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn operator(&self) -> Operator {
        self.operator
    }

    fn holds(&self, value: &str) -> bool {
        let matches = || {
            self.regex
                .as_ref()
                .is_some_and(|regex| regex.is_match(value))
        };
        match self.operator {
            Operator::Equal => value == self.value,
            Operator::NotEqual => value != self.value,
            Operator::Matches => matches(),
            Operator::NotMatches => !matches(),
        }
    }
}

/// Characters that mean something and so stand in quotes only.
const RESERVED: &[char] = &['{', '}', '!', '=', '~', ',', '\\', '"', '\'', '`'];

struct Reader {
    chars: Vec<char>,
    at: usize,
}

impl Reader {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    /// The place of the next character, from 1.
    fn place(&self) -> usize {
        self.at + 1
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
    }

    /// A name or a value, quoted or not; `None` where neither begins.
    fn word(&mut self) -> Result<Option<String>, MatcherError> {
        match self.peek() {
            Some('"') => self.quoted().map(Some),
            Some('\'' | '`') => Err(self.reserved()),
            _ => {
                let mut word = String::new();
                while let Some(c) = self.peek() {
                    if c.is_whitespace() || RESERVED.contains(&c) {
                        break;
                    }
                    word.push(c);
                    self.at += 1;
                }
                Ok(Some(word).filter(|word| !word.is_empty()))
            }
        }
    }

    fn reserved(&self) -> MatcherError {
        MatcherError::Reserved {
            at: self.place(),
            found: self.peek().unwrap_or_default(),
        }
    }

    fn quoted(&mut self) -> Result<String, MatcherError> {
        let opened = self.place();
        self.at += 1;
        let mut word = String::new();
        loop {
            match self.next() {
                None => return Err(MatcherError::Unclosed { at: opened }),
                Some('"') => return Ok(word),
                Some('\\') => {
                    let escaped = self.next().ok_or(MatcherError::Unclosed { at: opened })?;
                    let decoded = match escaped {
                        'n' => Some('\n'),
                        't' => Some('\t'),
                        'r' => Some('\r'),
                        '"' | '\\' => Some(escaped),
                        'x' => self.code(2),
                        'u' => self.code(4),
                        'U' => self.code(8),
                        _ => None,
                    };
                    match decoded {
                        Some(c) => word.push(c),
                        // Part of a regular expression, as in "a\.b".
                        None => word.extend(['\\', escaped]),
                    }
                }
                Some(c) => word.push(c),
            }
        }
    }

    /// A character by so many hexadecimal digits; nothing is read where there
    /// are none.
    fn code(&mut self, digits: usize) -> Option<char> {
        let text: String = self.chars.get(self.at..self.at + digits)?.iter().collect();
        let code = u32::from_str_radix(&text, 16).ok()?;
        let c = char::from_u32(code).filter(|_| digits > 2 || code < 0x80)?;
        self.at += digits;
        Some(c)
    }

    fn operator(&mut self) -> Result<Operator, MatcherError> {
        let at = self.place();
        let two = (self.next(), self.peek());
        let operator = match two {
            (Some('='), Some('~')) => Operator::Matches,
            (Some('='), _) => return Ok(Operator::Equal),
            (Some('!'), Some('=')) => Operator::NotEqual,
            (Some('!'), Some('~')) => Operator::NotMatches,
            _ => return Err(MatcherError::NoOperator { at }),
        };
        self.at += 1;
        Ok(operator)
    }
}
