use std::sync::Arc;

use snavio_model::claim::recent::{Fingerprint, Mark};
use snavio_model::ordering::Mode;
use snavio_model::registry::{Sealed, Unseal};
use snavio_model::signature::signing::Secret;
use snavio_model::time::Timestamp;
use snavio_store::conformance::ordering::{numbered, ordered};
use snavio_store::engine::sqlite::{EmbeddedStore, Options};

use super::*;
use crate::Settings;
use crate::commit::committer::Failure;
use crate::pipeline::memory::Reservation;

const NOON: Timestamp = Timestamp(1_800_000_000_000);

struct NoSecrets;

impl Unseal for NoSecrets {
    fn unseal(&self, _: &Sealed) -> Option<Secret> {
        None
    }
}

async fn gate(folder: &tempfile::TempDir) -> Arc<Gate> {
    let store = Arc::new(EmbeddedStore::open(&Options::new(folder.path())).unwrap());
    Gate::start(Settings::default(), store, Arc::new(NOON), Arc::new(NoSecrets)).await.unwrap()
}

fn fingerprints(fingerprint: Fingerprint) -> Fingerprints {
    Fingerprints { each: vec![Some(Mark { fingerprint, is_claimed: false })], all: fingerprint }
}

fn reserve(gate: &Gate, fingerprint: Fingerprint) -> Reservation {
    match gate.memory.enter(fingerprints(fingerprint)) {
        Entry::New { in_flight: InFlight::Reserved(reservation), .. } => reservation,
        _ => panic!("the message is reserved already"),
    }
}

/// A message of an ordered entity.
fn message(entity: &str, number: i64, fingerprint: Fingerprint) -> Result<PermittedMessage, Refused> {
    let route = ordered("strict", Mode::Strict, |_| {});
    let intake = numbered(&format!("{entity}-{number}"), entity, number, std::slice::from_ref(&route), NOON);
    let answer = Answer::known(&intake.message, std::slice::from_ref(&route));
    Ok(PermittedMessage {
        answer,
        intake,
        fingerprints: fingerprints(fingerprint),
        escalation: None,
        skew: None,
    })
}

/// Waits until a request has dropped `held`.
async fn wait_until_dropped(held: &Arc<()>) {
    let dropped = async {
        while Arc::strong_count(held) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), dropped).await.unwrap();
}

/// PIP-2, PIP-9, ORD-3
#[tokio::test(flavor = "multi_thread")]
async fn waiting_copy_keeps_its_order_and_no_turn() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(&folder).await;
    let first = reserve(&gate, 1);
    let messages = vec![message("e", 1, 1), message("f", 1, 2), message("e", 2, 3)];
    let held = Arc::new(());
    let (settling, turn) = (Arc::clone(&gate), Arc::clone(&held));
    let settled = tokio::spawn(async move { settling.settle_all(messages, Box::new(turn)).await });
    wait_until_dropped(&held).await;
    assert!(!settled.is_finished(), "the first of a copy is in flight");
    drop(first);
    for ended in settled.await.unwrap() {
        assert!(matches!(ended, Ok(answer) if answer.taken_by().is_some()));
    }
    gate.stop().await;
}

/// PIP-2, PIP-5, MSG-12
#[tokio::test(flavor = "multi_thread")]
async fn copies_of_a_failed_first_fail_alike() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(&folder).await;
    let failures = [
        (Failure::Lost, true, Reason::Unavailable),
        (Failure::Store, false, Reason::Unavailable),
        (Failure::Full, false, Reason::Overloaded),
    ];
    for (failure, in_doubt, reason) in failures {
        let first = reserve(&gate, 1);
        let messages = (0..10).map(|_| message("e", 1, 1)).collect();
        let held = Arc::new(());
        let (settling, turn) = (Arc::clone(&gate), Arc::clone(&held));
        let settled = tokio::spawn(async move { settling.settle_all(messages, Box::new(turn)).await });
        wait_until_dropped(&held).await;
        first.refuse(&Err(failure));
        for ended in settled.await.unwrap() {
            let refusal = ended.unwrap_err().refusal;
            assert_eq!((refusal.in_doubt, refusal.reason), (in_doubt, reason), "{failure:?}");
        }
    }
    let later = gate.settle_all(vec![message("e", 1, 1)], Box::new(())).await;
    assert!(later[0].is_ok(), "a later message is judged");
    gate.stop().await;
}

/// PIP-2, PIP-4
#[tokio::test(flavor = "multi_thread")]
async fn copies_of_refused_messages_get_the_last_refusal() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(&folder).await;
    assert!(gate.settle_all(vec![message("e", 9, 9)], Box::new(())).await[0].is_ok());
    let messages = (0..50).map(|_| message("e", 1, 1)).collect();
    for ended in gate.settle_all(messages, Box::new(())).await {
        assert_eq!(ended.unwrap_err().refusal.reason, Reason::OutOfOrder);
    }
    gate.stop().await;
}
