//! The command line of etcd, as pods and operators' options spell it.

/// The value that the server takes for `--flag`: of several, the last one.
///
/// Go takes one dash as well as two, `--flag=value` as well as `--flag` and
/// then the value. Operators' users also write both into one string.
pub(super) fn value<'a>(
    arguments: impl IntoIterator<Item = &'a str>,
    flag: &str,
) -> Option<&'a str> {
    let mut arguments = arguments.into_iter().map(str::trim);
    let mut found = None;
    while let Some(argument) = arguments.next() {
        let Some(name) = argument
            .strip_prefix("--")
            .or_else(|| argument.strip_prefix('-'))
        else {
            continue;
        };
        let Some(rest) = name.strip_prefix(flag) else {
            continue;
        };
        if rest.is_empty() {
            found = arguments.next().or(found);
        } else if let Some(value) = rest.strip_prefix('=') {
            found = Some(value.trim());
        } else if rest.starts_with(char::is_whitespace) {
            found = Some(rest.trim());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_flag_is_read() {
        let quota =
            |arguments: &[&'static str]| value(arguments.iter().copied(), "quota-backend-bytes");
        for (arguments, expected) in [
            (&["--quota-backend-bytes=8"][..], Some("8")),
            (&["-quota-backend-bytes=8"], Some("8")),
            (&["--quota-backend-bytes 8"], Some("8")),
            (&["--quota-backend-bytes\t 8 "], Some("8")),
            (&["--quota-backend-bytes", "8"], Some("8")),
            (&["--quota-backend-bytes", "-1"], Some("-1")),
            (&["--name=x", " --quota-backend-bytes=8 "], Some("8")),
            (
                &["--quota-backend-bytes=8", "--quota-backend-bytes=9"],
                Some("9"),
            ),
            (&["--quota-backend-bytes="], Some("")),
            (&["--quota-backend-bytes"], None),
            (
                &["--quota-backend-bytes=8", "--quota-backend-bytes"],
                Some("8"),
            ),
            (&["--quota-backend-bytes-soft=8"], None),
            (&["quota-backend-bytes=8"], None),
            (&["---quota-backend-bytes=8"], None),
            (&[], None),
        ] {
            assert_eq!(quota(arguments), expected, "{arguments:?}");
        }
    }
}
