//! Alertmanager delivers.

use std::fs;

use defragd_harness::pages::number;
use defragd_harness::{Alertmanager, Defragd, Error, eventually};
use serde_json::{Value, json};

use crate::support::{ALERT, TOKEN, WAIT, alert, asks, defragd, fragmented, objects, said, until};

/// What a route to the webhook of a defragd at this address looks like, all of it quick.
fn route(address: &str, token: &str) -> Value {
    json!({
        "route": {
            "receiver": "defragd", "group_by": ["alertname"],
            "group_wait": "100ms", "group_interval": "1s", "repeat_interval": "1s",
        },
        "receivers": [{ "name": "defragd", "webhook_configs": [{
            "url": format!("http://{address}/api/v1/alerts/pushed"),
            "http_config": { "authorization": { "type": "Bearer", "credentials": token } },
        }] }],
    })
}

/// One that takes deliveries to the source `pushed` with the token.
fn receiver() -> Result<Defragd, Error> {
    let defragd = defragd()?;
    let token = defragd.objects().with_file_name("token");
    fs::write(&token, TOKEN).expect("a file in a folder of the test");
    defragd.configure(
        &json!({ "sources": [{ "name": "pushed", "webhook": { "bearerTokenFile": token } }] }),
    )?;
    Ok(defragd)
}

/// T80, T81, T82: two Alertmanagers deliver one alert, a delivery survives a crash, its end ends it, and
/// who shows the wrong token delivers nothing.
#[tokio::test]
async fn t80_what_was_delivered_survives_a_crash() -> Result<(), Error> {
    let cluster = fragmented().await?;
    let defragd = receiver()?;
    // It only says what it would do.
    let spec = json!({ "for": "30d", "dryRun": true });
    defragd.put("objects.yaml", &objects(&cluster, &asks("pushed"), spec))?;
    defragd.start().await?;
    until(&defragd, "no delivery", |s| {
        said(s) == ("NoData", "no alert has been delivered yet")
    })
    .await?;

    let stranger = Alertmanager::default()
        .config(route(&defragd.address(), "guessed"))
        .start()
        .await?;
    stranger.post(&alert(60, json!({}))).await?;
    let count = async |result: &str, code: u16| {
        let name = format!(
            "defragd_webhook_deliveries_total{{source=\"pushed\",result=\"{result}\",code=\"{code}\"}}"
        );
        Ok::<_, Error>(defragd.metric(&name).await?.unwrap_or(0.0))
    };
    eventually(WAIT, "the refusal", async || {
        match count("unauthorized", 401).await {
            Ok(refused) if refused > 0.0 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    assert_eq!(count("stored", 200).await?, 0.0);
    stranger.stop().await?;

    let config = || Alertmanager::default().config(route(&defragd.address(), TOKEN));
    let (first, second) = tokio::try_join!(config().start(), config().start())?;
    let firing = alert(60, json!({}));
    for am in [&first, &second] {
        am.post(&firing).await?;
    }
    eventually(WAIT, "both to deliver", async || {
        match count("stored", 200).await {
            Ok(stored) if stored >= 3.0 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    let page = defragd.page("/metrics").await?;
    let alerts = |result: &str| {
        let labels = format!("{{source=\"pushed\",result=\"{result}\"}}");
        number(&page, &format!("defragd_webhook_alerts_total{labels}")).unwrap_or(0.0)
    };
    assert_eq!(alerts("new"), 1.0, "{page}");
    assert!(alerts("repeated") >= 1.0, "{page}");
    let status = until(&defragd, "the alert", |s| said(s).0 == "Firing").await?;
    assert_eq!(
        status.policy("p")["signal"]["value"],
        "1",
        "one alert, whoever delivers it"
    );
    let since = status.policy("p")["firingSince"].clone();

    first.stop().await?;
    second.stop().await?;
    defragd.kill()?;
    defragd.start().await?;
    let status = until(&defragd, "the alert after the crash", |s| {
        said(s).0 == "Firing"
    })
    .await?;
    assert_eq!(status.policy("p")["firingSince"], since);

    // Its port is another one now.
    let third = Alertmanager::default()
        .config(route(&defragd.address(), TOKEN))
        .start()
        .await?;
    third.post(&firing).await?;
    let mut ended = firing.clone();
    ended[0]["endsAt"] = json!(jiff::Timestamp::now().to_string());
    eventually(WAIT, "it to deliver", async || {
        match count("stored", 200).await {
            Ok(stored) if stored > 0.0 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    third.post(&ended).await?;
    until(&defragd, "its end", |s| said(s).0 == "NotFiring").await?;
    let state =
        fs::read_to_string(defragd.state().join("alerts/pushed.json")).expect("it is stored");
    assert!(state.contains(ALERT), "{state}");
    let printed = format!(
        "{}{}{state}",
        defragd.logged(),
        defragd.page("/metrics").await?
    );
    assert!(
        !printed.contains(TOKEN) && !printed.contains("guessed"),
        "a token was printed"
    );
    Ok(())
}

/// What the documents say of silences: one that covers an alert after its delivery is no end of it to us, and
/// neither is its end then. Others of its group are delivered meanwhile, so there was something to say it with.
#[tokio::test]
async fn a_silence_after_a_delivery_says_nothing_and_keeps_the_end_from_us() -> Result<(), Error> {
    let defragd = receiver()?;
    defragd.start().await?;
    let am = Alertmanager::default()
        .config(route(&defragd.address(), TOKEN))
        .start()
        .await?;
    let count = async |result: &str| {
        let name = format!("defragd_webhook_alerts_total{{source=\"pushed\",result=\"{result}\"}}");
        let page = defragd.page("/metrics").await?;
        Ok::<_, Error>(number(&page, &name).unwrap_or(0.0))
    };
    let delivered = async |new: f64| {
        eventually(WAIT, format!("{new} alerts"), async || {
            match count("new").await {
                Ok(seen) if seen >= new => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
    };
    let mut first = alert(60, json!({ "instance": "a" }));
    am.post(&first).await?;
    delivered(1.0).await?;
    am.silence("instance=a", "ops", "upgrade").await?;
    am.post(&alert(60, json!({ "instance": "b" }))).await?;
    delivered(2.0).await?;
    first[0]["endsAt"] = json!(jiff::Timestamp::now().to_string());
    am.post(&first).await?;
    am.post(&alert(60, json!({ "instance": "c" }))).await?;
    delivered(3.0).await?;
    assert_eq!(count("resolved").await?, 0.0);
    Ok(())
}
