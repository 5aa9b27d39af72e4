//! Who may deliver.
//!
//! Secrets are read from their files for each delivery, so that a rotated one
//! counts at once, and compared in a time that does not tell how much of a guess
//! was right.

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::signals::failure::Failure;
use crate::signals::http::config::{Credentials, Username};
use crate::signals::http::read_secret;

/// True for a header `Authorization` that shows what is wanted.
///
/// # Errors
/// When a file with what is wanted cannot be read.
pub(super) async fn permits(wanted: &Credentials, header: Option<&[u8]>) -> Result<bool, Failure> {
    let (scheme, wanted) = match wanted {
        Credentials::Bearer { token_file } => ("bearer", read_secret(token_file).await?),
        Credentials::Basic {
            username,
            password_file,
        } => {
            let username = match username {
                Username::Given(name) => name.clone(),
                Username::File(file) => read_secret(file).await?,
            };
            let password = read_secret(password_file).await?;
            ("basic", base64(format!("{username}:{password}").as_bytes()))
        }
        // The configuration does not let this happen; nobody may deliver then.
        _ => return Ok(false),
    };
    let header = header.unwrap_or_default();
    let space = header.iter().position(|byte| *byte == b' ');
    let (given_scheme, given) = header.split_at(space.unwrap_or(header.len()));
    let same_scheme = given_scheme.eq_ignore_ascii_case(scheme.as_bytes());
    let same = Choice::from(u8::from(same_scheme)) & same(given.trim_ascii(), wanted.as_bytes());
    Ok(same.into())
}

/// Compares digests, which are of one length whatever was given.
fn same(given: &[u8], wanted: &[u8]) -> Choice {
    let (given, wanted) = (Sha256::digest(given), Sha256::digest(wanted));
    given.as_slice().ct_eq(wanted.as_slice())
}

/// As RFC 7617 wants the pair of user and password.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = (0..3).fold(0_u32, |group, at| {
            group << 8 | u32::from(chunk.get(at).copied().unwrap_or(0))
        });
        for at in 0..4 {
            if at <= chunk.len() {
                let index = (group >> (18 - 6 * at)) & 0x3f;
                text.push(char::from(ALPHABET[index as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_everybody_writes_it() {
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("Aladdin:open sesame", "QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
            ("\u{ff}\u{3e}?", "w78+Pw=="),
        ] {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[tokio::test]
    async fn t82_only_who_shows_the_secret_may_deliver() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        std::fs::write(&file, "open sesame\n").unwrap();
        let bearer = Credentials::Bearer {
            token_file: file.clone(),
        };
        let basic = Credentials::Basic {
            username: Username::Given("Aladdin".to_owned()),
            password_file: file.clone(),
        };
        for (wanted, header, permitted) in [
            (&bearer, Some("Bearer open sesame"), true),
            (&bearer, Some("bearer  open sesame"), true),
            (&bearer, Some("Bearer open"), false),
            (&bearer, Some("Bearer open sesame2"), false),
            (&bearer, Some("open sesame"), false),
            (&bearer, Some("Basic open sesame"), false),
            (&bearer, Some("Bearer "), false),
            (&bearer, Some(""), false),
            (&bearer, None, false),
            (&basic, Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), true),
            (&basic, Some("Basic QWxhZGRpbjpvcGVu"), false),
            (&basic, Some("Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), false),
        ] {
            let permits = permits(wanted, header.map(str::as_bytes)).await.unwrap();
            assert_eq!(permits, permitted, "{header:?}");
        }
        std::fs::write(&file, "another").unwrap();
        assert!(
            permits(&bearer, Some(b"Bearer another")).await.unwrap(),
            "rotated"
        );
        std::fs::write(&file, "").unwrap();
        assert!(
            permits(&bearer, Some(b"Bearer ")).await.is_err(),
            "no secret is no pass"
        );
    }
}
