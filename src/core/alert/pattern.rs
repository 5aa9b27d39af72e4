//! Regular expressions as Go reads them, for the engine that is at hand here.
//!
//! Both know nearly the same language. Where a text means something else in
//! each, it is rewritten: `\d`, `\w`, `\s` and `\b` are ASCII in Go; `[`, `&&`,
//! `~~` and `--` inside of brackets are plain characters there.

use regex::{Regex, RegexBuilder};

/// Bytes that a compiled expression may take.
const MAX_COMPILED: usize = 1 << 20;

/// Compiles an expression that has to match the whole text.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(&format!("^(?:{})$", translate(pattern)))
        .size_limit(MAX_COMPILED)
        .nest_limit(100)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => {
                "it is too large when compiled: use fewer or smaller repetitions".to_owned()
            }
            // The last line says what is wrong; those before repeat the expression.
            other => {
                let text = other.to_string();
                let last = text.lines().last().unwrap_or_default().trim();
                last.strip_prefix("error: ").unwrap_or(last).to_owned()
            }
        })
}

fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.chars().peekable();
    let mut in_class = false;
    let mut class_start = false;
    while let Some(c) = chars.next() {
        let at_start = std::mem::take(&mut class_start);
        match c {
            '\\' => {
                let Some(next) = chars.next() else {
                    out.push('\\');
                    break;
                };
                match (next, in_class) {
                    ('d', _) => out.push_str("[0-9]"),
                    ('D', _) => out.push_str("[^0-9]"),
                    ('w', _) => out.push_str("[0-9A-Za-z_]"),
                    ('W', _) => out.push_str("[^0-9A-Za-z_]"),
                    ('s', _) => out.push_str(r"[\t\n\f\r ]"),
                    ('S', _) => out.push_str(r"[^\t\n\f\r ]"),
                    ('b', false) => out.push_str(r"(?-u:\b)"),
                    _ => {
                        out.push('\\');
                        out.push(next);
                    }
                }
            }
            '[' if !in_class => {
                in_class = true;
                class_start = true;
                out.push('[');
                if chars.peek() == Some(&'^') {
                    chars.next();
                    out.push('^');
                }
            }
            // Right after the opening bracket it is a character.
            ']' if in_class && at_start => out.push_str(r"\]"),
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '[' if chars.peek() == Some(&':') => {
                // A named class such as [:alpha:], up to its end.
                out.push('[');
                for c in chars.by_ref() {
                    out.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            '[' => out.push_str(r"\["),
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_class && chars.peek() == Some(&'-') => out.push_str(r"\-"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_mean_what_they_mean_in_go() {
        for (pattern, yes, no) in [
            ("warning|critical", "critical", "criticals"),
            (r"\d+", "12", "١٢"),
            (r"[\w.]+", "a.b_9", "ä"),
            ("[[:alpha:]]+", "abc", "ab1"),
            ("[[]a", "[a", "a"),
            ("[a&&b]+", "a&b", "c"),
            ("[]x]+", "]x", "["),
            ("[^]x]+", "ab", "]"),
            (".*", "", "a\nb"),
            ("(?i)etcd", "ETCD", "etc"),
            (r"a\.b", "a.b", "axb"),
            (r"\p{Lu}x", "Äx", "äx"),
        ] {
            let regex = compile(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            assert!(regex.is_match(yes), "{pattern} should match {yes:?}");
            assert!(!regex.is_match(no), "{pattern} should not match {no:?}");
        }
    }

    #[test]
    fn what_cannot_be_compiled_says_why_in_one_line() {
        for (pattern, words) in [
            ("(a", "unclosed group"),
            ("a{1000}{1000}{10}", "too large"),
            ("*", "repetition operator missing expression"),
            (r"(?=a)", "look-around"),
            ("\\", "unclosed group"),
        ] {
            let said = compile(pattern).unwrap_err();
            assert!(
                said.contains(words) && !said.contains('\n'),
                "{pattern}: {said}"
            );
        }
    }
}
