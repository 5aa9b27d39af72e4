//! Everything seen of a cluster at one moment.
//!
//! Every given endpoint is asked at once for its Status and its (serializable)
//! member list. Members that no given endpoint leads to are looked for at the
//! URLs that they advertise. A member's metrics are read *after* its Status has
//! answered or has failed: Status waits for a defragmentation to end, so
//! metrics read beside it could be from before that end, and would say that a
//! finished defragmentation never took place.
//!
//! What one endpoint does not answer delays nobody else's answers, and an
//! observation never fails: what could not be read is a [`Trouble`] in its
//! place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::{join_all, select_ok};
use jiff::Timestamp;

use crate::core::reason::Reason;
use crate::core::view::{ClusterId, MemberId, MemberView, Observation, Trouble};

use super::ClusterClient;
use super::connection::Endpoint;
use super::error::{Call, CallError, CallErrorKind};
use super::member::{AlarmAnswer, ListAnswer, Listed, MemberClient, StatusAnswer};
use super::metrics::{self, Page};
use super::status;

/// More members than any cluster has: etcd advises seven. Who lists more is not
/// etcd, or not one to open so many connections for.
const MAX_MEMBERS: usize = 64;

/// What one endpoint said.
struct Seen {
    client: MemberClient,
    /// Who it is: said by one of its answers now, or by an earlier one.
    member: Option<MemberId>,
    status: Result<StatusAnswer, CallError>,
    page: Option<Page>,
}

/// A listed member, and the endpoint that leads to it.
struct Found {
    listed: Listed,
    seen: Option<Arc<Seen>>,
    /// Why there is no Status of it.
    trouble: Option<Trouble>,
}

/// Pages of the target's `metricsURLs`, by the member that each says it is of.
type Pages = BTreeMap<MemberId, Page>;

impl ClusterClient {
    /// Looks at the whole cluster. Takes as long as the slowest answer, at
    /// most a few times the time-out of a call.
    pub async fn observe(&self, now: Timestamp) -> Observation {
        let asked = self
            .shared
            .given
            .iter()
            .map(|c| async { tokio::join!(self.look(c.clone()), c.member_list()) });
        let mut given = Vec::new();
        let mut lists = Vec::new();
        for (mut seen, list) in join_all(asked).await {
            // The list answers, with its sender's id, while Status waits.
            if seen.status.is_err()
                && let Ok(list) = &list
            {
                seen.member = Some(list.from.member);
            }
            self.remember(&seen);
            given.push(Arc::new(seen));
            lists.push(list);
        }
        let mut cluster_ids: BTreeSet<ClusterId> = BTreeSet::new();
        cluster_ids.extend(lists.iter().flatten().map(|l| l.from.cluster));
        cluster_ids.extend(given.iter().filter_map(|s| Some(s.answer()?.from.cluster)));

        let mut found = Vec::new();
        let members = match choose(&given, lists) {
            Ok(list) => {
                found = join_all(list.members.into_iter().map(|m| self.find(m, &given))).await;
                cluster_ids.extend(found.iter().filter_map(|f| Some(f.answer()?.from.cluster)));
                let pages = self.pages().await;
                let quota = self.shared.connection.quota_bytes;
                Ok(found.iter().map(|f| f.view(&pages, quota)).collect())
            }
            Err(trouble) => Err(trouble),
        };
        let alarms = match alarm_voices(&given, &found) {
            Ok(voices) => list_alarms(voices).await,
            Err(trouble) => Err(trouble),
        };
        let alarms = alarms.map(|answer| {
            cluster_ids.extend(answer.from.map(|from| from.cluster));
            answer.alarms
        });
        Observation {
            at: now,
            members,
            alarms,
            cluster_ids,
            expected_voters: self.shared.connection.expected_voters,
        }
    }

    async fn look(&self, client: MemberClient) -> Seen {
        let status = client.status().await;
        let page = match self.shared.connection.metrics_urls.is_empty() {
            true => self.page(&client.endpoint().metrics_url()).await,
            false => None,
        };
        let member = match &status {
            Ok(answer) => Some(answer.from.member),
            Err(_) => page
                .as_ref()
                .and_then(|p| p.member)
                .or_else(|| self.learned(|l| l.identities.get(client.endpoint()).copied())),
        };
        Seen {
            client,
            member,
            status,
            page,
        }
    }

    async fn page(&self, url: &url::Url) -> Option<Page> {
        match metrics::fetch(&self.shared.http, url).await {
            Ok(page) => Some(page),
            Err(why) => {
                tracing::debug!(%url, why, "no metrics");
                None
            }
        }
    }

    async fn pages(&self) -> Pages {
        let urls = &self.shared.connection.metrics_urls;
        let pages = join_all(urls.iter().map(|url| self.page(url))).await;
        pages
            .into_iter()
            .flatten()
            .filter_map(|p| Some((p.member?, p)))
            .collect()
    }

    fn remember(&self, seen: &Seen) {
        if let Some(member) = seen.member {
            self.learned(|learned| {
                learned
                    .identities
                    .insert(seen.client.endpoint().clone(), member);
            });
        }
    }

