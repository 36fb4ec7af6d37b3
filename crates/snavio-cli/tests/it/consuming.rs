//! The SDK's `Receiver` against a real node, with the consumer's claims in its own SQLite database (CLM-10).

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use snavio_sdk::once::{BoxError, Once, OnceError};
use snavio_sdk::sqlite::rusqlite::{Connection, Transaction};
use snavio_sdk::sqlite::{Claims, Database};
use snavio_sdk::{ApiError, Client, Delivery, Receiver};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::node::new_id;
use crate::patience::eventually;
use crate::processing;
use crate::queue::Scene;

/// A consumer's database, with its claims. Each effect is a row.
#[derive(Clone)]
pub(crate) struct Books {
    claims: Claims,
    database: Database,
}

impl Books {
    pub(crate) async fn open(path: &Path) -> Self {
        let (claims, database) = (Claims::of("bot".parse().unwrap()), Database::open(path).unwrap());
        let books = Self { claims: claims.clone(), database };
        books
            .query(move |connection| {
                claims.create_table(connection).unwrap();
                connection
                    .execute_batch("CREATE TABLE IF NOT EXISTS effect (message TEXT NOT NULL)")
                    .unwrap();
            })
            .await;
        books
    }

    /// Performs the effect of a delivery once. `work` runs within its transaction and may fail.
    pub(crate) async fn once(
        &self,
        delivery: Delivery,
        work: impl FnOnce() -> Result<(), BoxError> + Send + 'static,
    ) -> Result<Once, OnceError> {
        let result = format!("done for {}", id_of(&delivery));
        self.once_with(delivery, move || work().map(|()| Some(result))).await
    }

    /// Performs the effect of a delivery once, with this result.
    async fn once_with(
        &self,
        delivery: Delivery,
        result: impl FnOnce() -> Result<Option<String>, BoxError> + Send + 'static,
    ) -> Result<Once, OnceError> {
        let claims = self.claims.clone();
        let effect = move |transaction: &Transaction<'_>, id: &str| {
            transaction.execute("INSERT INTO effect (message) VALUES (?1)", [id])?;
            result()
        };
        let work = move |connection: &mut Connection| {
            let id = id_of(&delivery);
            claims.once(connection, &delivery, |transaction| effect(transaction, &id))
        };
        self.database.run(work).await
    }

    /// The message id of each effect, sorted. An id appears once for each effect of its message.
    pub(crate) async fn effects(&self) -> Vec<String> {
        self.query(|connection| {
            let mut select = connection.prepare("SELECT message FROM effect ORDER BY 1").unwrap();
            let rows = select.query_map([], |row| row.get(0)).unwrap();
            rows.collect::<Result<_, _>>().unwrap()
        })
        .await
    }

    async fn query<T: Send + 'static>(&self, query: impl FnOnce(&mut Connection) -> T + Send + 'static) -> T {
        self.database.run(move |connection| Ok(query(connection))).await.unwrap()
    }
}

pub(crate) fn id_of(delivery: &Delivery) -> String {
    delivery.message.id().unwrap().to_owned()
}

/// A receiver that runs on the notify queue.
struct RunningReceiver {
    stop: oneshot::Sender<()>,
    run: JoinHandle<Result<(), ApiError>>,
}

impl RunningReceiver {
    fn start<F, E>(
        scene: &Scene,
        change: impl FnOnce(Receiver) -> Receiver,
        work: impl Fn(Delivery) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Once, E>> + Send + 'static,
        E: Into<BoxError> + Send + 'static,
    {
        let client: Arc<Client> = Arc::new(scene.node.client(&scene.cast.bot));
        let receiver = change(Receiver::new(client, "notify-inbox".parse().unwrap()));
        let (stop, stopped) = oneshot::channel();
        let run = async move { receiver.run(work, async { stopped.await.unwrap_or(()) }).await };
        Self { stop, run: tokio::spawn(run) }
    }

    /// Stops the receiver, and waits for its end.
    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.run.await.unwrap().unwrap();
    }
}

