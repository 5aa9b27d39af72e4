//! Brings what is stored in line with the documents, each time they are read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use kube::core::ObjectMeta;

use super::align::{self, RunFate, Situation, accepted};
use super::checked;
use super::host::{Entry, Inner, StandaloneHost};
use super::objects::{Ref, Snapshot};
use super::store::StateError;
use super::stored::{
    DOCUMENT_ERROR, FILE, Kind, OfKind, REMOVED_AT, StoredPolicy, StoredRun, StoredTarget,
};
use crate::api::document::Object;
use crate::api::policy::EtcdDefragPolicySpec;
use crate::api::target::EtcdTargetSpec;
use crate::engine::{ClusterKey, ObjectKey, RunView, now};
use crate::hosts::fleet;

/// How long a document must be missing before that counts. Editors and tools
/// take a file away and put it back.
pub(super) const REMOVAL_GRACE: Duration = Duration::from_secs(2);
/// How long a removed target or policy is remembered: longer than the longest
/// rest that a policy can ask for.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(100 * 24);

/// What one reading of the documents came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Synced {
    /// The documents are to be read again soon.
    pub(super) soon: bool,
}

impl StandaloneHost {
    /// Takes over what the documents say. Never called twice at a time.
    pub(super) async fn sync(&self, snapshot: &Snapshot) -> Synced {
        self.look_again_at_unusable().await;
        let mut soon = snapshot.unsettled;
        let mut problems = snapshot.problems.clone();
        for reference in self.concerned(snapshot) {
            let file = self.file_of(&reference);
            let situation = match snapshot.documents.get(&reference) {
                Some(document) => Situation::Present(document),
                None => match snapshot.doubt(file.as_deref()) {
                    Some(why) => Situation::Doubt(why),
                    None if self.is_gone(&reference) => Situation::Gone,
                    None => {
                        soon = true;
                        continue;
                    }
                },
            };
            if matches!(situation, Situation::Present(_) | Situation::Doubt(_)) {
                self.inner().missing.remove(&reference);
            }
            let key = &reference.key;
            match reference.kind {
                Kind::Target => self.sync_target(key, situation).await,
                Kind::Policy => self.sync_policy(key, situation).await,
                Kind::Run => self.sync_run(key, situation, &mut problems).await,
            }
        }
        self.refresh_fleets();
        self.refresh_removable();
        self.tell(problems).await;
        self.show_counts();
        if std::mem::take(&mut self.inner().retry) {
            self.views.wake();
        }
        Synced { soon }
    }

    fn show_counts(&self) {
        let inner = self.inner();
        let targets = inner.targets.values().filter(|e| e.shown).count();
        let policies = inner.policies.values().filter(|e| e.shown).count();
        let runs = inner.runs.values().filter(|e| e.shown).count();
        for (kind, count) in [
            (Kind::Target, targets),
            (Kind::Policy, policies),
            (Kind::Run, runs),
        ] {
            self.telemetry.watched(kind.as_str(), count);
        }
    }

    /// Every object that there is a document of, or that is stored.
    fn concerned(&self, snapshot: &Snapshot) -> BTreeSet<Ref> {
        let inner = self.inner();
        let of = |kind: Kind| {
            move |key: &ObjectKey| Ref {
                kind,
                key: key.clone(),
            }
        };
        let mut all: BTreeSet<Ref> = snapshot.documents.keys().cloned().collect();
        all.extend(inner.targets.keys().map(of(Kind::Target)));
        all.extend(inner.policies.keys().map(of(Kind::Policy)));
        // Policies' runs have no documents.
        let written = inner
            .runs
            .iter()
            .filter(|(_, entry)| entry.stored.annotation(FILE).is_some());
        all.extend(written.map(|(key, _)| of(Kind::Run)(key)));
        all
    }

    fn file_of(&self, reference: &Ref) -> Option<String> {
        let inner = self.inner();
        let key = &reference.key;
        let file = match reference.kind {
            Kind::Target => inner.targets.get(key)?.stored.annotation(FILE),
            Kind::Policy => inner.policies.get(key)?.stored.annotation(FILE),
            Kind::Run => inner.runs.get(key)?.stored.annotation(FILE),
        };
        file.map(str::to_owned)
    }

    /// True once the document has been missing for [`REMOVAL_GRACE`].
    fn is_gone(&self, reference: &Ref) -> bool {
        let now = Instant::now();
        let mut inner = self.inner();
        let since = *inner.missing.entry(reference.clone()).or_insert(now);
        now.duration_since(since) >= REMOVAL_GRACE
    }

