//! One endpoint, one client.
//!
//! etcd-client balances over the endpoints that it is given, so a Status, a
//! Defragment or a MoveLeader would go to any of them. Each [`MemberClient`]
//! therefore has exactly one.
//!
//! Nothing below repeats a request by itself, as read in the sources of
//! etcd-client 0.21 and tonic 0.14: tonic's `Reconnect` makes a new connection
//! for the *next* request and hands the failed one's error to its caller, its
//! `Buffer` drops a request whose caller has gone, and it drives hyper's
//! `http2::SendRequest`, which has no retry (that of hyper-util's pooled client
//! is not used). etcd-client repeats a request in one case, with
//! `auto_token_refresh`: when the answer was `Unauthenticated` (or said
//! "invalid auth token"), which etcd gives from its token check, before it looks
//! at the call. That is sound for Defragment as well, and it is what lets a long
//! sweep outlive its token.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions, ConnectOptions, ResponseHeader,
};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::core::reason::Reason;
use crate::core::view::{Alarm, AlarmKind, ClusterId, MemberId};

use super::connection::{Connection, Endpoint, Timeouts};
use super::credentials::Credentials;
use super::diagnose;
use super::error::{Call, CallError, authentication_is_off};
use super::status::Raw;

/// While a call is open, the connection is asked for a sign of life this
/// often: a host that dies in the middle of a long Defragment is noticed.
/// etcd takes pings every 5 s at most (`--grpc-keepalive-min-time`), and none
/// on an idle connection.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// gRPC's own default: a busy member may be slow to answer, not dead.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Who answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) cluster: ClusterId,
    pub(super) member: MemberId,
}

/// An answer to Status.
pub(super) struct StatusAnswer {
    pub(super) from: Identity,
    pub(super) raw: Raw,
}

/// A member as the member list has it.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) id: MemberId,
    /// Empty until the member has been started once, as are its URLs.
    pub(super) name: String,
    pub(super) client_urls: Vec<String>,
    pub(super) learner: bool,
}

/// An answer to MemberList.
pub(super) struct ListAnswer {
    pub(super) from: Identity,
    pub(super) members: Vec<Listed>,
}

/// An answer to AlarmList.
pub(super) struct AlarmAnswer {
    /// Not said by etcd 3.4, whose answer has no header.
    pub(super) from: Option<Identity>,
    pub(super) alarms: BTreeSet<Alarm>,
}

/// A client of one endpoint. Cheap to clone; connects and authenticates at its
/// first call and keeps the connection.
#[derive(Clone)]
pub(super) struct MemberClient {
    inner: Arc<Inner>,
}

struct Inner {
    endpoint: Endpoint,
    /// Where that is.
    dialled: Endpoint,
    options: ConnectOptions,
    user: Option<(String, String)>,
    timeouts: Timeouts,
    http: reqwest::Client,
    client: Mutex<Option<Client>>,
}

impl MemberClient {
    pub(super) fn new(
        endpoint: Endpoint,
        connection: &Connection,
        credentials: &Credentials,
        http: &reqwest::Client,
    ) -> Self {
        let dialled = connection.dialled(&endpoint);
        let timeouts = connection.timeouts;
        let mut options = ConnectOptions::new()
            .with_connect_timeout(timeouts.connect)
            .with_tcp_keepalive(KEEP_ALIVE_INTERVAL)
            .with_keep_alive(KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT)
            .with_keep_alive_while_idle(false)
            .with_auto_token_refresh(true);
        if endpoint.is_https()
            && let Some(tls) = &credentials.grpc_tls
        {
            let named = connection
                .tls
                .as_ref()
                .is_some_and(|tls| tls.server_name.is_some());
            options = options.with_tls(match named {
                true => tls.clone(),
                // Whose certificate it must be does not depend on where it is.
                false => tls.clone().domain_name(endpoint.host()),
            });
        }
        MemberClient {
            inner: Arc::new(Inner {
                endpoint,
                dialled,
                options,
                user: credentials.user.clone(),
                timeouts,
                http: http.clone(),
                client: Mutex::new(None),
            }),
        }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }

