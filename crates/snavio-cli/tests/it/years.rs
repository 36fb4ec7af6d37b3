//! Claims of postings that are years old: with the archive available the gateway answers them like new ones,
//! and without it only answers with an archived body are refused until it is back (CLM-5, CLM-8, CLM-15 to
//! CLM-17). The gateway can explain the decision about them (PIP-11).
//!
//! The test makes old postings in the store of a stopped node: it settles a posting that the node accepted
//! and answered once more, under another id and with an old time. Everything else is real, such as the
//! archiver that moves the posting.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use snavio_model::claim::IdKey;
use snavio_model::delivery::Receipt;
use snavio_model::delivery::processing::{Ending, Retry};
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::Path as Decided;
use snavio_model::name::{QueueKey, QueueName, TenantName};
use snavio_model::registry::{BoundRoute, Entry};
use snavio_model::settle::Intake;
use snavio_model::time::Timestamp;
use snavio_store::{OnRecord, Report, Store};

use crate::node::{Launch, new_id, seconds_from_now};
use crate::patience::eventually;
use crate::processing::{Books, PAID, http};
use crate::processor::Processor;

const DAY: i64 = 86_400;

/// A posting of some days ago, made from one that the node processed.
struct Posting {
    /// The id of the posting that the node processed.
    model: String,
    /// The id of the old posting.
    id: String,
    days_ago: i64,
}

/// Settles an old posting with its time, and completes it with the response of its model.
async fn post_in_the_past(store: &dyn Store, posting: &Posting) {
    let posted_at = Timestamp::parse(&seconds_from_now(-posting.days_ago * DAY)).unwrap();
    let tenant = TenantName::new("acme").unwrap();
    let model = IdKey { id: MessageId::stored(&posting.model), tenant };
    let claim = store.claims_of(&model, posted_at).await.unwrap().remove(0).claim;
    let logged = store.messages("acme", Serial(claim.message.0 - 1), 1).await.unwrap().remove(0);
    let progress = claim.progress.expect("its work is followed");
    let answer = store.answer(progress.delivery).await.unwrap();
    let mut message = logged.message;
    (message.id, message.received_at) = (MessageId::stored(&posting.id), posted_at);
    let entries = store.load().await.unwrap().1;
    let route = entries.into_iter().find_map(|entry| match entry {
        Entry::Subscription(route) => Some(Arc::new(BoundRoute::new(route))),
        _ => None,
    });
    let (good_until, destinations) = (Timestamp(i64::MAX), vec![route.expect("it is subscribed to")]);
    let (places, known) = (Vec::new(), Vec::new());
    let intake = Intake { message, path: Decided::Slow, destinations, places, known, good_until };
    let (reply, settled) = tokio::sync::oneshot::channel();
    store.settle(vec![intake], posted_at, Box::new(|result| drop(reply.send(result))));
    settled.await.unwrap().unwrap();
    let queue = QueueKey::new("acme", &QueueName::new("paid").unwrap());
    let work = store.receive(&queue, 1, Duration::from_secs(30), posted_at).await.unwrap().remove(0);
    let report = Report {
        receipt: Receipt { delivery_id: work.delivery_id, fence: work.fence },
        ending: Ending::Completed { answer, reference: progress.reference, note: None },
        retry: Retry::At(posted_at),
        kept_at: vec![PAID.into()],
        on_record: OnRecord::default(),
    };
    store.finish(&queue, vec![report], "the gateway", posted_at.plus(Duration::from_secs(1))).await.unwrap();
}

/// CLM-5, CLM-8, CLM-16, CLM-17, PIP-11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_posting_is_answered_and_only_its_body_needs_archive() {
    let processor = Processor::start().await;
    let folder = tempfile::tempdir().unwrap();
    let (archive, away) = (folder.path().join("archive"), folder.path().join("away"));
    let file_url = |path: &Path| format!("file://{}", path.display());
    let launch =
        Launch::default().set("OUTGOING_ALLOWED", "127.0.0.0/8").set("ARCHIVE_URL", file_url(&archive));
    let mut books = Books::launched(&launch, http(&processor), json!({})).await;
    let mut postings = Vec::new();
    for days_ago in [401, 2520] {
        let (model, id) = (new_id(), new_id());
        assert_eq!(books.send(&model, 10).await.word(), (201, "COMPLETED"));
        postings.push(Posting { model, id, days_ago });
    }
    books.node.stop();
    let store = books.node.engine().open(books.node.folder()).await;
    for posting in &postings {
        post_in_the_past(&*store, posting).await;
    }
    store.close().await;
    drop(store);
    books.restart(&launch).await;

    for Posting { id, .. } in &postings {
        let archived = eventually("the posting is archived", async || {
            let found = books.look_up(id).await;
            found["claims"][0]["archivedAt"].is_string().then_some(found)
        });
        let found = archived.await;
        assert_eq!(found["outcome"], "completed", "{found}");
    }
    for is_up in [true, false, true] {
        if is_up && away.exists() {
            std::fs::rename(&away, &archive).unwrap();
        }
        if !is_up {
            // The restart empties the node's cache of the archive.
            books.node.stop();
            std::fs::rename(&archive, &away).unwrap();
            books.restart(&launch).await;
        }
        for Posting { model, id, days_ago } in &postings {
            let first = books.send(model, 10).await;
            assert_eq!(
                first.word(),
                (200, "COMPLETED"),
                "a claim that is not archived does not wait for the archive"
            );
            let replay = books.send(id, 10).await;
            let (status, explained) =
                books.ask(Method::GET, &format!("/v1/messages/{id}/explain"), None).await;
            let steps = explained["steps"].as_array().unwrap();
            let routed = |step: &&serde_json::Value| {
                step["decision"].as_str().unwrap().starts_with(&format!("granted, and routed to {PAID}"))
            };
            let routed = steps.iter().find(routed).unwrap_or_else(|| panic!("{status}: {explained}"));
            let is_whole = routed["basis"]["correlation_id"].is_string();
            let says = routed["decision"].as_str().unwrap();
            assert_eq!((is_whole, says.contains("cannot be read now")), (is_up, !is_up), "{routed}");
            if is_up {
                assert_eq!(replay.word(), (200, "COMPLETED"), "{days_ago} days: {}", replay.text);
                assert!(replay.replayed, "{}", replay.text);
                assert_eq!(replay.response(), first.response(), "byte for byte");
                assert_eq!(replay.document["reference"], first.document["reference"]);
            } else {
                assert_eq!(replay.word(), (503, "unavailable"), "{days_ago} days: {}", replay.text);
                assert!(replay.retry_after.is_some(), "{}", replay.text);
                let (status, claim) = books.ask(Method::GET, &format!("/v1/claims/{id}"), None).await;
                let claim = &claim["claims"][0];
                assert_eq!((status, &claim["glPostingReference"]), (200, &first.document["reference"]));
            }
            assert_eq!(books.send(id, 11).await.word(), (409, "conflict"), "up: {is_up}");
        }
        let (new, asked) = (new_id(), processor.asked().len());
        assert_eq!(books.send(&new, 12).await.word(), (201, "COMPLETED"), "up: {is_up}");
        assert_eq!(processor.asked().len(), asked + 1, "only the new event is posted");
    }
}
