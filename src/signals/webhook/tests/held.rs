//! Reads and writes that take their time, and callers that do not wait for them.

use std::sync::atomic::AtomicBool;

use tokio::sync::Notify;

use super::*;
use crate::core::alert::Labels;

/// Keeps one source without versions, as a file does: a write goes on that nobody waits for any more.
#[derive(Debug, Default)]
struct Slow {
    kept: Arc<Mutex<Option<String>>>,
    /// The next of its kind begins and then waits to be let go.
    hold_load: AtomicBool,
    hold_save: AtomicBool,
    begun: Arc<Notify>,
    go: Arc<Notify>,
}

impl AlertStore for Slow {
    fn load<'a>(&'a self, _source: &'a str) -> BoxFuture<'a, Result<Kept, StoreError>> {
        async move {
            let content = self.kept.lock().unwrap().clone();
            if self.hold_load.swap(false, SeqCst) {
                self.begun.notify_one();
                self.go.notified().await;
            }
            Ok(Kept {
                content,
                version: None,
            })
        }
        .boxed()
    }

    fn save<'a>(
        &'a self,
        _source: &'a str,
        content: String,
        _version: Option<String>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let held = self.hold_save.swap(false, SeqCst);
        let (kept, begun, go) = (self.kept.clone(), self.begun.clone(), self.go.clone());
        let write = async move {
            if held {
                begun.notify_one();
                go.notified().await;
            }
            *kept.lock().unwrap() = Some(content);
        };
        async move {
            tokio::spawn(write).await.unwrap();
            Ok(())
        }
        .boxed()
    }
}

impl Slow {
    fn instances(&self) -> Vec<String> {
        let content = self.kept.lock().unwrap().clone();
        let kept = Kept {
            content,
            version: None,
        };
        let entries = kept.inbox().unwrap().entries.into_iter();
        entries
            .map(|entry| entry.labels["instance"].clone())
            .collect()
    }
}

fn firing(instance: &str) -> Vec<Delivered> {
    let labels = [("alertname", "x"), ("instance", instance)];
    let labels: Labels = labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    vec![Delivered {
        labels,
        firing: true,
        starts_at: now() - HOUR,
        ends_at: None,
    }]
}

/// All that can go on without what is held up goes on.
async fn everybody_else() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// T80: a sender that goes away while its delivery is being written undoes none that comes after it.
#[tokio::test]
async fn t80_a_delivery_waits_for_the_write_of_one_whose_sender_is_gone() {
    let store = Arc::new(Slow::default());
    let replica = Replica::new(Some(&store)).await;
    let deliver = |instance: &str| {
        let source = replica.sources.webhook("pushed").unwrap().clone();
        let alerts = firing(instance);
        tokio::spawn(async move { source.deliver(alerts, ()).await })
    };
    store.hold_save.store(true, SeqCst);
    let first = deliver("a");
    store.begun.notified().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let second = deliver("b");
    everybody_else().await;
    store.go.notify_one();
    second.await.unwrap().unwrap();
    everybody_else().await;
    assert_eq!(store.instances(), ["a", "b"]);
    assert_eq!(replica.read().await.value, Some(2.0));
    let stats = replica.sources.deliveries();
    assert_eq!(stats["pushed"].alerts["new"], 2);
}

/// T80: what was read before a delivery was stored is not known after it.
#[tokio::test]
async fn t80_an_older_read_does_not_hide_a_delivery() {
    let store = Arc::new(Slow::default());
    let replica = Arc::new(Replica::new(Some(&store)).await);
    store.hold_load.store(true, SeqCst);
    let reader = replica.clone();
    let reading = tokio::spawn(async move { reader.read().await });
    store.begun.notified().await;
    let source = replica.sources.webhook("pushed").unwrap().clone();
    let delivered = tokio::spawn(async move { source.deliver(firing("a"), ()).await });
    everybody_else().await;
    store.go.notify_one();
    assert_eq!(reading.await.unwrap().state, SignalState::NoData);
    delivered.await.unwrap().unwrap();
    assert_eq!(replica.read().await.state, SignalState::Firing);
}
