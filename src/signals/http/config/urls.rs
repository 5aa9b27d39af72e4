//! Where a source is.

use reqwest::Url;

use crate::core::signal::bounded;

/// More replicas of one thing are hardly meant.
const MOST_URLS: usize = 8;

/// The URLs of `url` or `urls`, or the field and what is wrong with it.
pub(super) fn ready(
    url: Option<String>,
    urls: Option<Vec<String>>,
    api: &str,
) -> Result<Vec<Url>, (String, String)> {
    let fail = |field: &str, problem: &str| Err((field.to_owned(), problem.to_owned()));
    let urls = match (url, urls) {
        (None, None) => return fail("url", "missing: set it, or urls"),
        (Some(_), Some(_)) => {
            return fail(
                "urls",
                "set beside url, wanted one of them: remove the other",
            );
        }
        (Some(url), None) => {
            return match parse(&url, api) {
                Ok(url) => Ok(vec![url]),
                Err(problem) => fail("url", &problem),
            };
        }
        (None, Some(urls)) => urls,
    };
    if urls.is_empty() || urls.len() > MOST_URLS {
        let problem = format!("{} URLs, wanted 1 to {MOST_URLS}", urls.len());
        return fail("urls", &problem);
    }
    let mut ready: Vec<Url> = Vec::with_capacity(urls.len());
    for (index, text) in urls.iter().enumerate() {
        let field = format!("urls[{index}]");
        let url = match parse(text, api) {
            Ok(url) => url,
            Err(problem) => return fail(&field, &problem),
        };
        if ready.contains(&url) {
            return fail(&field, "listed twice, wanted each replica once");
        }
        if ready.iter().any(|other| other.scheme() != url.scheme()) {
            return fail(&field, "http beside https, wanted one of them for all");
        }
        ready.push(url);
    }
    Ok(ready)
}

fn parse(text: &str, api: &str) -> Result<Url, String> {
    const EXAMPLE: &str = "wanted a URL such as http://prometheus:9090";
    // Not echoed as it stands: it may carry a password.
    let url = Url::parse(text.trim()).map_err(|error| format!("not a URL ({error}), {EXAMPLE}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "the scheme {:?} is not http or https, {EXAMPLE}",
            bounded(url.scheme(), 20)
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the URL carries a user or a password: use basicAuth and its files".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(
            "the URL carries a query or a fragment, wanted none: parameters go into \
                    params"
                .to_owned(),
        );
    }
    if url.path().trim_end_matches('/').ends_with(api) {
        return Err(format!(
            "the URL ends in {api}, which is added to it: leave it out"
        ));
    }
    Ok(url)
}
