//! Objects, without a command a piece.

use reqwest::Method;
use serde_json::{Value, json};

use super::KubeApi;
use crate::{Error, Status};

/// defragd's kinds, in the words of paths.
const KINDS: [&str; 3] = ["etcdtargets", "etcddefragpolicies", "etcddefrags"];

impl KubeApi {
    /// The path of defragd's objects of this kind in this namespace.
    #[must_use]
    pub fn defragd_path(namespace: &str, kind: &str) -> String {
        format!("/apis/defragd.dev/v1alpha1/namespaces/{namespace}/{kind}")
    }

    /// Applies these definitions of defragd's kinds and waits until the API server serves them.
    ///
    /// # Errors
    /// With what the API server has against them, or when it does not serve them within a minute.
    pub async fn install_crds(&self, definitions: &str) -> Result<(), Error> {
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        self.kubectl_with_input(&apply, definitions).await?;
        let established = ["wait", "crd", "--all", "--for=condition=Established"];
        let args = [&established[..], &["--timeout=60s"]].concat();
        self.kubectl(&args).await?;
        for kind in KINDS {
            let path = format!("/apis/defragd.dev/v1alpha1/{kind}");
            self.wait_for(&path, |_| true).await?;
        }
        Ok(())
    }

    /// defragd's objects in this namespace, as `defragd status` gives those of standalone.
    ///
    /// # Errors
    /// When the API server does not answer, or does not know the kinds.
    pub async fn defragd(&self, namespace: &str) -> Result<Status, Error> {
        let mut items = Vec::new();
        for kind in KINDS {
            let page = self.page(&Self::defragd_path(namespace, kind)).await?;
            let mut list: Value = serde_json::from_str(&page).unwrap_or_default();
            if let Some(list) = list["items"].as_array_mut() {
                items.append(list);
            }
        }
        Ok(Status(json!({ "items": items })))
    }

    /// A token of a service account, good for an hour.
    ///
    /// # Errors
    /// When there is no such account.
    pub async fn service_account_token(
        &self,
        namespace: &str,
        account: &str,
    ) -> Result<String, Error> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "expirationSeconds": 3600 },
        });
        let answer = self.create(&path, &request).await?;
        Ok(answer["status"]["token"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    /// Creates an object in the list at this path, as the administrator.
    ///
    /// # Errors
    /// With what the API server has against it.
    pub async fn create(&self, list: &str, object: &Value) -> Result<Value, Error> {
        self.send(Method::POST, list, "application/json", object)
            .await
    }

    /// Merges this into the object at this path, as the administrator, and returns the object.
    ///
    /// # Errors
    /// With what the API server has against it.
    pub async fn patch(&self, path: &str, patch: &Value) -> Result<Value, Error> {
        self.send(Method::PATCH, path, "application/merge-patch+json", patch)
            .await
    }
}