/// Waits until the queue has no delivery, neither visible nor leased nor delayed.
async fn wait_until_empty(scene: &Scene) {
    eventually("an empty queue", async || {
        let attributes = scene.bot.attributes().await;
        let is_empty =
            ["depth", "in_flight", "delayed"].iter().all(|attribute| attributes[attribute] == json!(0));
        is_empty.then_some(())
    })
    .await;
}

/// CLM-10
#[tokio::test]
async fn failed_or_panicking_effect_is_rolled_back_and_released() {
    let scene = Scene::set().await;
    let books = Books::open(&scene.node.folder().join("books.db")).await;
    let id = scene.send("notify").await;
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let work = {
        let (books, attempts) = (books.clone(), Arc::clone(&attempts));
        move |delivery: Delivery| {
            let (books, attempt) = (books.clone(), delivery.attempt);
            attempts.lock().unwrap().push(attempt);
            async move {
                books
                    .once(delivery, move || match attempt {
                        1 => panic!("the first attempt panics"),
                        2 => Err("the second attempt fails".into()),
                        _ => Ok(()),
                    })
                    .await
            }
        }
    };
    let receiver = RunningReceiver::start(&scene, |receiver| receiver, work);
    eventually("the effect", async || (!books.effects().await.is_empty()).then_some(())).await;
    receiver.stop().await;
    assert_eq!(*attempts.lock().unwrap(), [1, 2, 3]);
    assert_eq!(books.effects().await, [id]);
    wait_until_empty(&scene).await;
}

/// CLM-10
#[tokio::test]
async fn committed_delivery_is_acknowledged_without_a_second_effect() {
    let scene = Scene::set().await;
    let books = Books::open(&scene.node.folder().join("books.db")).await;
    let id = scene.send("notify").await;
    // The first consumer dies after its commit and before its acknowledgement, so the lease ends.
    let first = scene.bot.receive_one(1).await;
    assert!(matches!(books.once(first, || Ok(())).await, Ok(Once::Done(_))));

    let (sender, second_result) = oneshot::channel();
    let sender = Arc::new(Mutex::new(Some(sender)));
    let work = {
        let books = books.clone();
        move |delivery: Delivery| {
            let (books, sender) = (books.clone(), sender.lock().unwrap().take().unwrap());
            async move {
                let once = books.once(delivery, || panic!("the effect runs a second time")).await;
                sender.send(once.as_ref().map(Once::clone).ok()).unwrap();
                once
            }
        }
    };
    let receiver = RunningReceiver::start(&scene, |receiver| receiver, work);
    assert_eq!(second_result.await.unwrap(), Some(Once::DoneBefore(Some(format!("done for {id}")))));
    receiver.stop().await;
    assert_eq!(books.effects().await, [id]);
    wait_until_empty(&scene).await;
}

/// CLM-10
#[tokio::test]
async fn lease_is_extended_during_the_effect_and_stop_waits() {
    let scene = Scene::set().await;
    let books = Books::open(&scene.node.folder().join("books.db")).await;
    let first = scene.send("notify").await;
    let (begun, resume) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let work = {
        let (books, begun, resume) = (books.clone(), Arc::clone(&begun), Arc::clone(&resume));
        move |delivery: Delivery| {
            let (books, begun, resume) = (books.clone(), Arc::clone(&begun), Arc::clone(&resume));
            async move {
                begun.notify_one();
                resume.notified().await;
                books.once(delivery, || Ok(())).await
            }
        }
    };
    let receiver = RunningReceiver::start(
        &scene,
        |receiver| receiver.at_once(1).visibility(Duration::from_secs(3)),
        work,
    );
    begun.notified().await;
    assert!(scene.bot.wait(30, 7).await.is_empty(), "hidden for longer than twice its first lease");

    let second = scene.send("notify").await;
    let stopping = tokio::spawn(receiver.stop());
    resume.notify_one();
    stopping.await.unwrap();
    assert_eq!(books.effects().await, [first], "the running effect is finished");
    let left = scene.bot.receive_one(30).await;
    assert_eq!((id_of(&left), left.attempt), (second, 1), "a stopping receiver leases nothing more");
    let attributes = scene.bot.attributes().await;
    assert_eq!((&attributes["depth"], &attributes["in_flight"]), (&json!(0), &json!(1)));
}

