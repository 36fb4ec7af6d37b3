//! The registry in the store: one rising version, and every change with its author and note (REG-5, REG-16).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use snavio_model::id::Serial;
use snavio_model::registry::{
    Acl, BoundRoute, Change, Entry, EntryKey, LoggedChange, Route, Seal, SealingKey, Service, Signer as _,
    Tenant, verify,
};
use snavio_model::settle::{Intake, Outcome, Settlement};

use super::samples::{at, ids, intake, notify, pay, receive, settle};
use crate::{Store, StoreError};

fn tenant(contact: &str) -> Entry {
    let name = "acme".parse().expect("a tenant");
    Entry::Tenant(Tenant { name, contact: Some(contact.to_owned()), suspended: false })
}

fn service(name: &str) -> Entry {
    Entry::Service(Service::new(name.parse().expect("a service")))
}

fn change(version: i64, key: EntryKey, before: Option<Entry>, after: Option<Entry>) -> Change {
    Change {
        version,
        at: at(version),
        who: "operator".into(),
        why: format!("step {version}"),
        key,
        before,
        after,
    }
}

fn added(version: i64, entry: Entry) -> Change {
    change(version, entry.key(), None, Some(entry))
}

async fn apply(store: &dyn Store, changes: &[Change]) {
    store.apply(changes.to_vec()).await.expect("the registry takes the changes");
}

/// REG-5
pub async fn changes_are_kept_with_author_and_note(store: &Arc<dyn Store>) {
    assert_eq!(store.load().await.expect("the registry can be read"), (0, vec![]));
    let story = [
        added(1, tenant("first@example.com")),
        added(2, service("acme/bot")),
        change(3, tenant("").key(), Some(tenant("first@example.com")), Some(tenant("second@example.com"))),
        change(4, service("acme/bot").key(), Some(service("acme/bot")), None),
    ];
    apply(&**store, &story[..2]).await;
    apply(&**store, &story[2..]).await;
    assert_eq!(
        store.load().await.expect("the registry can be read"),
        (4, vec![tenant("second@example.com")])
    );
    // The store still knows that a removed entry was registered.
    for (key, is_known) in [(service("acme/bot").key(), true), (service("acme/bt").key(), false)] {
        assert_eq!(store.was_registered(&key).await.expect("it is asked"), is_known);
    }
    assert_eq!(store.version().await.expect("the version can be read"), 4);
    assert_eq!(store.changes_since(0, 10).await.expect("the changelog can be read"), story);
}

/// REG-16: a change applies only to the version that it is based on.
pub async fn change_of_an_old_version_is_refused(store: &Arc<dyn Store>) {
    apply(&**store, &[added(1, tenant("x"))]).await;
    for version in [1, 3] {
        let refused = store.apply(vec![added(version, service("acme/bot"))]).await;
        assert!(matches!(refused, Err(StoreError::Stale { based_on }) if based_on == version - 1));
    }
    assert_eq!(store.load().await.expect("the registry can be read"), (1, vec![tenant("x")]));
    assert_eq!(store.changes_since(0, 10).await.expect("the changelog can be read").len(), 1);
}

/// REG-16
pub async fn racing_changes_have_one_winner(store: &Arc<dyn Store>) {
    let racing = (0..8).map(|n| {
        let store = Arc::clone(store);
        tokio::spawn(async move { store.apply(vec![added(1, service(&format!("acme/s{n}")))]).await })
    });
    let mut landed = 0;
    for ended in racing.collect::<Vec<_>>() {
        match ended.await.expect("no task panics") {
            Ok(()) => landed += 1,
            Err(error) => assert!(matches!(error, StoreError::Stale { based_on: 0 }), "{error:?}"),
        }
    }
    let (version, entries) = store.load().await.expect("the registry can be read");
    assert_eq!((landed, version, entries.len()), (1, 1, 1));
}

/// REG-16
pub async fn changes_since_a_version_are_paged(store: &Arc<dyn Store>) {
    let story: Vec<_> = (1..=7).map(|version| added(version, service(&format!("acme/s{version}")))).collect();
    apply(&**store, &story).await;
    let mut read = Vec::new();
    loop {
        let since = read.last().map_or(0, |change: &Change| change.version);
        let page = store.changes_since(since, 3).await.expect("the changelog can be read");
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 3);
        read.extend(page);
    }
    assert_eq!(read, story);
}

