//! Everything seen of a cluster at one moment.
//!
//! Every given endpoint is asked at once for its Status, its (serializable)
//! member list and its metrics. Members that no given endpoint leads to are
//! looked for at the URLs that they advertise. What one endpoint does not
//! answer delays nobody else, and an observation never fails: what could not
//! be read is a [`Trouble`] in its place.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::{join_all, select_ok};
use jiff::Timestamp;

use crate::core::reason::Reason;
use crate::core::view::{ClusterId, MemberId, MemberStatus, MemberView, Observation, Trouble};

use super::ClusterClient;
use super::connection::Endpoint;
use super::error::{Call, CallError, CallErrorKind};
use super::member::{AlarmAnswer, ListAnswer, Listed, MemberClient, StatusAnswer};
use super::metrics::{self, Page};
use super::status;

/// What one endpoint said.
struct Seen {
    client: MemberClient,
    /// Who it is: said by one of its answers now, or by an earlier one.
    member: Option<MemberId>,
    status: Result<StatusAnswer, CallError>,
    page: Option<Page>,
}

/// A member's view, and the client that reached it.
struct Found {
    view: MemberView,
    client: Option<MemberClient>,
    cluster: Option<ClusterId>,
}

impl ClusterClient {
    /// Looks at the whole cluster. Takes as long as the slowest answer, at
    /// most a few times the time-out of a call.
    pub async fn observe(&self, now: Timestamp) -> Observation {
        let given = join_all(
            self.shared
                .given
                .iter()
                .map(|c| async { tokio::join!(self.look(c.clone()), c.member_list()) }),
        );
        let pages = join_all(
            self.shared
                .connection
                .metrics_urls
                .iter()
                .map(|u| self.page(u)),
        );
        let (given, pages) = tokio::join!(given, pages);
        let (mut given, lists): (Vec<Seen>, Vec<Result<ListAnswer, CallError>>) =
            given.into_iter().unzip();
        for (seen, list) in given.iter_mut().zip(&lists) {
            // The list answers, with its sender's id, while Status waits.
            if seen.status.is_err()
                && let Ok(list) = list
            {
                seen.member = Some(list.from.member);
            }
            if let Some(member) = seen.member {
                self.remember(seen.client.endpoint(), member);
            }
        }
        let pages = pages
            .into_iter()
            .flatten()
            .filter_map(|p| Some((p.member?, p)))
            .collect();

        let mut cluster_ids: BTreeSet<ClusterId> = BTreeSet::new();
        cluster_ids.extend(
            given
                .iter()
                .filter_map(|s| Some(s.status.as_ref().ok()?.from.cluster)),
        );
        cluster_ids.extend(lists.iter().flatten().map(|l| l.from.cluster));

        let mut found = Vec::new();
        let members = match choose(&given, lists) {
            Ok(list) => {
                let looking = list
                    .members
                    .into_iter()
                    .map(|m| self.find(m, &given, &pages));
                found = join_all(looking).await;
                cluster_ids.extend(found.iter().filter_map(|f| f.cluster));
                Ok(found.iter().map(|f| f.view.clone()).collect())
            }
            Err(trouble) => Err(trouble),
        };
        let alarms = match alarm_voices(&given, found) {
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
        let own_page = async {
            match self.shared.connection.metrics_urls.is_empty() {
                true => self.page(&client.endpoint().metrics_url()).await,
                false => None,
            }
        };
        let (status, page) = tokio::join!(client.status(), own_page);
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

    fn remember(&self, endpoint: &Endpoint, member: MemberId) {
        self.learned(|learned| {
            learned.identities.insert(endpoint.clone(), member);
        });
    }

    /// Finds a listed member: among the given endpoints, else where it says.
    async fn find(
        &self,
        listed: Listed,
        given: &[Seen],
        pages: &BTreeMap<MemberId, Page>,
    ) -> Found {
        let advertised: Vec<_> = listed
            .client_urls
            .iter()
            .map(|u| Endpoint::parse(u))
            .collect();
        let is_advertised =
            |e: &Endpoint| advertised.iter().any(|a| a.as_ref().is_ok_and(|a| a == e));
        let answered = given
            .iter()
            .find(|s| matches!(&s.status, Ok(a) if a.from.member == listed.id));
        let silent = given.iter().filter(|s| s.status.is_err()).find(|s| {
            s.member == Some(listed.id)
                || (s.member.is_none() && is_advertised(s.client.endpoint()))
        });
        if let Some(seen) = answered {
            return self.found(listed, seen, pages);
        }
        // An endpoint that is known to be this member's and may still be at
        // work is not gone around.
        let mut error = match silent {
            Some(Seen { status: Err(e), .. }) if e.kind != CallErrorKind::NotSent => {
                return self.absent(listed, e.trouble(), silent, pages);
            }
            Some(Seen { status: Err(e), .. }) => Some(e.trouble()),
            _ => None,
        };
        if self.shared.connection.follow_member_urls {
            for url in &advertised {
                let usable = url.as_ref().map_err(ToString::to_string).and_then(|url| {
                    let checked = self.shared.connection.check_scheme(url);
                    checked.map(|()| url).map_err(|e| e.to_string())
                });
                let url = match usable {
                    Ok(url) if given.iter().any(|s| s.client.endpoint() == url) => continue,
                    Ok(url) => url,
                    Err(why) => {
                        let message = format!("its advertised client URL cannot be used: {why}");
                        error.get_or_insert(Trouble {
                            reason: Reason::EndpointUnusable,
                            message,
                        });
                        continue;
                    }
                };
                let seen = self.look(self.follow(url.clone())).await;
                match &seen.status {
                    Ok(answer) if answer.from.member == listed.id => {
                        self.remember(seen.client.endpoint(), listed.id);
                        return self.found(listed, &seen, pages);
                    }
                    Ok(answer) => {
                        let message = format!(
                            "{} is advertised by member {} and answers as member {}",
                            seen.client.endpoint(),
                            listed.id,
                            answer.from.member
                        );
                        error.get_or_insert(Trouble {
                            reason: Reason::MemberIdMismatch,
                            message,
                        });
                    }
                    Err(e) => {
                        let mut trouble = e.trouble();
                        trouble.message.push_str(
                            " (its advertised client URL; add an endpoint that reaches it from here)",
                        );
                        error.get_or_insert(trouble);
                    }
                }
            }
        }
        let trouble = error.unwrap_or_else(|| nowhere(&listed, given));
        self.absent(listed, trouble, silent, pages)
    }

    fn found(&self, listed: Listed, seen: &Seen, pages: &BTreeMap<MemberId, Page>) -> Found {
        let Listed {
            id,
            name,
            client_urls: _,
            learner,
        } = listed;
        let page = own_page(id, Some(seen), pages);
        let quota_bytes = self.shared.connection.quota_bytes;
        let status = match &seen.status {
            Ok(answer) => Ok(status::interpret(
                answer.raw.clone(),
                page.and_then(|p| p.quota),
                quota_bytes,
            )),
            Err(e) => Err(e.trouble()),
        };
        let view = MemberView {
            id,
            name,
            learner,
            status,
            metrics: page.and_then(|p| p.defrag),
        };
        Found {
            view,
            client: Some(seen.client.clone()),
            cluster: seen.status.as_ref().ok().map(|a| a.from.cluster),
        }
    }

    fn absent(
        &self,
        listed: Listed,
        trouble: Trouble,
        silent: Option<&Seen>,
        pages: &BTreeMap<MemberId, Page>,
    ) -> Found {
        let Listed {
            id,
            name,
            client_urls: _,
            learner,
        } = listed;
        let metrics = own_page(id, silent, pages).and_then(|p| p.defrag);
        let view = MemberView {
            id,
            name,
            learner,
            status: Err(trouble),
            metrics,
        };
        Found {
            view,
            client: None,
            cluster: None,
        }
    }
}

/// The page that is this member's: by `etcd_server_id` where the page has it.
fn own_page<'a>(
    id: MemberId,
    seen: Option<&'a Seen>,
    pages: &'a BTreeMap<MemberId, Page>,
) -> Option<&'a Page> {
    pages.get(&id).or_else(|| {
        let seen = seen?;
        let page = seen.page.as_ref()?;
        (page.member.or(seen.member) == Some(id)).then_some(page)
    })
}