    async fn sync_target(&self, key: &ObjectKey, situation: Situation<'_>) {
        let _turn = self.turn(Kind::Target, key).await;
        let (before, durable, unusable) = {
            let inner = self.inner();
            let entry = inner.targets.get(key);
            (
                entry.map(|entry| entry.stored.clone()),
                entry.is_some_and(|entry| entry.durable),
                inner.unusable(Kind::Target, key),
            )
        };
        if self.is_forgotten(
            before
                .as_ref()
                .and_then(|stored| stored.annotation(REMOVED_AT)),
            situation,
        ) {
            return self.forget(Kind::Target, key).await;
        }
        let Some(mut next) = align::declared(
            Kind::Target,
            key,
            before.as_deref(),
            situation,
            target_spec,
            now(),
        ) else {
            return;
        };
        if before
            .as_ref()
            .is_some_and(|before| before.spec != next.spec)
        {
            // Other endpoints may lead to another cluster.
            next.status.cluster_id = None;
            next.status.members.clear();
            next.status.voters = None;
        }
        let Some((stored, durable)) = self
            .keep(before.as_ref(), durable, next, unusable.is_some())
            .await
        else {
            return self.review_target(key, unusable);
        };
        let entry = Entry {
            shown: stored.annotation(REMOVED_AT).is_none(),
            stored,
            durable,
            blocked: unusable,
            cluster_since: 1,
        };
        let mut inner = self.inner();
        self.present_target(&entry);
        inner.targets.insert(key.clone(), entry);
    }

    async fn sync_policy(&self, key: &ObjectKey, situation: Situation<'_>) {
        let _turn = self.turn(Kind::Policy, key).await;
        let (before, durable, unusable, cluster_since) = {
            let inner = self.inner();
            let entry = inner.policies.get(key);
            (
                entry.map(|entry| entry.stored.clone()),
                entry.is_some_and(|entry| entry.durable),
                inner.unusable(Kind::Policy, key),
                entry.map_or(1, |entry| entry.cluster_since),
            )
        };
        if self.is_forgotten(
            before
                .as_ref()
                .and_then(|stored| stored.annotation(REMOVED_AT)),
            situation,
        ) {
            return self.forget(Kind::Policy, key).await;
        }
        let Some(next) = align::declared(
            Kind::Policy,
            key,
            before.as_deref(),
            situation,
            policy_spec,
            now(),
        ) else {
            return;
        };
        let cluster = |stored: &StoredPolicy| checked::cluster_name(stored).map(str::to_owned);
        let moved = before
            .as_ref()
            .is_some_and(|before| cluster(before) != cluster(&next));
        let Some((stored, durable)) = self
            .keep(before.as_ref(), durable, next, unusable.is_some())
            .await
        else {
            return self.review_policy(key, unusable);
        };
        let named = match situation {
            Situation::Present(document) => document.cluster.as_deref(),
            Situation::Doubt(_) | Situation::Gone => None,
        };
        let cluster_since = if moved {
            stored.generation()
        } else {
            cluster_since
        };
        let entry = Entry {
            shown: stored.annotation(REMOVED_AT).is_none(),
            stored,
            durable,
            blocked: unusable,
            cluster_since,
        };
        let mut inner = self.inner();
        self.present_policy(&inner, &entry, named);
        inner.policies.insert(key.clone(), entry);
    }

    async fn sync_run(
        &self,
        key: &ObjectKey,
        situation: Situation<'_>,
        problems: &mut Vec<String>,
    ) {
        let _turn = self.turn(Kind::Run, key).await;
        let (before, durable) = {
            let inner = self.inner();
            // Nobody can say which runs there are.
            if inner.runs_unreadable().is_some() {
                return;
            }
            let entry = inner.runs.get(key);
            (
                entry.map(|entry| entry.stored.clone()),
                entry.is_some_and(|entry| entry.durable),
            )
        };
        let next = match align::run(key, before.as_deref(), situation, now()) {
            RunFate::None => return,
            RunFate::Conflict(problem) => {
                problems.push(problem);
                return;
            }
            RunFate::Forget => return self.forget(Kind::Run, key).await,
            RunFate::Store(next) => *next,
        };
        let begins = accepted(&next) && !before.as_ref().is_some_and(|before| accepted(before));
        let Some((stored, durable)) = self.keep(before.as_ref(), durable, next, false).await else {
            return;
        };
        if begins && !durable {
            // A run is known to nobody before it is stored.
            return;
        }
        let shown = accepted(&stored);
        let mut inner = self.inner();
        if shown {
            let mut view = checked::run_view(&stored);
            if let Some(old) = self.views.run(key) {
                view.record = old.record.clone();
            }
            self.views.put_run(Arc::new(view));
        }
        let entry = Entry {
            stored,
            durable,
            shown,
            blocked: None,
            cluster_since: 1,
        };
        inner.runs.insert(key.clone(), entry);
    }

