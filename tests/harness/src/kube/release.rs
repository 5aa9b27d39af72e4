//! The chart, installed by helm, and its pods as processes: there are no nodes here.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{KubeApi, files};
use crate::{Controller, Error};

/// A release of the chart on an API server.
#[derive(Debug, Clone)]
pub struct Release {
    name: String,
    namespace: String,
}

impl Release {
    /// `helm install` of the chart of this checkout with these values. The namespace is made when
    /// it is missing.
    ///
    /// # Errors
    /// [`Error::Command`] with helm's words when it refuses.
    pub async fn install(
        api: &KubeApi,
        name: &str,
        namespace: &str,
        values: &Value,
    ) -> Result<Self, Error> {
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/defragd");
        // JSON is YAML, and needs no thought about quotes.
        let file = api
            .scratch()
            .join(format!("values-{namespace}-{name}.yaml"));
        files::write(&file, &values.to_string())?;
        let (chart, file) = (chart.into_os_string(), file.into_os_string());
        let words = ["install", name].map(OsString::from).into_iter();
        let to = ["--create-namespace", "--namespace", namespace, "--values"];
        let to = to.map(OsString::from).into_iter();
        let args: Vec<OsString> = words.chain([chart]).chain(to).chain([file]).collect();
        api.helm(&args).await?;
        Ok(Self {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        })
    }

    /// Where the release's own objects are.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The names of the release's pods, once the controller manager has made as many as the
    /// Deployment wants.
    ///
    /// # Errors
    /// When there is no Deployment, or that takes more than a minute.
    pub async fn pods(&self, api: &KubeApi) -> Result<Vec<String>, Error> {
        let Self { name, namespace } = self;
        let deployment = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
        let deployment = api.get(&deployment).await?.unwrap_or_default();
        let wanted = deployment["spec"]["replicas"].as_u64();
        let pods = format!(
            "/api/v1/namespaces/{namespace}/pods?labelSelector=app.kubernetes.io/instance={name}"
        );
        let pods = api
            .wait_for(&pods, |pods| {
                let pods = pods["items"].as_array();
                pods.map(|pods| pods.len() as u64) == wanted
            })
            .await?;
        let pods = pods["items"].as_array().into_iter().flatten();
        let names = pods.filter_map(|pod| Some(pod["metadata"]["name"].as_str()?.to_owned()));
        Ok(names.collect())
    }

    /// `helm uninstall`.
    ///
    /// # Errors
    /// [`Error::Command`] with helm's words when it refuses.
    pub async fn uninstall(&self, api: &KubeApi) -> Result<(), Error> {
        let args = ["uninstall", &self.name, "--namespace", &self.namespace];
        api.helm(&args).await.map(drop)
    }

    /// The user that the release's pods are to the API server.
    ///
    /// # Errors
    /// When there is no Deployment as the chart makes it.
    pub async fn user(&self, api: &KubeApi) -> Result<String, Error> {
        let template = PodTemplate::of(self, api).await?;
        let (namespace, account) = (&self.namespace, template.account()?);
        Ok(format!("system:serviceaccount:{namespace}:{account}"))
    }

    /// A pod of the release's Deployment as a process of this binary, as the API server tells of
    /// it: its arguments and environment, its ConfigMaps as files below a folder that stands for
    /// the mounts, a token of its service account. Only the address to listen at is another, and
    /// paths below a mount.
    ///
    /// # Errors
    /// When there is no Deployment as the chart makes it.
    pub async fn pod(
        &self,
        api: &KubeApi,
        binary: impl Into<PathBuf>,
        pod: &str,
    ) -> Result<Controller, Error> {
        let template = PodTemplate::of(self, api).await?;
        let token = api
            .service_account_token(&self.namespace, template.account()?)
            .await?;
        let kubeconfig = api.kubeconfig_for_token(&token, &self.namespace)?;
        let mut controller = Controller::new(binary, &kubeconfig);
        for (name, value) in template.environment(pod)? {
            controller = controller.env(name, value);
        }
        let mounts = template.mount(api, pod).await?;
        Ok(controller.args(template.args(&mounts)?))
    }
}

/// A mount of a pod: its path, and the folder that stands for it.
type Mounts = Vec<(String, PathBuf)>;

