//! Single readings, by users with rights of their own.

use std::time::Duration;

use defragd::core::reason::Reason;
use defragd::core::signal::{Metric, MetricSignal, Reading, Reduce, SignalState};
use defragd::signals::metrics_api::{Limits, MetricsApi};
use defragd_harness::{Error, KubeApi, eventually};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::support::{
    TEAM, WAIT, World, above, below, client, external, of_object, of_pod, reduced,
};

async fn read(api: &MetricsApi, signal: &MetricSignal) -> Reading {
    api.read(signal, TEAM, Timestamp::now(), true).await
}

/// An account of the team with this right, and what reads by it.
async fn reader(api: &KubeApi, name: &str, group: &str, verb: &str) -> Result<MetricsApi, Error> {
    let path = format!("/api/v1/namespaces/{TEAM}/serviceaccounts");
    let named = json!({ "metadata": { "name": name } });
    api.create(&path, &named).await?;
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{TEAM}");
    let mut role = named.clone();
    role["rules"] = json!([{ "apiGroups": [group], "resources": ["*"], "verbs": [verb] }]);
    api.create(&format!("{path}/roles"), &role).await?;
    let mut binding = named;
    let of = "rbac.authorization.k8s.io";
    binding["roleRef"] = json!({ "apiGroup": of, "kind": "Role", "name": name });
    let subject = json!({ "kind": "ServiceAccount", "name": name, "namespace": TEAM });
    binding["subjects"] = json!([subject]);
    api.create(&format!("{path}/rolebindings"), &binding)
        .await?;
    let token = api.service_account_token(TEAM, name).await?;
    let kubeconfig = api.kubeconfig_for_token(&token, TEAM)?;
    Ok(MetricsApi::new(
        client(&kubeconfig).await,
        Limits::default(),
    ))
}

/// The adapter learns of series, and the API server of roles, a moment later.
async fn until(
    api: &MetricsApi,
    signal: &MetricSignal,
    wanted: SignalState,
) -> Result<Reading, Error> {
    eventually(WAIT, format!("{wanted:?}"), async || {
        let reading = read(api, signal).await;
        match reading.state == wanted {
            true => Ok(reading),
            false => Err(format!("{reading:?}")),
        }
    })
    .await
}

#[tokio::test]
async fn what_the_adapter_answers() -> Result<(), Error> {
    let world = World::with_adapter().await?;
    let admin = client(&world.api.kubeconfig_admin()).await;
    let api = MetricsApi::new(admin.clone(), Limits::default());

    let main = external("ext_reclaimable", "cluster=main", above("10Mi"));
    let fires = until(&api, &main, SignalState::Firing).await?;
    assert!(fires.value.is_some_and(|value| value > 10e6), "{fires:?}");
    assert!(fires.message.contains("cluster=\"main\""), "{fires:?}");
    let age = Timestamp::now().duration_since(fires.sampled_at.expect("the adapter tells"));
    assert!(age < SignedDuration::from_mins(1), "{age:?}");

    // S87: selectors, several values, none.
    let other = external(
        "ext_reclaimable",
        "cluster in (other,none),!gone",
        above("10Mi"),
    );
    let quiet = read(&api, &other).await;
    assert_eq!(
        (quiet.state, quiet.value),
        (SignalState::NotFiring, Some(1.0))
    );
    let all = external("ext_reclaimable", "", above("10Mi"));
    let several = read(&api, &all).await;
    assert_eq!(several.reason, Reason::ResultUnsuitable);
    assert!(several.message.contains("2 values"), "{several:?}");
    let any = read(&api, &reduced(all.clone(), Reduce::Any)).await;
    assert_eq!(any.state, SignalState::Firing, "{any:?}");
    let every = read(&api, &reduced(all, Reduce::All)).await;
    assert_eq!(every.state, SignalState::NotFiring, "{every:?}");
    let nothing = external("ext_reclaimable", "cluster=nowhere", above("0"));
    let none = read(&api, &nothing).await;
    assert_eq!(none.state, SignalState::NoData, "{none:?}");
    // Another namespace's policy does not see the team's series.
    let elsewhere = api.read(&main, "other", Timestamp::now(), true).await;
    assert_eq!(elsewhere.state, SignalState::NoData, "{elsewhere:?}");
    let ratio = read(&api, &external("ext_ratio", "", below("0.5"))).await;
    assert_eq!((ratio.state, ratio.value), (SignalState::Firing, Some(0.3)));

    // NaN and infinity, as this adapter writes them.
    for name in ["ext_nan", "ext_infinite"] {
        for threshold in [above("1"), below("1")] {
            let odd = read(&api, &external(name, "", threshold)).await;
            assert_eq!(odd.state, SignalState::Inconclusive, "{name}: {odd:?}");
        }
    }

    let fires = until(
        &api,
        &of_pod("pod_reclaimable", above("10Mi")),
        SignalState::Firing,
    )
    .await?;
    assert!(fires.value.is_some_and(|value| value > 10e6), "{fires:?}");
    let odd = read(&api, &of_pod("pod_nan", below("0.5"))).await;
    assert_eq!(odd.state, SignalState::Inconclusive, "{odd:?}");

    objects_of_all_sorts(&api).await?;
    a_missing_metric_is_an_error_later(&world).await?;

    // Equal questions of a tick are asked once.
    let tick = Timestamp::now();
    let before = api.stats();
    let asked = (0..20).map(|_| api.read(&main, TEAM, tick, false));
    futures::future::join_all(asked).await;
    let after = api.stats();
    let count = |stats: &defragd::signals::SourceStats| stats.requests.values().sum::<u64>();
    assert_eq!(count(&after) - count(&before), 1, "{after:?}");
    assert_eq!(after.shared - before.shared, 19);

    // S89: without the adapter nothing is forgotten, and nothing is clear.
    world.adapter.kill()?;
    let gone = until(&api, &main, SignalState::Error).await?;
    assert_eq!(gone.reason, Reason::SourceUnavailable, "{gone:?}");
    let gone = read(&api, &of_pod("pod_reclaimable", above("10Mi"))).await;
    assert_eq!(gone.reason, Reason::SourceUnavailable, "{gone:?}");
    world.adapter.start_again(&world.api).await?;
    until(&api, &main, SignalState::Firing).await?;

    // One that is stuck is given up in time.
    world.adapter.pause()?;
    let limits = Limits {
        time: Duration::from_secs(2),
        ..Limits::default()
    };
    let hasty = MetricsApi::new(admin, limits);
    let stuck = read(&hasty, &main).await;
    assert_eq!(stuck.reason, Reason::SourceUnavailable, "{stuck:?}");
    Ok(())
}

