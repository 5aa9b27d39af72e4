//! What is sent: a GET, or whatever a kind of source makes of its question.

use std::future::Future;
use std::sync::Arc;

use reqwest::header::HeaderMap;
use reqwest::{StatusCode, Url};

use super::error::SendError;

/// Where a request goes, and what it carries.
pub(in crate::signals) struct Endpoint {
    pub(in crate::signals) client: reqwest::Client,
    /// As configured: a path prefix may end in a slash or not.
    pub(in crate::signals) url: Url,
    /// All headers, those with secrets among them.
    pub(in crate::signals) headers: HeaderMap,
    /// Parameters that the administrator adds to each request.
    pub(in crate::signals) params: Arc<[(String, String)]>,
}

/// One way of putting a question into an HTTP request.
pub(in crate::signals) trait Request: Sync {
    /// Sends it once.
    fn send(
        &self,
        to: &Endpoint,
    ) -> impl Future<Output = Result<reqwest::Response, SendError>> + Send;

    /// True for a status that refuses this way of asking and not the question:
    /// then the next way is tried.
    fn is_refused_by(&self, _status: StatusCode) -> bool {
        false
    }
}

/// A GET of a path below the source's URL.
pub(super) struct Get<'a> {
    pub(super) path: &'a str,
    pub(super) query: &'a [(&'a str, &'a str)],
}

impl Request for Get<'_> {
    async fn send(&self, to: &Endpoint) -> Result<reqwest::Response, SendError> {
        let mut url = to.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(self.path.split('/'));
        }
        if !self.query.is_empty() || !to.params.is_empty() {
            url.query_pairs_mut()
                .extend_pairs(self.query)
                .extend_pairs(to.params.iter());
        }
        let request = to.client.get(url).headers(to.headers.clone());
        Ok(request.send().await?)
    }
}