/// What a Deployment says of its pods.
struct PodTemplate<'a> {
    release: &'a Release,
    spec: Value,
}

impl<'a> PodTemplate<'a> {
    async fn of(release: &'a Release, api: &KubeApi) -> Result<Self, Error> {
        let Release { name, namespace } = release;
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
        let deployment = api.get(&path).await?.unwrap_or_default();
        let mut template = Self {
            release,
            spec: Value::Null,
        };
        match deployment.pointer("/spec/template/spec") {
            Some(spec) => template.spec = spec.clone(),
            None => return Err(template.lacks("a pod template")),
        }
        Ok(template)
    }

    fn lacks(&self, what: &str) -> Error {
        Error::Deployment {
            name: self.release.name.clone(),
            namespace: self.release.namespace.clone(),
            lacks: what.to_owned(),
        }
    }

    fn text<'v>(&self, value: &'v Value, what: &str) -> Result<&'v str, Error> {
        value.as_str().ok_or_else(|| self.lacks(what))
    }

    fn account(&self) -> Result<&str, Error> {
        self.text(&self.spec["serviceAccountName"], "a service account")
    }

    fn container(&self, field: &str) -> &[Value] {
        let list = self.spec["containers"][0][field].as_array();
        list.map_or(&[], Vec::as_slice)
    }

    fn environment(&self, pod: &str) -> Result<Vec<(String, String)>, Error> {
        let resolve = |variable: &Value| {
            let name = self.text(&variable["name"], "a variable's name")?;
            let field = variable["valueFrom"]["fieldRef"]["fieldPath"].as_str();
            let value = match field {
                Some("metadata.name") => pod,
                Some("metadata.namespace") => &self.release.namespace,
                Some(_) => return Err(self.lacks("only fields that are known here")),
                None => self.text(&variable["value"], "a variable's value")?,
            };
            Ok((name.to_owned(), value.to_owned()))
        };
        self.container("env").iter().map(resolve).collect()
    }

    /// Writes what the kubelet would mount.
    async fn mount(&self, api: &KubeApi, pod: &str) -> Result<Mounts, Error> {
        let mut mounts = Mounts::new();
        for mount in self.container("volumeMounts") {
            let volumes = self.spec["volumes"].as_array();
            let volume = volumes
                .into_iter()
                .flatten()
                .find(|volume| volume["name"] == mount["name"]);
            let map = volume.map(|volume| &volume["configMap"]["name"]);
            let map = self.text(map.unwrap_or(&Value::Null), "ConfigMaps alone as volumes")?;
            let namespace = &self.release.namespace;
            let path = format!("/api/v1/namespaces/{namespace}/configmaps/{map}");
            let map = api.get(&path).await?.unwrap_or_default();
            let data = map["data"].as_object();
            let at = self.text(&mount["mountPath"], "a mount's path")?;
            let folder = api.scratch().join(format!("mounts-{pod}-{}", mounts.len()));
            fs::create_dir_all(&folder)
                .map_err(|e| Error::io(format!("create {}", folder.display()), e))?;
            for (file, text) in data.into_iter().flatten() {
                let text = self.text(text, "text in its ConfigMap")?;
                files::write(&folder.join(file), text)?;
            }
            mounts.push((at.to_owned(), folder));
        }
        Ok(mounts)
    }

    /// The container's arguments without the subcommand and where to listen, which
    /// [`Controller`] gives.
    fn args(&self, mounts: &Mounts) -> Result<Vec<OsString>, Error> {
        let args = self.container("args");
        if args.first().is_none_or(|first| *first != "controller") {
            return Err(self.lacks("the subcommand controller"));
        }
        let mut own = Vec::new();
        for arg in &args[1..] {
            let arg = self.text(arg, "texts alone as arguments")?;
            if arg.starts_with("--listen=") {
                continue;
            }
            let mounted = mounts.iter().find_map(|(at, folder)| {
                let (flag, path) = arg.split_once('=')?;
                let inside = path.strip_prefix(at.as_str())?.strip_prefix('/')?;
                Some(format!("{flag}={}", folder.join(inside).display()))
            });
            own.push(mounted.unwrap_or_else(|| arg.to_owned()).into());
        }
        Ok(own)
    }
}
