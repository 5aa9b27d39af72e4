//! Who asks: where the credentials stand.

use std::path::PathBuf;

use serde::Deserialize;

use super::oauth2::{self, OAuth2Config, OAuth2Spec};
use super::{FieldProblem, check_path};

/// A user whose password stands in a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BasicAuthSpec {
    pub username: Option<String>,
    pub username_file: Option<PathBuf>,
    pub password_file: PathBuf,
}

/// Where the credentials stand; they are read again for each request (S26).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    None,
    Basic {
        username: Username,
        password_file: PathBuf,
    },
    Bearer {
        token_file: PathBuf,
    },
    /// A token that a token server gives out.
    OAuth2(Box<OAuth2Config>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Username {
    Given(String),
    File(PathBuf),
}

/// The credentials, or the field and what is wrong with it.
pub(super) fn of_any_kind(
    basic: Option<BasicAuthSpec>,
    token_file: Option<PathBuf>,
    oauth2: Option<OAuth2Spec>,
) -> Result<Credentials, (String, String)> {
    let Some(written) = oauth2 else {
        return ready(basic, token_file).map_err(|(field, problem)| (field.to_owned(), problem));
    };
    let beside = match (basic, token_file) {
        (None, None) => {
            let ready = oauth2::ready(written)?;
            return Ok(Credentials::OAuth2(Box::new(ready)));
        }
        (Some(_), _) => "basicAuth",
        (None, Some(_)) => "bearerTokenFile",
    };
    let problem = format!("set beside {beside}, wanted one of them: remove the other");
    Err(("oauth2".to_owned(), problem))
}

/// Those that stand in files.
pub(in crate::signals) fn ready(
    basic: Option<BasicAuthSpec>,
    token_file: Option<PathBuf>,
) -> Result<Credentials, FieldProblem> {
    match (basic, token_file) {
        (None, None) => Ok(Credentials::None),
        (Some(_), Some(_)) => Err((
            "bearerTokenFile",
            "set beside basicAuth, wanted one of them: remove the other".to_owned(),
        )),
        (None, Some(token_file)) => {
            check_path("bearerTokenFile", &token_file)?;
            Ok(Credentials::Bearer { token_file })
        }
        (
            Some(BasicAuthSpec {
                username,
                username_file,
                password_file,
            }),
            None,
        ) => {
            check_path("basicAuth.passwordFile", &password_file)?;
            let username = match (username, username_file) {
                (Some(name), None) if name.contains(':') || name.is_empty() => {
                    return Err((
                        "basicAuth.username",
                        "empty or with a colon, which basic authentication does not allow"
                            .to_owned(),
                    ));
                }
                (Some(name), None) => Username::Given(name),
                (None, Some(file)) => {
                    check_path("basicAuth.usernameFile", &file)?;
                    Username::File(file)
                }
                (Some(_), Some(_)) => {
                    return Err((
                        "basicAuth.usernameFile",
                        "set beside username, wanted one of them: remove the other".to_owned(),
                    ));
                }
                (None, None) => {
                    return Err((
                        "basicAuth.username",
                        "missing: set it, or usernameFile".to_owned(),
                    ));
                }
            };
            Ok(Credentials::Basic {
                username,
                password_file,
            })
        }
    }
}
