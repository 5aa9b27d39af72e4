//! Parsing with limits, and finding the place of an error.
//!
//! The parser says what is wrong but not where. The place is found by asking it
//! again: the first token that makes the text before it impossible to complete
//! is where the fault shows.

use promql_parser::parser::{self, Expr};

use super::{MAX_DEPTH, MAX_OPERATORS, Place, PromqlError};

/// How much of the text an error shows, in characters.
const NEAR_CHARS: usize = 24;

/// Above so many tokens an error of types is reported without a search for its
/// place, which parses the text once for every token.
const MAX_SEARCHED_TOKENS: usize = 400;

/// What the parser says when the grammar has no rule for the text.
const GRAMMAR_ERROR: &str = "invalid promql query";

/// A token as far as limits and places need it: a piece of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token<'a> {
    start: usize,
    text: &'a str,
}

impl Token<'_> {
    fn end(&self) -> usize {
        self.start + self.text.len()
    }

    fn is_word(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }
}

/// Parses within the limits of this module.
pub(super) fn parse(text: &str) -> Result<Expr, PromqlError> {
    let tokens = tokens(text);
    check_limits(&tokens)?;
    check_durations(text, &tokens)?;
    parser::parse(text).map_err(|message| locate(text, &tokens, &message))
}

/// Splits a text into tokens; blanks and comments are dropped. Whatever the
/// language does not know becomes a token of one character.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    // Only there a colon is no part of a name.
    let mut in_range = false;
    while let Some(first) = rest.chars().next() {
        let start = text.len() - rest.len();
        let length = match first {
            c if c.is_whitespace() => {
                rest = &rest[c.len_utf8()..];
                continue;
            }
            '#' => {
                rest = rest.find(['\n', '\r']).map_or("", |end| &rest[end..]);
                continue;
            }
            '"' | '\'' | '`' => string_length(rest, first),
            ':' if in_range => 1,
            c if is_word_char(c) && !c.is_ascii_digit() => {
                rest.find(|c: char| !is_word_char(c)).unwrap_or(rest.len())
            }
            c if c.is_ascii_digit() || c == '.' => number_length(rest),
            '=' | '!' | '<' | '>' => match rest.as_bytes().get(1) {
                Some(b'=' | b'~') => 2,
                _ => 1,
            },
            c => c.len_utf8(),
        };
        in_range = first == '[' || in_range && first != ']';
        found.push(Token {
            start,
            text: &rest[..length],
        });
        rest = &rest[length..];
    }
    found
}

fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

/// The length of the string that `text` starts with; all of it when unclosed.
fn string_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// The length of the number or duration that `text` starts with.
fn number_length(text: &str) -> usize {
    let hex = text.starts_with("0x") || text.starts_with("0X");
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        let exponent_sign = !hex && matches!(c, '+' | '-') && matches!(previous, 'e' | 'E');
        if !(c.is_ascii_alphanumeric() || c == '_' || c == '.' || exponent_sign) {
            return at;
        }
        previous = c;
    }
    text.len()
}