    /// Finds a listed member: among the given endpoints, else where it says.
    async fn find(&self, listed: Listed, given: &[Arc<Seen>]) -> Found {
        if let Some(seen) = given.iter().find(|s| s.answers_as(listed.id)) {
            return Found {
                listed,
                seen: Some(Arc::clone(seen)),
                trouble: None,
            };
        }
        let advertised: Vec<_> = listed
            .client_urls
            .iter()
            .map(|u| Endpoint::parse(u))
            .collect();
        let is_advertised =
            |e: &Endpoint| advertised.iter().any(|a| a.as_ref().is_ok_and(|a| a == e));
        let mut silent = given.iter().find(|s| {
            s.status.is_err()
                && s.member
                    .map_or_else(|| is_advertised(s.client.endpoint()), |m| m == listed.id)
        });
        let mut trouble = None;
        if let Some(Err(error)) = silent.map(|s| &s.status) {
            trouble = Some(error.trouble());
            // An endpoint that is known to be this member's and may be at work
            // is not gone around.
            if error.kind != CallErrorKind::NotSent {
                return Found {
                    listed,
                    seen: silent.cloned(),
                    trouble,
                };
            }
        }
        let mut followed = None;
        if self.shared.connection.follow_member_urls {
            for url in advertised {
                if url
                    .as_ref()
                    .is_ok_and(|u| given.iter().any(|s| s.client.endpoint() == u))
                {
                    continue;
                }
                match self.try_advertised(listed.id, url).await {
                    Ok(seen) => {
                        return Found {
                            listed,
                            seen: Some(Arc::new(seen)),
                            trouble: None,
                        };
                    }
                    Err((why, seen)) => {
                        trouble.get_or_insert(why);
                        followed = followed.or(seen.map(Arc::new));
                    }
                }
            }
        }
        if followed.is_some() {
            silent = followed.as_ref();
        }
        let trouble = trouble.unwrap_or_else(|| nowhere(&listed, given));
        Found {
            listed,
            seen: silent.cloned(),
            trouble: Some(trouble),
        }
    }

    /// Asks at an advertised URL. A failure keeps what was seen when that is
    /// the member all the same.
    async fn try_advertised(
        &self,
        id: MemberId,
        url: Result<Endpoint, super::ConnectError>,
    ) -> Result<Seen, (Trouble, Option<Seen>)> {
        let usable = url.and_then(|url| self.shared.connection.check_scheme(&url).map(|()| url));
        let url = usable.map_err(|why| {
            let message = format!("its advertised client URL cannot be used: {why}");
            (
                Trouble {
                    reason: Reason::EndpointUnusable,
                    message,
                },
                None,
            )
        })?;
        let seen = self.look(self.follow(url)).await;
        self.remember(&seen);
        match &seen.status {
            Ok(answer) if answer.from.member == id => Ok(seen),
            Ok(answer) => {
                let (at, other) = (seen.client.endpoint(), answer.from.member);
                let message = format!("{at} is advertised by member {id} and answers as {other}");
                Err((
                    Trouble {
                        reason: Reason::MemberIdMismatch,
                        message,
                    },
                    None,
                ))
            }
            Err(error) => {
                let mut trouble = error.trouble();
                trouble.message.push_str(
                    " (its advertised client URL; if that cannot work from here, give an endpoint that does)",
                );
                let is_it = seen.member == Some(id);
                Err((trouble, is_it.then_some(seen)))
            }
        }
    }
}

impl Seen {
    fn answer(&self) -> Option<&StatusAnswer> {
        self.status.as_ref().ok()
    }

    fn answers_as(&self, member: MemberId) -> bool {
        self.answer().is_some_and(|a| a.from.member == member)
    }
}

impl Found {
    fn answer(&self) -> Option<&StatusAnswer> {
        self.seen.as_ref()?.answer()
    }

    fn view(&self, pages: &Pages, target_quota: Option<u64>) -> MemberView {
        let Listed {
            id,
            name,
            client_urls: _,
            learner,
        } = &self.listed;
        let page = own_page(*id, self.seen.as_deref(), pages);
        let status = match (&self.trouble, self.answer()) {
            (None, Some(answer)) => Ok(status::interpret(
                answer.raw.clone(),
                page.and_then(|p| p.quota),
                target_quota,
            )),
            (Some(trouble), _) => Err(trouble.clone()),
            (None, None) => Err(nowhere(&self.listed, &[])),
        };
        MemberView {
            id: *id,
            name: name.clone(),
            learner: *learner,
            status,
            metrics: page.and_then(|p| p.defrag),
        }
    }
}

/// The page that is this member's: by `etcd_server_id` where the page has it.
fn own_page<'a>(id: MemberId, seen: Option<&'a Seen>, pages: &'a Pages) -> Option<&'a Page> {
    pages.get(&id).or_else(|| {
        let seen = seen?;
        let page = seen.page.as_ref()?;
        (page.member.or(seen.member) == Some(id)).then_some(page)
    })
}

