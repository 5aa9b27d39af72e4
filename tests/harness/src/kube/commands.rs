//! The commands that people use.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Output, Stdio};

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::{KubeApi, servers};
use crate::Error;
use crate::process::kept_environment;

impl KubeApi {
    /// Runs `kubectl` as the administrator and returns what it printed.
    ///
    /// # Errors
    /// [`Error::Command`] with all its words when it does not end with success.
    pub async fn kubectl<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String, Error> {
        self.kubectl_as(&self.kubeconfig_admin(), args).await
    }

    /// Runs `kubectl` with this kubeconfig and returns what it printed.
    ///
    /// # Errors
    /// [`Error::Command`] with all its words when it does not end with success.
    pub async fn kubectl_as<S: AsRef<OsStr>>(
        &self,
        kubeconfig: &Path,
        args: &[S],
    ) -> Result<String, Error> {
        let program = servers::kubernetes("kubectl").await?;
        self.run(&program, kubeconfig, args, "").await
    }

    /// Runs `kubectl` as the administrator, with this on its standard input.
    ///
    /// # Errors
    /// [`Error::Command`] with all its words when it does not end with success.
    pub async fn kubectl_with_input<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        input: &str,
    ) -> Result<String, Error> {
        let program = servers::kubernetes("kubectl").await?;
        let kubeconfig = self.kubeconfig_admin();
        self.run(&program, &kubeconfig, args, input).await
    }

    /// `kubectl apply` of these manifests, as the administrator.
    ///
    /// # Errors
    /// [`Error::Command`] with what the API server has against them.
    pub async fn apply(&self, manifests: &str) -> Result<String, Error> {
        self.kubectl_with_input(&["apply", "-f", "-"], manifests)
            .await
    }

    /// Runs `helm` as the administrator and returns what it printed.
    ///
    /// # Errors
    /// [`Error::Command`] with all its words when it does not end with success.
    pub async fn helm<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String, Error> {
        let program = servers::helm().await?;
        self.run(&program, &self.kubeconfig_admin(), args, "").await
    }

    /// Runs a command with caches of its own and nothing else of this process's environment.
    async fn run<S: AsRef<OsStr>>(
        &self,
        program: &Path,
        kubeconfig: &Path,
        args: &[S],
        input: &str,
    ) -> Result<String, Error> {
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .envs(kept_environment())
            .env("HOME", self.files.home())
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let finished = async {
            let mut child = command.spawn()?;
            let mut stdin = child.stdin.take();
            let feed = async {
                if let Some(stdin) = &mut stdin {
                    // A command that does not read to the end says why in its own words.
                    let _ = stdin.write_all(input.as_bytes()).await;
                }
                drop(stdin);
            };
            let (output, ()) = tokio::join!(child.wait_with_output(), feed);
            output
        };
        let output: Output = finished
            .await
            .map_err(|e| Error::io(format!("run {}", program.display()), e))?;
        let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            return Ok(words(&output.stdout));
        }
        let name = [program.file_name().unwrap_or_default()];
        let line = name.into_iter().chain(args.iter().map(AsRef::as_ref));
        let line: Vec<_> = line.map(OsStr::to_string_lossy).collect();
        Err(Error::Command {
            command: line.join(" "),
            status: output.status.to_string(),
            output: words(&output.stdout) + &words(&output.stderr),
        })
    }
}