    /// The kept client, or a new one that has authenticated.
    async fn client(&self, call: Call) -> Result<Client, CallError> {
        let limit = self.inner.timeouts.call;
        let at = || self.inner.endpoint.to_string();
        let connecting = async {
            let mut kept = self.inner.client.lock().await;
            if let Some(client) = &*kept {
                return Ok(client.clone());
            }
            let client = self.connect().await?;
            *kept = Some(client.clone());
            Ok(client)
        };
        match timeout(limit, connecting).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(e)) => Err(CallError::from_etcd(call, at(), &e).before_sending()),
            Err(_) => Err(CallError::timed_out(call, at(), limit, false)),
        }
    }

    async fn connect(&self) -> Result<Client, etcd_client::Error> {
        let Inner {
            endpoint,
            dialled,
            options,
            user,
            ..
        } = &*self.inner;
        let url = [dialled.to_string()];
        let Some((name, password)) = user else {
            return Client::connect(url, Some(options.clone())).await;
        };
        let with_user = options.clone().with_user(name, password);
        match Client::connect(&url, Some(with_user)).await {
            Err(e) if authentication_is_off(&e) => {
                tracing::debug!(%endpoint, "etcd runs without authentication, the user is not used");
                Client::connect(url, Some(options.clone())).await
            }
            other => other,
        }
    }

    async fn run<T, F, Fut>(&self, call: Call, limit: Duration, f: F) -> Result<T, CallError>
    where
        F: FnOnce(Client) -> Fut,
        Fut: Future<Output = Result<T, etcd_client::Error>>,
    {
        let client = self.client(call).await?;
        let at = self.inner.endpoint.to_string();
        match timeout(limit, f(client)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(e)) => {
                let error = CallError::from_etcd(call, at, &e);
                if error.reason == Reason::PermissionDenied {
                    // Authentication may have been turned on, or a user
                    // changed: the next call authenticates afresh.
                    *self.inner.client.lock().await = None;
                }
                Err(error)
            }
            Err(_) => Err(CallError::timed_out(call, at, limit, true)),
        }
    }

    fn identity(&self, call: Call, header: Option<&ResponseHeader>) -> Result<Identity, CallError> {
        match header {
            Some(h) if h.cluster_id() != 0 && h.member_id() != 0 => Ok(Identity {
                cluster: ClusterId(h.cluster_id()),
                member: MemberId(h.member_id()),
            }),
            Some(_) | None => Err(CallError::without_header(call, self.endpoint().to_string())),
        }
    }

    /// Waits while the member defragments: an answer says that it did not at
    /// that moment.
    pub(super) async fn status(&self) -> Result<StatusAnswer, CallError> {
        let limit = self.inner.timeouts.call;
        let ask = || self.run(Call::Status, limit, |mut c| async move { c.status().await });
        let mut answer = ask().await;
        // A connection that broke is made anew and the question asked again,
        // once: it changes nothing. When that breaks too, it is no accident.
        if answer.as_ref().is_err_and(|e| e.broken) {
            answer = ask().await;
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(mut error) => {
                if error.broken
                    && let Some((reason, why)) =
                        diagnose::explain(self.endpoint(), &self.inner.dialled, &self.inner.http)
                            .await
                {
                    error.reason = reason;
                    error.message = format!("{}: {why}", error.message);
                }
                return Err(error);
            }
        };
        Ok(StatusAnswer {
            from: self.identity(Call::Status, answer.header())?,
            raw: Raw {
                version: answer.version().to_owned(),
                db_size: answer.db_size(),
                db_size_in_use: answer.raft_used_db_size(),
                db_size_quota: answer.db_size_quota(),
                leader: answer.leader(),
                raft_term: answer.raft_term(),
                raft_index: answer.raft_index(),
                raft_applied_index: answer.raft_applied_index(),
                revision: answer
                    .header()
                    .map(ResponseHeader::revision)
                    .unwrap_or_default(),
                errors: answer.errors().to_vec(),
            },
        })
    }

    /// The list as this member knows it: serializable, so it does not wait for
    /// a member that defragments (etcd-client asks so; before 3.5 there is no
    /// other kind).
    pub(super) async fn member_list(&self) -> Result<ListAnswer, CallError> {
        let limit = self.inner.timeouts.call;
        let answer = self
            .run(Call::MemberList, limit, |mut c| async move {
                c.member_list().await
            })
            .await?;
        let members = answer
            .members()
            .iter()
            .map(|m| Listed {
                id: MemberId(m.id()),
                name: m.name().to_owned(),
                client_urls: m.client_urls().to_vec(),
                learner: m.is_learner(),
            })
            .collect();
        Ok(ListAnswer {
            from: self.identity(Call::MemberList, answer.header())?,
            members,
        })
    }

    /// The raised alarms. Goes through raft: without quorum it fails.
    pub(super) async fn alarm_list(&self) -> Result<AlarmAnswer, CallError> {
        let limit = self.inner.timeouts.call;
        let answer = self
            .run(Call::AlarmList, limit, |mut c| async move {
                c.alarm(AlarmAction::Get, AlarmType::None, None).await
            })
            .await?;
        let alarms = answer
            .alarms()
            .iter()
            .filter_map(|a| {
                let kind = match a.alarm() {
                    AlarmType::Nospace => AlarmKind::NoSpace,
                    AlarmType::Corrupt => AlarmKind::Corrupt,
                    AlarmType::None => return None,
                };
                Some(Alarm {
                    member: MemberId(a.member_id()),
                    kind,
                })
            })
            .collect();
        Ok(AlarmAnswer {
            from: self.identity(Call::AlarmList, answer.header()).ok(),
            alarms,
        })
    }

    /// The server neither knows `limit` nor stops when it is over.
    pub(super) async fn defragment(&self, limit: Duration) -> Result<(), CallError> {
        self.run(Call::Defragment, limit, |mut c| async move {
            c.defragment().await
        })
        .await?;
        Ok(())
    }

    /// Only the leader takes this call.
    pub(super) async fn move_leader(&self, to: MemberId) -> Result<(), CallError> {
        let limit = self.inner.timeouts.call;
        self.run(Call::MoveLeader, limit, |mut c| async move {
            c.move_leader(to.0).await
        })
        .await?;
        Ok(())
    }

    /// Answers when the compaction is physical on this member.
    pub(super) async fn compact(&self, revision: i64, limit: Duration) -> Result<(), CallError> {
        let options = CompactionOptions::new().with_physical();
        self.run(Call::Compact, limit, |mut c| async move {
            c.compact(revision, Some(options)).await
        })
        .await?;
        Ok(())
    }

    /// Names both the member and the kind: a request that names neither would
    /// clear CORRUPT too.
    pub(super) async fn disarm_no_space(&self, owner: MemberId) -> Result<(), CallError> {
        let limit = self.inner.timeouts.call;
        let mut options = AlarmOptions::new();
        options.with_member(owner.0);
        self.run(Call::DisarmNoSpace, limit, |mut c| async move {
            c.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(options))
                .await
        })
        .await?;
        Ok(())
    }
}