/// A message by a route with `acl: always`, permitted by this version of the registry.
fn asking(id: &str, registry_version: i64) -> Intake {
    let always = Arc::new(BoundRoute::new(Route { acl: Acl::Always, ..pay().route.clone() }));
    let mut intake = intake(id, &always, at(0));
    intake.message.registry_version = registry_version;
    intake
}

/// REG-15
pub async fn message_is_written_only_at_its_registry_version(store: &Arc<dyn Store>) {
    let outcome = async |batch: Vec<Intake>| -> Vec<bool> {
        let settled = settle(&**store, batch, at(0)).await;
        settled.iter().map(|settlement| matches!(settlement.outcomes[..], [Outcome::Queued { .. }])).collect()
    };
    assert_eq!(outcome(vec![asking("a", 0)]).await, [true]);
    apply(&**store, &[added(1, tenant("x"))]).await;
    let batch = vec![asking("b", 0), intake("c", &notify(), at(0)), asking("d", 1)];
    assert_eq!(outcome(batch).await, [false, true, true], "each for itself");
    apply(&**store, &[added(2, service("acme/bot"))]).await;
    let batch = vec![asking("e", 1), intake("f", &notify(), at(0))];
    assert_eq!(outcome(batch).await, [false, true]);
    assert_eq!(outcome(vec![asking("e", 1)]).await, [false]);
    assert_eq!(outcome(vec![asking("e", 2)]).await, [true], "the refused message left no claim");
    assert_eq!(ids(&receive(&**store, "pay", 30, at(0)).await), ["a", "d", "e"]);
}

/// REG-15: once a change is confirmed, no message is written that was permitted by an older version.
pub async fn no_change_comes_between_a_check_and_its_commit(store: &Arc<dyn Store>) {
    let written_so_far = Arc::new(AtomicUsize::new(0));
    let changing = tokio::spawn({
        let (store, written_so_far) = (Arc::clone(store), Arc::clone(&written_so_far));
        async move {
            let mut seen = Vec::new();
            for version in 1..=25 {
                // The change comes while the store writes messages of the version before.
                while written_so_far.load(Ordering::Relaxed) < seen.len() {
                    tokio::task::yield_now().await;
                }
                apply(&*store, &[added(version, service(&format!("acme/s{version}")))]).await;
                // This reads everything written so far, newest first. A reader that pages by number may not
                // see the newest for a moment.
                seen.push((version, written(&*store).await));
            }
            seen
        }
    });
    let mut sent = 0;
    while !changing.is_finished() {
        let version = store.version().await.expect("the store answers");
        let batch = (0..4).map(|n| asking(&format!("{sent}-{n}"), version)).collect();
        let settled = settle(&**store, batch, at(0)).await;
        let is_written =
            |settlement: &Settlement| matches!(settlement.outcomes[..], [Outcome::Queued { .. }]);
        if settled.iter().any(is_written) {
            written_so_far.fetch_add(1, Ordering::Relaxed);
        }
        sent += 1;
    }
    let seen = changing.await.expect("no task panics");
    let all = written(&**store).await;
    assert!(!all.is_empty(), "something was sent meanwhile");
    for (version, before) in seen {
        let late = all.iter().find(|(id, by)| **by < version && !before.contains_key(*id));
        assert!(late.is_none(), "written after version {version} was made: {late:?}");
    }
}

/// Returns the ids of all messages of acme, each with the version that permitted it.
async fn written(store: &dyn Store) -> HashMap<String, i64> {
    let (mut all, mut before) = (HashMap::new(), Serial(i64::MAX));
    loop {
        let page = store.uses("acme", before, 1000).await.expect("the log is read");
        let Some(oldest) = page.last() else { return all };
        before = oldest.number;
        all.extend(page.into_iter().map(|dispatch| (dispatch.id.to_string(), dispatch.registry_version)));
    }
}

fn signer() -> SealingKey {
    SealingKey::from_bytes(&[7; 32])
}

