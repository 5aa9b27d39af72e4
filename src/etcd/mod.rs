//! One member, one client: observing an etcd cluster and acting upon it.
//!
//! | file | what |
//! | --- | --- |
//! | `connection` | how a cluster is reached, validated |
//! | `credentials` | what is read at each connect: certificates, keys, user |
//! | `secret` | Secrets of Kubernetes, which the host reads |
//! | `member` | the calls to one endpoint |
//! | `observe` | everything seen of a cluster at one moment |
//! | `act` | the calls that change something, behind the identity check |
//! | `status`, `metrics` | from numbers on the wire to what they mean |
//! | `error`, `diagnose` | what became of a call, and what can be done |

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::core::view::MemberId;

mod act;
pub mod connection;
mod credentials;
mod diagnose;
pub mod error;
mod member;
mod metrics;
mod observe;
mod secret;
mod status;

pub use act::{Done, Guard};
pub use connection::{
    Auth, ConnectError, Connection, Endpoint, Origin, Secret, Source, Timeouts, Tls,
};
pub use error::{Call, CallError, CallErrorKind};
pub use secret::{SecretError, SecretKey, SecretReader};

use credentials::Credentials;
use member::MemberClient;

/// A client of a whole cluster: one [`MemberClient`] an endpoint, kept from one
/// observation to the next. Certificates and passwords are those that were in
/// the files when it was connected; connect anew for each run and each probe.
/// Cheap to clone, cheap to keep.
#[derive(Clone)]
pub struct ClusterClient {
    shared: Arc<Shared>,
    guard: Option<Guard>,
}

struct Shared {
    connection: Connection,
    credentials: Credentials,
    http: reqwest::Client,
    given: Vec<MemberClient>,
    learned: Mutex<Learned>,
}

/// What earlier observations found out; it outlives a member's silence.
#[derive(Default)]
struct Learned {
    /// The member that each endpoint last answered as.
    identities: HashMap<Endpoint, MemberId>,
    /// Clients of advertised URLs.
    followed: HashMap<Endpoint, MemberClient>,
}

impl ClusterClient {
    /// Validates the connection and reads its files. Opens no connection yet:
    /// a member that is down shows in the first observation.
    pub async fn connect(mut connection: Connection) -> Result<Self, ConnectError> {
        connection.validate()?;
        let mut seen = std::collections::HashSet::new();
        connection.endpoints.retain(|e| seen.insert(e.clone()));
        let credentials = credentials::load(&connection).await?;
        let mut http = reqwest::Client::builder()
            .tls_backend_preconfigured(credentials.http_tls.clone())
            .connect_timeout(connection.timeouts.connect)
            // The client certificate is for the members alone.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none());
        for (host, address) in &connection.addresses {
            // The port is the URL's.
            http = http.resolve(host, SocketAddr::new(*address, 0));
        }
        let http = http
            .build()
            .map_err(|e| ConnectError::Tls(error::chain(&e)))?;
        let given = connection
            .endpoints
            .iter()
            .map(|e| MemberClient::new(e.clone(), &connection, &credentials, &http))
            .collect();
        let learned = Mutex::default();
        Ok(ClusterClient {
            shared: Arc::new(Shared {
                connection,
                credentials,
                http,
                given,
                learned,
            }),
            guard: None,
        })
    }

    /// The same client, which asks before each call that changes something.
    #[must_use]
    pub fn guarded(&self, guard: Guard) -> Self {
        ClusterClient {
            shared: self.shared.clone(),
            guard: Some(guard),
        }
    }

    /// How the cluster is reached.
    pub fn connection(&self) -> &Connection {
        &self.shared.connection
    }

    fn learned<T>(&self, f: impl FnOnce(&mut Learned) -> T) -> T {
        // Nothing that is done under the lock can leave it half done.
        f(&mut self
            .shared
            .learned
            .lock()
            .unwrap_or_else(PoisonError::into_inner))
    }

    /// The clients whose endpoints last answered as the member, given ones
    /// before followed ones.
    fn routes_to(&self, member: MemberId) -> Vec<MemberClient> {
        self.learned(|learned| {
            let Learned {
                identities,
                followed,
            } = learned;
            let mut routes: Vec<MemberClient> = self.shared.given.clone();
            let mut others: Vec<_> = followed.values().cloned().collect();
            others.sort_by(|a, b| a.endpoint().cmp(b.endpoint()));
            routes.extend(others);
            routes.retain(|client| identities.get(client.endpoint()) == Some(&member));
            routes
        })
    }

    /// The client of an advertised URL.
    fn follow(&self, endpoint: Endpoint) -> MemberClient {
        let Shared {
            connection,
            credentials,
            http,
            ..
        } = &*self.shared;
        self.learned(|learned| {
            learned
                .followed
                .entry(endpoint)
                .or_insert_with_key(|e| MemberClient::new(e.clone(), connection, credentials, http))
                .clone()
        })
    }
}
