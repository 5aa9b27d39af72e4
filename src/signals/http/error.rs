//! What goes wrong on the way: redirects that are not followed, connections.

use std::error::Error as StdError;

use reqwest::redirect;

use crate::core::reason::Reason;
use crate::core::signal::bounded;
use crate::signals::failure::Failure;

/// Redirects followed within one host.
const MAX_REDIRECTS: usize = 5;

/// Why a request could not be sent: an error of whatever client made it, with
/// [`reqwest::Error`] among its sources.
pub(in crate::signals) type SendError = Box<dyn StdError + Send + Sync>;

/// A redirect that is not followed.
#[derive(Debug, thiserror::Error)]
enum RedirectError {
    #[error(
        "the source redirects to {to}, where credentials must not follow: set `url` to where the \
         API is"
    )]
    OtherOrigin { to: String },
    #[error("the source redirects more than {MAX_REDIRECTS} times: check its `url`")]
    TooMany,
}

/// S22: within one origin only, and never a POST that would lose its query.
pub(super) fn redirect_policy() -> redirect::Policy {
    redirect::Policy::custom(|attempt| {
        let Some(first) = attempt.previous().first() else {
            return attempt.stop();
        };
        if first.origin() != attempt.url().origin() {
            let to = bounded(&attempt.url().origin().ascii_serialization(), 200);
            return attempt.error(RedirectError::OtherOrigin { to });
        }
        if attempt.previous().len() > MAX_REDIRECTS {
            return attempt.error(RedirectError::TooMany);
        }
        // Only a GET carries its query in the URL.
        let is_post = first.query().is_none();
        if is_post && matches!(attempt.status().as_u16(), 301..=303) {
            return attempt.stop();
        }
        attempt.follow()
    })
}

/// True for what happened before the source could answer: a refused or reset
/// connection. A question changes nothing, so it may be sent again.
pub(super) fn is_connection_error(error: &SendError) -> bool {
    find::<reqwest::Error>(error.as_ref())
        .is_some_and(|error| !error.is_redirect() && (error.is_connect() || error.is_request()))
}

/// The outcome as it is counted, and as it is told.
pub(super) fn describe(error: &(dyn StdError + 'static)) -> (&'static str, Failure) {
    let Some(http) = find::<reqwest::Error>(error) else {
        return (
            "broken",
            Failure::new(Reason::SourceUnavailable, chain(error)),
        );
    };
    if http.is_redirect() {
        let cause = find::<RedirectError>(http).map_or_else(|| causes(http), ToString::to_string);
        return (
            "redirect",
            Failure::new(Reason::SourceAnswerUnusable, cause),
        );
    }
    let message = format!("failed to reach the source: {}", causes(http));
    ("connect", Failure::new(Reason::SourceUnavailable, message))
}

fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// What lies behind an HTTP error, without its first line: that repeats the URL
/// with the whole query.
pub(super) fn causes(error: &reqwest::Error) -> String {
    match error.source() {
        Some(source) => chain(source),
        None => "the request failed".to_owned(),
    }
}

/// An error and its sources, bounded; a source that its error repeats is left out.
pub(super) fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let words = source.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        next = source.source();
    }
    bounded(&text, 400)
}