/// Makes the next seal over the changes in the store.
async fn next_seal(store: &dyn Store, changes: usize) -> Seal {
    let last = store.last_seal().await.expect("the last seal can be read");
    let from = last.as_ref().map_or(0, |seal| seal.last_version);
    let logged = store.logged_since(from, changes).await.expect("the changelog can be read");
    let evidence: Vec<_> = logged.iter().map(LoggedChange::evidence).collect();
    Seal::next(last.as_ref(), &evidence, at(from), &signer()).expect("nothing is missing")
}

/// REG-5
pub async fn changelog_and_seals_are_kept_as_written(store: &Arc<dyn Store>) {
    let odd = "na\u{ef}ve \u{2603} \u{1f980} \"quoted\" \\ e\u{301}";
    let mut story: Vec<_> =
        (2..=7).map(|version| added(version, service(&format!("acme/s{version}")))).collect();
    story.insert(0, Change { who: odd.into(), why: odd.into(), ..added(1, tenant(odd)) });
    apply(&**store, &story).await;
    assert_eq!(store.last_seal().await.expect("it can be asked for"), None);
    let mut seals = Vec::new();
    for changes in [3, 1, 2] {
        let seal = next_seal(&**store, changes).await;
        store.seal(seal.clone()).await.expect("the seal is taken");
        seals.push(seal);
    }
    assert_eq!(store.seals(0, 10).await.expect("the chain can be read"), seals);
    assert_eq!(store.seals(1, 1).await.expect("the chain can be read"), seals[1..2]);
    assert_eq!(store.last_seal().await.expect("it can be asked for"), seals.pop());
    let written: Vec<_> =
        story.iter().map(|change| LoggedChange::of(change).expect("it can be written")).collect();
    assert_eq!(store.logged_since(0, 10).await.expect("the changelog can be read"), written);
    let evidence: Vec<_> = written.iter().map(LoggedChange::evidence).collect();
    let chain = store.seals(0, 10).await.expect("the chain can be read");
    let sound = verify(&chain, &evidence, 7, &[signer().public_key()], None).expect("the chain holds");
    assert_eq!(sound.unsealed(), Some((7, 7)));
}

/// REG-5
pub async fn seal_follows_the_last_or_is_refused(store: &Arc<dyn Store>) {
    let story: Vec<_> = (1..=9).map(|version| added(version, service(&format!("acme/s{version}")))).collect();
    apply(&**store, &story).await;
    let first = next_seal(&**store, 3).await;
    for wrong in [
        Seal { number: 2, ..first.clone() },
        Seal { number: 0, ..first.clone() },
        Seal { first_version: 2, ..first.clone() },
    ] {
        let refused = store.seal(wrong).await;
        assert!(matches!(refused, Err(StoreError::Stale { .. })), "{refused:?}");
    }
    store.seal(first.clone()).await.expect("the seal is taken");
    let second = next_seal(&**store, 3).await;
    for wrong in [
        first.clone(),
        Seal { number: 3, ..second.clone() },
        Seal { first_version: 5, ..second.clone() },
        Seal { first_version: 1, ..second.clone() },
    ] {
        let refused = store.seal(wrong).await;
        assert!(matches!(refused, Err(StoreError::Stale { .. })), "{refused:?}");
    }
    assert_eq!(store.seals(0, 10).await.expect("the chain can be read"), [first]);
}

/// REG-5, ENG-7: two sealers never make two chains.
pub async fn racing_seals_have_one_winner(store: &Arc<dyn Store>) {
    apply(&**store, &[added(1, tenant("x"))]).await;
    let seal = next_seal(&**store, 1).await;
    let racing = (0..8).map(|n| {
        let (store, seal) = (Arc::clone(store), Seal { at: at(n), ..seal.clone() });
        tokio::spawn(async move { store.seal(seal).await })
    });
    let mut landed = 0;
    for ended in racing.collect::<Vec<_>>() {
        match ended.await.expect("no task panics") {
            Ok(()) => landed += 1,
            Err(error) => assert!(matches!(error, StoreError::Stale { based_on: 0 }), "{error:?}"),
        }
    }
    assert_eq!((landed, store.seals(0, 10).await.expect("the chain can be read").len()), (1, 1));
}
