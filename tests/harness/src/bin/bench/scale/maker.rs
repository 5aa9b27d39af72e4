//! Makes objects, many at a time, and looks at the runs that came of them.

use defragd_harness::KubeApi;
use serde_json::Value;

use super::NAMESPACE;
use crate::Failure;

/// Requests to the API server at a time while objects are made.
const MAKERS: usize = 24;

/// Makes objects over one connection pool.
pub(super) struct Maker {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Maker {
    pub(super) fn new(api: &KubeApi) -> Result<Self, Failure> {
        let ca = reqwest::Certificate::from_pem(&std::fs::read(api.ca())?)?;
        Ok(Maker {
            http: reqwest::Client::builder().tls_certs_only([ca]).build()?,
            url: api.url(),
            token: api.admin_token().to_owned(),
        })
    }

    fn path(&self, plural: &str) -> String {
        format!(
            "{}/apis/defragd.dev/v1alpha1/namespaces/{NAMESPACE}/{plural}",
            self.url
        )
    }

    pub(super) async fn make(
        &self,
        plural: &str,
        objects: impl Iterator<Item = Value>,
    ) -> Result<(), Failure> {
        let path = self.path(plural);
        let mut waiting = tokio::task::JoinSet::new();
        for object in objects {
            if waiting.len() == MAKERS
                && let Some(made) = waiting.join_next().await
            {
                made??;
            }
            let request = self
                .http
                .post(&path)
                .bearer_auth(&self.token)
                .header("Content-Type", "application/json")
                .body(object.to_string());
            waiting.spawn(async move {
                request.send().await?.error_for_status()?;
                Ok::<_, reqwest::Error>(())
            });
        }
        while let Some(made) = waiting.join_next().await {
            made??;
        }
        Ok(())
    }

    pub(super) async fn runs(&self) -> Result<Vec<Value>, Failure> {
        let request = self
            .http
            .get(self.path("etcddefrags"))
            .bearer_auth(&self.token);
        let text = request.send().await?.error_for_status()?.text().await?;
        let mut list: Value = serde_json::from_str(&text)?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Err("the list of runs has no items".into()),
        }
    }
}