    fn present_target(&self, entry: &Entry<StoredTarget>) {
        if entry.shown {
            self.show_target(checked::target_view(
                &entry.stored,
                entry.blocked.as_deref(),
            ));
        } else {
            self.views
                .remove_target(&ClusterKey::target(entry.stored.key()));
        }
    }

    /// `named` is the cluster of a document that could not be used as a whole.
    fn present_policy(&self, inner: &Inner, entry: &Entry<StoredPolicy>, named: Option<&str>) {
        if entry.shown && checked::selects(&entry.stored) {
            fleet::show(
                &self.views,
                self.fleet_of(inner, entry),
                &entry.stored.status,
            );
        } else if entry.shown {
            let view = checked::policy_view(&entry.stored, entry.blocked.as_deref(), named);
            self.views.put_policy(Arc::new(view));
        } else {
            self.views.remove_policy(&entry.stored.key());
        }
    }

    /// Stores the next form when it is new, or was never stored. `None` when
    /// nothing is to be done; the flag tells whether it is on the disk.
    ///
    /// An object is followed also when it cannot be stored: a person who
    /// suspends a policy while the disk is full means it.
    async fn keep<O: OfKind + Named>(
        &self,
        before: Option<&Arc<O>>,
        durable: bool,
        next: O,
        unusable: bool,
    ) -> Option<(Arc<O>, bool)> {
        let same = before.is_some_and(|before| **before == next);
        if same && (durable || unusable) {
            return None;
        }
        next.tell_difference(before.map(|before| &**before));
        let next = Arc::new(next);
        if unusable {
            return Some((next, false));
        }
        match self.write(next.clone()).await {
            Ok(()) => Some((next, true)),
            Err(error) => {
                tracing::error!(%error, "unable to store an object");
                (!same).then_some((next, false))
            }
        }
    }

    /// What is stored stays; it may have to be shown for the first time since the
    /// start, or its state file became usable or unusable.
    fn review_target(&self, key: &ObjectKey, unusable: Option<String>) {
        let mut inner = self.inner();
        if let Some(entry) = inner.targets.get_mut(key)
            && entry.review(unusable)
        {
            self.present_target(entry);
        }
    }

    fn review_policy(&self, key: &ObjectKey, unusable: Option<String>) {
        let mut inner = self.inner();
        if let Some(entry) = inner.policies.get_mut(key)
            && entry.review(unusable)
            && let Some(entry) = inner.policies.get(key)
        {
            self.present_policy(&inner, entry, None);
        }
    }

    fn is_forgotten(&self, removed_at: Option<&str>, situation: Situation<'_>) -> bool {
        let Some(at) = removed_at.and_then(|at| at.parse::<Timestamp>().ok()) else {
            return false;
        };
        matches!(situation, Situation::Gone) && now().duration_since(at) > REMEMBERED
    }

    async fn forget(&self, kind: Kind, key: &ObjectKey) {
        if let Err(error) = self.erase(kind, key).await {
            tracing::warn!(%error, "unable to forget a removed object");
            return;
        }
        let mut inner = self.inner();
        inner.missing.remove(&Ref {
            kind,
            key: key.clone(),
        });
        match kind {
            Kind::Target => {
                inner.targets.remove(key);
                self.views.remove_target(&ClusterKey::target(key.clone()));
            }
            Kind::Policy => {
                inner.policies.remove(key);
                self.views.remove_policy(key);
            }
            Kind::Run => {
                inner.runs.remove(key);
                self.views.remove_run(key);
            }
        }
    }

    /// The runs of a policy that cannot be used stay: its own limits are not
    /// known, and others must not be put in their place.
    fn refresh_removable(&self) {
        // Views of runs are changed under this lock.
        let _inner = self.inner();
        for view in self.views.runs() {
            let Some(owner) = &view.owner else { continue };
            let removable =
                !self.views.has_policy(owner) || self.views.policy_spec(owner).is_some();
            if removable != view.removable {
                self.views.put_run(Arc::new(RunView {
                    removable,
                    ..(*view).clone()
                }));
            }
        }
    }

    /// Logs what is newly wrong, and stores it for `defragd status`.
    async fn tell(&self, problems: Vec<String>) {
        let old = self.inner().problems.clone();
        if old.as_ref() == Some(&problems) {
            return;
        }
        for problem in problems
            .iter()
            .filter(|p| !old.iter().flatten().any(|old| old == *p))
        {
            self.telemetry.error("document");
            tracing::warn!("{problem}");
        }
        let (store, content) = (self.store.clone(), problems.clone());
        let stored = tokio::task::spawn_blocking(move || store.write_documents(&content)).await;
        match stored.unwrap_or_else(|error| Err(StateError::Aborted(error.to_string()))) {
            Ok(()) => self.inner().problems = Some(problems),
            Err(error) => {
                tracing::error!(%error, "unable to store what is wrong with the documents");
            }
        }
    }