/// The list to believe: the leader's own, else that of the member that has
/// seen most of raft; one that lags may still list who has left.
fn choose(
    given: &[Seen],
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
fn nowhere(listed: &Listed, given: &[Seen]) -> Trouble {
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
fn alarm_voices(given: &[Seen], found: Vec<Found>) -> Result<Vec<MemberClient>, Trouble> {
    let voters: Vec<(MemberId, Option<MemberId>, MemberClient)> = if found.is_empty() {
        let answered = given
            .iter()
            .filter_map(|s| Some((s, s.status.as_ref().ok()?)));
        answered
            .map(|(s, a)| {
                (
                    a.from.member,
                    Some(MemberId(a.raw.leader)).filter(|l| l.0 != 0),
                    s.client.clone(),
                )
            })
            .collect()
    } else {
        found
            .into_iter()
            .filter(|f| !f.view.learner)
            .filter_map(|f| match (f.view.status, f.client) {
                (Ok(MemberStatus { leader, .. }), Some(client)) => {
                    Some((f.view.id, leader, client))
                }
                _ => None,
            })
            .collect()
    };
    let unavailable = |message: &str| {
        Err(Trouble {
            reason: Reason::AlarmsUnavailable,
            message: format!("{}: {message}", Call::AlarmList),
        })
    };
    if voters.is_empty() {
        return unavailable("no voter answers");
    }
    let Some(leader) = voters.iter().find_map(|(_, leader, _)| *leader) else {
        return unavailable("no member knows a leader, and alarms are listed through raft");
    };
    let (first, others): (Vec<_>, Vec<_>) =
        voters.into_iter().partition(|(id, _, _)| *id == leader);
    Ok(first
        .into_iter()
        .chain(others)
        .map(|(_, _, client)| client)
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
