//! Pages that servers show, and the numbers on them.

use crate::Error;

/// A page that is answered with success.
pub(crate) async fn get(http: &reqwest::Client, url: &str) -> Result<String, Error> {
    let answer = async {
        let answer = http.get(url).send().await?.error_for_status()?;
        answer.text().await
    };
    answer.await.map_err(|e| Error::http(url, &e))
}

/// One number of a page of metrics, if it has it: `name` with its labels, as the page writes them.
#[must_use]
pub fn number(page: &str, name: &str) -> Option<f64> {
    let mut lines = page.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    // An exemplar may follow.
    value.split(' ').next()?.parse().ok()
}