/// The list to believe: the leader's own, else that of the member that has
/// seen most of raft; one that lags may still list who has left.
fn choose(
    given: &[Arc<Seen>],
    lists: Vec<Result<ListAnswer, CallError>>,
) -> Result<ListAnswer, Trouble> {
    let mut best = None;
    let mut errors = Vec::new();
    for (seen, list) in given.iter().zip(lists) {
        match list {
            Ok(list) => {
                let rank = seen.status.as_ref().ok().map(|answer| {
                    let leads = answer.raw.leader == answer.from.member.0;
                    (answer.raw.raft_term, leads, answer.raw.raft_index)
                });
                if best.as_ref().is_none_or(|(best_rank, _)| rank > *best_rank) {
                    best = Some((rank, list));
                }
            }
            Err(e) => errors.push(match &seen.status {
                // Status speaks of the same connection and knows more.
                Err(status) if status.reason != Reason::MemberUnreachable => status.clone(),
                _ => e,
            }),
        }
    }
    match best {
        Some((_, list)) if list.members.len() > MAX_MEMBERS => Err(Trouble {
            reason: Reason::MemberListUnavailable,
            message: format!(
                "the member list names {} members, at most {MAX_MEMBERS} are believed",
                list.members.len()
            ),
        }),
        Some((_, list)) => Ok(list),
        None => Err(together(&errors, Reason::MemberListUnavailable)),
    }
}

/// One trouble out of several: what a person has to mend comes first, silence
/// gets the caller's reason.
fn together(errors: &[CallError], silence: Reason) -> Trouble {
    let reason = [Reason::PermissionDenied, Reason::EndpointUnusable]
        .into_iter()
        .find(|r| errors.iter().any(|e| e.reason == *r))
        .unwrap_or(silence);
    let message = errors
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ");
    Trouble { reason, message }
}

/// A member that no endpoint leads to.
fn nowhere(listed: &Listed, given: &[Arc<Seen>]) -> Trouble {
    let label = match listed.name.as_str() {
        "" => listed.id.to_string(),
        name => format!("{name} ({})", listed.id),
    };
    if listed.client_urls.is_empty() {
        return Trouble {
            reason: Reason::MemberUnreachable,
            message: format!(
                "{label} has no client URL: it was added and has not been started yet"
            ),
        };
    }
    let silent: Vec<CallError> = given
        .iter()
        .filter(|s| s.member.is_none())
        .filter_map(|s| s.status.as_ref().err().cloned())
        .collect();
    if silent.is_empty() {
        return Trouble {
            reason: Reason::MemberUnreachable,
            message: format!(
                "no given endpoint answers as {label}, add one of {:?}",
                listed.client_urls
            ),
        };
    }
    let mut trouble = together(&silent, Reason::MemberUnreachable);
    trouble.message = format!(
        "no given endpoint answers as {label}, and some do not answer: {}",
        trouble.message
    );
    trouble
}

/// Who can be asked for the alarms, the leader first.
fn alarm_voices(given: &[Arc<Seen>], found: &[Found]) -> Result<Vec<MemberClient>, Trouble> {
    let unavailable = |message: &str| {
        let message = format!("{}: {message}", Call::AlarmList);
        Err(Trouble {
            reason: Reason::AlarmsUnavailable,
            message,
        })
    };
    // Without a member list, whoever answers is asked.
    let voters: Vec<(&Arc<Seen>, &StatusAnswer)> = if found.is_empty() {
        given
            .iter()
            .filter_map(|s| Some((s, s.answer()?)))
            .collect()
    } else {
        let voters = found.iter().filter(|f| !f.listed.learner);
        voters
            .filter_map(|f| Some((f.seen.as_ref()?, f.answer()?)))
            .collect()
    };
    if voters.is_empty() {
        return unavailable("no voter answers");
    }
    let Some(leader) = voters
        .iter()
        .map(|(_, a)| a.raw.leader)
        .find(|leader| *leader != 0)
    else {
        return unavailable("no member knows a leader, and alarms are listed through raft");
    };
    let (first, others): (Vec<_>, Vec<_>) = voters
        .into_iter()
        .partition(|(_, a)| a.from.member.0 == leader);
    Ok(first
        .into_iter()
        .chain(others)
        .map(|(seen, _)| seen.client.clone())
        .collect())
}

/// Asks the first; when it fails, the others at once. Each question is an
/// entry in the raft log, so they are not all asked from the start.
async fn list_alarms(voices: Vec<MemberClient>) -> Result<AlarmAnswer, Trouble> {
    let Some((first, others)) = voices.split_first() else {
        return Err(together(&[], Reason::AlarmsUnavailable));
    };
    let error = match first.alarm_list().await {
        Ok(answer) => return Ok(answer),
        Err(error) => error,
    };
    if others.is_empty() || error.reason == Reason::PermissionDenied {
        return Err(together(&[error], Reason::AlarmsUnavailable));
    }
    match select_ok(others.iter().map(|c| Box::pin(c.alarm_list()))).await {
        Ok((answer, _)) => Ok(answer),
        Err(last) => Err(together(&[error, last], Reason::AlarmsUnavailable)),
    }
}