/// CLM-10
#[tokio::test]
async fn receiver_respects_its_concurrency_limit() {
    let scene = Scene::set().await;
    let mut sent = Vec::new();
    for _ in 0..20 {
        sent.push(scene.send("notify").await);
    }
    let books = Books::open(&scene.node.folder().join("books.db")).await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let work = {
        let (books, now, most) = (books.clone(), Arc::clone(&now), Arc::clone(&most));
        move |delivery: Delivery| {
            let (books, now, most) = (books.clone(), Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(20)).await;
                let once = books.once(delivery, || Ok(())).await;
                now.fetch_sub(1, Ordering::SeqCst);
                once
            }
        }
    };
    let receiver = RunningReceiver::start(&scene, |receiver| receiver.at_once(3), work);
    wait_until_empty(&scene).await;
    receiver.stop().await;
    sent.sort();
    assert_eq!(books.effects().await, sent);
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

/// CLM-10
#[tokio::test]
async fn known_id_of_another_service_is_not_done() {
    let scene = Scene::set().await;
    let books = Books::open(&scene.node.folder().join("books.db")).await;
    let id = scene.send("notify").await;
    let delivery = scene.bot.receive_one(30).await;
    let mut other: Value =
        serde_json::from_str(delivery.message.as_command().unwrap().command.get()).unwrap();
    other["source"] = json!("acme/shop");
    let mut first = delivery.clone();
    let message = json!({ "metadata": { "id": id }, "command": other });
    first.message = serde_json::from_value(message).unwrap();
    assert!(matches!(books.once(first, || Ok(())).await, Ok(Once::Done(_))));
    let conflict = books.once(delivery, || Ok(())).await;
    let error = conflict.unwrap_err().to_string();
    assert_eq!(
        error,
        "the message's id was used by acme/shop before: this one, by acme/billing, is another message"
    );
    assert_eq!(books.effects().await, [id]);
}

/// CLM-9, CLM-10: the loop reports done work as complete even if its result is not a valid reference.
#[tokio::test]
async fn done_work_completes_without_a_valid_reference() {
    let books = processing::Books::set(json!({ "kind": "tracked" })).await;
    let own = Books::open(&books.node.folder().join("books.db")).await;
    let results = [("posted to 12\n00", None), ("", None), ("JE-7", Some("JE-7"))];
    let ids: Vec<_> = results.iter().map(|_| new_id()).collect();
    for id in &ids {
        assert_eq!(books.send(id, 10).await.status, 202);
    }
    let work = {
        let (own, ids) = (own.clone(), ids.clone());
        move |delivery: Delivery| {
            let index =
                ids.iter().position(|id| *id == id_of(&delivery)).expect("the delivery has one of the ids");
            let own = own.clone();
            async move { own.once_with(delivery, move || Ok(Some(results[index].0.to_owned()))).await }
        }
    };
    let receiver = Receiver::new(Arc::new(books.worker()), "paid".parse().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let run = tokio::spawn(async move { receiver.run(work, async { stopped.await.unwrap_or(()) }).await });
    for (id, (_, reference)) in ids.iter().zip(results) {
        let claim = eventually("the claim is complete", async || {
            let found = books.look_up(id).await;
            (found["outcome"] == "completed").then(|| found["claims"][0].clone())
        })
        .await;
        assert_eq!(
            (claim["glPostingReference"].as_str(), &claim["attempts"]),
            (reference, &json!(1)),
            "{claim}"
        );
    }
    stop.send(()).unwrap();
    run.await.unwrap().unwrap();
    assert_eq!(own.effects().await.len(), results.len());
}
