//! Secrets that answers repeat, and how they are kept out of messages.

/// What stands for a secret that an answer repeats.
const HIDDEN: &str = "…";
/// A shorter secret is found in any text, and is no secret.
const SHORTEST_SECRET: usize = 6;

/// Words that no message may show. No `Debug`: they are secrets.
#[derive(Clone, Default, PartialEq)]
pub(in crate::signals) struct Hidden(Vec<Vec<u8>>);

impl Hidden {
    /// One more, in all the ways in which answers are known to write it.
    pub(super) fn add(&mut self, secret: &[u8]) {
        if secret.len() < SHORTEST_SECRET {
            return;
        }
        let form: String = url::form_urlencoded::byte_serialize(secret).collect();
        let mut ways = vec![secret.to_vec(), form.into_bytes()];
        if let Ok(text) = std::str::from_utf8(secret) {
            let json = serde_json::Value::from(text).to_string();
            let json = json[1..json.len() - 1].to_owned();
            // A Go server escapes these three as well.
            let by_go = json
                .replace('<', "\\u003c")
                .replace('>', "\\u003e")
                .replace('&', "\\u0026");
            ways.extend([json.into_bytes(), by_go.into_bytes()]);
        }
        self.0.extend(ways);
        // What contains another one comes first, or its rest would be left.
        self.0.sort_by_key(|way| std::cmp::Reverse(way.len()));
        self.0.dedup();
    }

    /// The text without them.
    pub(super) fn out_of(&self, text: &[u8]) -> Vec<u8> {
        (self.0.iter()).fold(text.to_vec(), |text, secret| without(&text, secret))
    }
}

fn without(text: &[u8], secret: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(secret.len()).position(|part| part == secret) {
        kept.extend_from_slice(&rest[..at]);
        kept.extend_from_slice(HIDDEN.as_bytes());
        rest = &rest[at + secret.len()..];
    }
    kept.extend_from_slice(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_however_it_is_written() {
        let mut hidden = Hidden::default();
        hidden.add(b"p\"ss <w\\rd>");
        hidden.add(b"short");
        for text in [
            r#"p"ss <w\rd>"#,
            r#"{"error": "p\"ss <w\\rd>"}"#,
            r#"{"error": "p\"ss \u003cw\\rd\u003e"}"#,
            "password=p%22ss+%3Cw%5Crd%3E",
        ] {
            let left = hidden.out_of(text.as_bytes());
            let left = String::from_utf8(left).unwrap();
            assert!(left.contains(HIDDEN), "{left}");
            assert!(!left.contains("ss") && !left.contains("rd>"), "{left}");
        }
        assert_eq!(hidden.out_of(b"a short one"), b"a short one");
    }

    #[test]
    fn of_two_secrets_the_longer_one_goes_first() {
        let mut hidden = Hidden::default();
        hidden.add(b"hunter2");
        hidden.add(b"hunter2-and-more");
        let left = hidden.out_of(b"hunter2-and-more, hunter2");
        assert_eq!(String::from_utf8(left).unwrap(), "…, …");
    }
}
