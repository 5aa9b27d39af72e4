use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// What can go wrong while servers are started, watched or given something to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `tests/servers/provision` did not deliver a server.
    #[error("failed to provide {server} with tests/servers/provision:\n{output}")]
    Provision { server: String, output: String },

    /// A file, folder, port or process of the operating system was not to be had.
    #[error("failed to {doing}")]
    Io {
        doing: String,
        #[source]
        source: io::Error,
    },

    /// A server ended although nobody asked it to.
    #[error("{name} ended with {status}, the end of its log {} is:\n{tail}", log.display())]
    Ended {
        name: String,
        status: String,
        log: PathBuf,
        tail: String,
    },

    /// A condition did not come true in time.
    #[error("waited {waited:?} for {what}, last seen: {last}")]
    Timeout {
        what: String,
        waited: Duration,
        last: String,
    },

    /// A call to etcd failed.
    #[error("failed to {doing} on etcd member {member}: {source:?}")]
    Etcd {
        doing: &'static str,
        member: String,
        #[source]
        source: etcd_client::Error,
    },

    /// The cluster that answers is not the one that was started.
    #[error("{member} belongs to cluster {seen:x}, wanted {wanted:x}: nothing was sent to it")]
    ForeignCluster {
        member: String,
        seen: u64,
        wanted: u64,
    },

    /// The member is not running, or is running when it must not be.
    #[error("etcd member {member} is {is}, wanted {wanted}")]
    State {
        member: String,
        is: &'static str,
        wanted: &'static str,
    },

    /// An HTTP request failed or was not answered with success.
    #[error("failed to get {url}: {message}")]
    Http { url: String, message: String },

    /// A command did not end with success.
    #[error("{command} ended with {status}:\n{output}")]
    Command {
        command: String,
        status: String,
        output: String,
    },

    /// A Deployment is not as the chart makes it.
    #[error("the Deployment {name} in {namespace} lacks {lacks}")]
    Deployment {
        name: String,
        namespace: String,
        lacks: String,
    },

    /// A certificate could not be made or read.
    #[error("failed to {doing}: {message}")]
    Tls {
        doing: &'static str,
        message: String,
    },
}

impl Error {
    pub(crate) fn io(doing: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            doing: doing.into(),
            source,
        }
    }

    pub(crate) fn http(url: &str, source: &reqwest::Error) -> Self {
        Self::Http {
            url: url.to_owned(),
            message: format!("{source:?}"),
        }
    }
}