    /// State files that could not be used may have been restored or moved away.
    async fn look_again_at_unusable(&self) {
        let files: Vec<(Kind, String)> = self.inner().unusable.keys().cloned().collect();
        for (kind, file) in files {
            match kind {
                Kind::Target => {
                    if let Some(found) = self.look_again::<StoredTarget>(file).await {
                        let mut inner = self.inner();
                        inner.targets.retain(|key, entry| {
                            let usable = entry.blocked.is_none();
                            if !usable {
                                self.views.remove_target(&ClusterKey::target(key.clone()));
                            }
                            usable
                        });
                        if let Some(stored) = found {
                            inner.targets.insert(stored.key(), Entry::loaded(stored));
                        }
                    }
                }
                Kind::Policy => {
                    if let Some(found) = self.look_again::<StoredPolicy>(file).await {
                        let mut inner = self.inner();
                        inner.policies.retain(|key, entry| {
                            let usable = entry.blocked.is_none();
                            if !usable {
                                self.views.remove_policy(key);
                            }
                            usable
                        });
                        if let Some(stored) = found {
                            inner.policies.insert(stored.key(), Entry::loaded(stored));
                        }
                    }
                }
                Kind::Run => {
                    if let Some(found) = self.look_again::<StoredRun>(file).await {
                        let mut inner = self.inner();
                        if let Some(stored) = found {
                            let shown = accepted(&stored);
                            if shown {
                                self.views.put_run(Arc::new(checked::run_view(&stored)));
                            }
                            inner.runs.insert(
                                stored.key(),
                                Entry {
                                    shown,
                                    ..Entry::loaded(stored)
                                },
                            );
                        }
                        // The engine has to hear that runs can be read again.
                        inner.retry = true;
                    }
                }
            }
        }
    }

    /// `Some` when the file can be used now, or is gone.
    async fn look_again<O: OfKind>(&self, file: String) -> Option<Option<O>> {
        let store = self.store.clone();
        let name = file.clone();
        let read = tokio::task::spawn_blocking(move || store.read::<O>(&name)).await;
        match read.unwrap_or_else(|error| Err(StateError::Aborted(error.to_string()))) {
            Ok(found) => {
                tracing::info!(file, "the state file is in order again");
                self.inner().unusable.remove(&(O::KIND, file));
                Some(found)
            }
            Err(error) => {
                self.inner().unusable.insert((O::KIND, file), error);
                None
            }
        }
    }
}

impl<S, T> Entry<super::stored::Stored<S, T>> {
    /// Takes note of what keeps its state file from being used. True when the engine has to
    /// see it anew.
    fn review(&mut self, unusable: Option<String>) -> bool {
        let shown = self.stored.annotation(REMOVED_AT).is_none();
        if self.blocked == unusable && self.shown == shown {
            return false;
        }
        self.shown = shown;
        self.blocked = unusable;
        true
    }
}

fn target_spec(object: &Object) -> Option<(&ObjectMeta, &EtcdTargetSpec)> {
    match object {
        Object::Target(target) => Some((&target.metadata, &target.spec)),
        Object::Policy(_) | Object::Run(_) => None,
    }
}

fn policy_spec(object: &Object) -> Option<(&ObjectMeta, &EtcdDefragPolicySpec)> {
    match object {
        Object::Policy(policy) => Some((&policy.metadata, &policy.spec)),
        Object::Target(_) | Object::Run(_) => None,
    }
}

/// Says in the log what became of an object's document.
pub(super) trait Named {
    fn tell_difference(&self, before: Option<&Self>);
}

impl<S: PartialEq, T> Named for super::stored::Stored<S, T> {
    fn tell_difference(&self, before: Option<&Self>) {
        let (kind, object) = (self.kind.as_str(), self.key());
        let old = before.and_then(|before| before.annotation(DOCUMENT_ERROR));
        let removed = before.is_some_and(|before| before.annotation(REMOVED_AT).is_some());
        match self.annotation(DOCUMENT_ERROR) {
            Some(error) if old != Some(error) => tracing::warn!(kind, %object, "{error}"),
            None if old.is_some() => {
                tracing::info!(kind, %object, "the document can be used again");
            }
            _ if self.metadata.deletion_timestamp.is_some() => {
                tracing::info!(kind, %object, "the document was removed: the run ends after the member in progress");
            }
            _ if self.annotation(REMOVED_AT).is_some() && !removed => {
                tracing::info!(kind, %object, "the document was removed");
            }
            _ if before.is_none() || removed => tracing::info!(kind, %object, "new"),
            _ if before.is_some_and(|before| before.spec != self.spec) => {
                tracing::info!(kind, %object, generation = self.generation(), "the spec changed");
            }
            _ => {}
        }
    }
}