fn check_limits(tokens: &[Token<'_>]) -> Result<(), PromqlError> {
    let mut depth = 0_usize;
    let mut deepest = 0_usize;
    let mut operators = 0_usize;
    for token in tokens {
        match token.text {
            "(" | "[" | "{" => {
                depth += 1;
                deepest = deepest.max(depth);
                operators += 1;
            }
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            "+" | "-" | "*" | "/" | "%" | "^" | "==" | "!=" | "<" | "<=" | ">" | ">=" => {
                operators += 1;
            }
            _ if ["and", "or", "unless", "atan2"]
                .iter()
                .any(|w| token.is_word(w)) =>
            {
                operators += 1;
            }
            _ => {}
        }
    }
    if deepest > MAX_DEPTH {
        return Err(PromqlError::TooComplex {
            what: "levels of brackets",
            seen: deepest,
            limit: MAX_DEPTH,
        });
    }
    if operators > MAX_OPERATORS {
        return Err(PromqlError::TooComplex {
            what: "operators and brackets",
            seen: operators,
            limit: MAX_OPERATORS,
        });
    }
    Ok(())
}

/// Refuses numbers where a duration stands that the parser would panic on
/// (`x[1e30]`, `x offset Inf`) or would silently read as something shorter
/// (`x[99999999999s5m]`).
fn check_durations(text: &str, tokens: &[Token<'_>]) -> Result<(), PromqlError> {
    let mut in_range = false;
    let mut after_offset = false;
    for token in tokens {
        match token.text {
            "[" => in_range = true,
            "]" => in_range = false,
            "+" | "-" if after_offset => continue,
            word if (in_range && word != ":" || after_offset) && !is_sane_duration(word) => {
                return Err(PromqlError::Syntax {
                    place: place_at(text, token.start),
                    message: "wanted a duration such as 5m or 1h30m".to_owned(),
                });
            }
            _ => {}
        }
        after_offset = token.is_word("offset");
    }
    Ok(())
}

/// True unless `word` is a number out of the bounds of a duration. What is no
/// number at all is left to the parser.
fn is_sane_duration(word: &str) -> bool {
    if ["inf", "nan"].iter().any(|w| word.eq_ignore_ascii_case(w)) {
        return false;
    }
    if !word.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return true;
    }
    let digits_fit = word
        .split(|c: char| !c.is_ascii_digit())
        .all(|digits| digits.len() <= 9);
    let has_exponent = word.contains(['e', 'E']);
    digits_fit && !has_exponent
}

fn place_at(text: &str, offset: usize) -> Place {
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let near: String = text[offset..]
        .chars()
        .take_while(|c| *c != '\n' && *c != '\r')
        .take(NEAR_CHARS)
        .flat_map(|c| {
            if c.is_control() {
                c.escape_default().collect()
            } else {
                vec![c]
            }
        })
        .collect();
    Place {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
        near: near.trim_end().to_owned(),
    }
}

fn locate(text: &str, tokens: &[Token<'_>], message: &str) -> PromqlError {
    if parse_fails_by_grammar(text) {
        let at = first_impossible(text, tokens);
        let (offset, found) = match tokens.get(at) {
            Some(token) => (
                token.start,
                format!("`{}`", super::super::signal::bounded(token.text, 40)),
            ),
            None => (text.len(), "end of the query".to_owned()),
        };
        let dotted = at > 0
            && tokens.get(at).is_some_and(|token| {
                token.text.starts_with('.')
                    && tokens[at - 1].end() == token.start
                    && tokens[at - 1].text.starts_with(is_word_char)
            });
        let message = if dotted {
            format!(
                "unexpected {found}: a name with dots stands in braces and quotes, as in \
                 {{\"some.metric\"}}"
            )
        } else if message == GRAMMAR_ERROR {
            format!("unexpected {found}")
        } else {
            message.to_owned()
        };
        return PromqlError::Syntax {
            place: place_at(text, offset),
            message,
        };
    }
    let offset = named_token(tokens, message)
        .or_else(|| first_with_message(text, tokens, message))
        .unwrap_or(0);
    PromqlError::Syntax {
        place: place_at(text, offset),
        message: message.to_owned(),
    }
}

/// True when the grammar or the lexer refuses the text, false when it parses or
/// when only its types or names are wrong.
fn parse_fails_by_grammar(text: &str) -> bool {
    match parser::lexer(text) {
        Err(_) => true,
        Ok(_) => matches!(parser::parse(text), Err(message) if message == GRAMMAR_ERROR),
    }
}

/// The index of the first token that nothing can follow its predecessors with;
/// `tokens.len()` when the text merely ends too early.
///
/// Any start of a completable text is completable, so a binary search does.
fn first_impossible(text: &str, tokens: &[Token<'_>]) -> usize {
    let (mut possible, mut impossible) = (0, tokens.len() + 1);
    while impossible - possible > 1 {
        let middle = possible + (impossible - possible) / 2;
        if is_completable(text, &tokens[..middle]) {
            possible = middle;
        } else {
            impossible = middle;
        }
    }
    possible
}

/// True when some text behind these tokens makes the grammar content.
fn is_completable(text: &str, tokens: &[Token<'_>]) -> bool {
    let Some(last) = tokens.last() else {
        return true;
    };
    let prefix = &text[..last.end()];
    let mut open = Vec::new();
    for token in tokens {
        match token.text {
            "(" => open.push(")"),
            "[" => open.push("]"),
            "{" => open.push("}"),
            ")" | "]" | "}" => {
                open.pop();
            }
            _ => {}
        }
    }
    let innermost = open.pop().unwrap_or_default();
    let outer: String = open.iter().rev().copied().collect();
    let inside: &[&str] = match innermost {
        "}" => &["", " x=\"y\"", "=\"y\"", "\"y\""],
        "]" => &["", "5m", ":", "5m:"],
        _ => &[
            "", " x", " 1", " 5m", "()", " (x)", " (x) x", " (x) (x)", "(1) x",
        ],
    };
    inside.iter().any(|inside| {
        ["", " (x)", " x"].iter().any(|after| {
            !parse_fails_by_grammar(&format!("{prefix}{inside}{innermost}{after}{outer}"))
        })
    })
}

/// Where the name stands that the message quotes.
fn named_token(tokens: &[Token<'_>], message: &str) -> Option<usize> {
    let name = message.split('\'').nth(1)?;
    tokens
        .iter()
        .find(|token| token.is_word(name))
        .map(|token| token.start)
}

/// The first token with which the text, its brackets closed, draws this message.
fn first_with_message(text: &str, tokens: &[Token<'_>], message: &str) -> Option<usize> {
    if tokens.len() > MAX_SEARCHED_TOKENS {
        return None;
    }
    let mut closing = String::new();
    for token in tokens {
        match token.text {
            "(" => closing.insert(0, ')'),
            "[" => closing.insert(0, ']'),
            "{" => closing.insert(0, '}'),
            ")" | "]" | "}" if !closing.is_empty() => {
                closing.remove(0);
            }
            _ => {}
        }
        let candidate = format!("{}{closing}", &text[..token.end()]);
        if matches!(parser::parse(&candidate), Err(seen) if seen == message) {
            return Some(token.start);
        }
    }
    None
}

#[cfg(test)]
pub(super) fn assert_starts_completable(text: &str) {
    let tokens = tokens(text);
    for end in 0..=tokens.len() {
        let shown = tokens.get(end).map_or(text, |token| &text[..token.start]);
        assert!(is_completable(text, &tokens[..end]), "{shown:?}");
    }
}
