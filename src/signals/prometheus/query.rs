//! An instant query as an HTTP request.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::StatusCode;

use crate::signals::http::{Endpoint, Request, SendError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Get,
    Post,
}

/// One query by one method.
pub(super) struct Query<'a> {
    method: Method,
    query: &'a str,
    timeout: Duration,
}

impl<'a> Query<'a> {
    /// Both methods, the preferred one first.
    pub(super) fn ways(query: &'a str, timeout: Duration, prefers_get: bool) -> [Query<'a>; 2] {
        let methods = if prefers_get {
            [Method::Get, Method::Post]
        } else {
            [Method::Post, Method::Get]
        };
        methods.map(|method| Query {
            method,
            query,
            timeout,
        })
    }

    pub(super) fn is_get(&self) -> bool {
        self.method == Method::Get
    }
}

impl Request for Query<'_> {
    async fn send(&self, to: &Endpoint) -> Result<reqwest::Response, SendError> {
        // As the client wants it: without a slash at its end.
        let url = to.url.as_str().trim_end_matches('/');
        let client = prometheus_http_query::Client::from(to.client.clone(), url)?;
        let millis = i64::try_from(self.timeout.as_millis()).unwrap_or(i64::MAX);
        let mut builder = client.query(self.query).timeout(millis);
        for (name, value) in &to.headers {
            builder = builder.header(name.clone(), value.clone());
        }
        for (name, value) in to.params.iter() {
            builder = builder.query(interned(name), value);
        }
        // The raw calls: the typed ones read a body of any size and drop warnings.
        Ok(match self.method {
            Method::Get => builder.get_raw().await?,
            Method::Post => builder.post_raw().await?,
        })
    }

    fn is_refused_by(&self, status: StatusCode) -> bool {
        match (self.method, status.as_u16()) {
            // These three redirects turn a POST into a GET without its query.
            (Method::Post, 301 | 302 | 303 | 403 | 405 | 501) => true,
            (Method::Get, 414) => true,
            _ => false,
        }
    }
}

/// The name for as long as the process lives, which the client wants. Names come
/// from the administrator's file only, and each is kept once.
fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(kept);
    kept
}