/// A selector, a group of its own, and the namespace itself, which is a case of its own in paths.
async fn objects_of_all_sorts(api: &MetricsApi) -> Result<(), Error> {
    let mut slow = of_pod("pod_reclaimable", above("1"));
    if let Metric::Object { selector, .. } = &mut slow.metric {
        "disk=slow".clone_into(selector);
    }
    let set = ("apps/v1", "StatefulSet", "etcd");
    let team = ("v1", "Namespace", TEAM);
    for (signal, value) in [
        (slow, 7.0),
        (of_object(set, "set_reclaimable", above("1")), 8.0),
        (of_object(team, "ns_reclaimable", above("1")), 9.0),
    ] {
        let fires = until(api, &signal, SignalState::Firing).await?;
        assert_eq!(fires.value, Some(value), "{fires:?}");
    }
    for (object, words) in [
        (("v1", "Namespace", "other"), "own namespace only"),
        (("v1", "Node", "node-0"), "lies in no namespace"),
    ] {
        let refused = read(api, &of_object(object, "ns_reclaimable", above("1"))).await;
        assert_eq!(refused.reason, Reason::QueryInvalid, "{refused:?}");
        assert!(refused.message.contains(words), "{refused:?}");
    }
    Ok(())
}

/// S86.
async fn a_missing_metric_is_an_error_later(world: &World) -> Result<(), Error> {
    let limits = Limits {
        missing_tolerated: SignedDuration::from_secs(3),
        ..Limits::default()
    };
    let api = MetricsApi::new(client(&world.api.kubeconfig_admin()).await, limits);
    let mut unknown_kind = of_pod("pod_reclaimable", above("1"));
    if let Metric::Object { described, .. } = &mut unknown_kind.metric {
        described.kind = "Etcd".to_owned();
    }
    for missing in [
        external("ext_nothing", "", above("1")),
        of_pod("pod_nothing", above("1")),
        unknown_kind,
    ] {
        let first = read(&api, &missing).await;
        assert_eq!(first.state, SignalState::NoData, "{first:?}");
        let later = until(&api, &missing, SignalState::Error).await?;
        assert_eq!(later.reason, Reason::MetricNotFound, "{later:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_least_rights_are_list_and_get() -> Result<(), Error> {
    let world = World::with_adapter().await?;
    let (own, custom) = ("external.metrics.k8s.io", "custom.metrics.k8s.io");
    let outside = external("ext_reclaimable", "cluster=main", above("10Mi"));
    let pods = of_pod("pod_reclaimable", above("10Mi"));
    for (name, group, verb, signal, other) in [
        ("lists", own, "list", &outside, &pods),
        ("gets", custom, "get", &pods, &outside),
    ] {
        let api = reader(&world.api, name, group, verb).await?;
        until(&api, signal, SignalState::Firing).await?;
        let forbidden = read(&api, other).await;
        assert_eq!(forbidden.reason, Reason::AuthFailed, "{forbidden:?}");
    }
    // The other verb is of no use.
    for (name, group, verb, signal, rule) in [
        (
            "gets-outside",
            own,
            "get",
            &outside,
            "list on * of external.metrics.k8s.io",
        ),
        (
            "lists-pods",
            custom,
            "list",
            &pods,
            "get on * of custom.metrics.k8s.io",
        ),
    ] {
        let api = reader(&world.api, name, group, verb).await?;
        let forbidden = until(&api, signal, SignalState::Error).await?;
        assert_eq!(forbidden.reason, Reason::AuthFailed, "{forbidden:?}");
        for words in ["forbidden", rule, "rbac.metricsApis"] {
            assert!(forbidden.message.contains(words), "{}", forbidden.message);
        }
    }
    Ok(())
}
