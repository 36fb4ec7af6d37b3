//! The tenants that get a record of a conflict: all that must resolve it, for any sender.

use super::*;

/// A `ledger` destination of this service.
fn ledger(target: &str, name: &str) -> Arc<BoundRoute> {
    let target = target.parse().unwrap();
    Arc::new(BoundRoute::new(Route { target, ..route(name, ClaimPolicy::ledger()).route.clone() }))
}

/// CLM-8: each tenant that must resolve the conflict has its own record and dead letter; the message is
/// stored once.
#[test]
fn event_conflict_is_recorded_for_each_comparing_tenant() {
    let mut backend = Backend::new();
    let (yota, zeta) = (ledger("yota/ledger", "post"), ledger("zeta/ledger", "post"));
    let more = [notify(), yota, ledger("yota/audit", "book"), Arc::clone(&zeta)];
    let sent = |what, to: &[Arc<BoundRoute>]| saying(what, intake("acme/billing", 1, to));
    assert_eq!(backend.outcomes(&[sent(1, &more)], at(0)), [["queued"; 4]]);
    // Only zeta; all; all, in one batch with another content; all again.
    for batch in [
        vec![sent(2, std::slice::from_ref(&zeta))],
        vec![sent(2, &more), sent(3, &more), sent(3, &more)],
        vec![sent(3, &more)],
    ] {
        let words = backend.outcomes(&batch, at(1)).concat();
        assert!(words.iter().all(|word| *word == "conflict"), "{words:?}");
    }
    let records = backend.conflicts.iter().map(|conflict| {
        (conflict.owner.as_str().to_owned(), conflict.hash.0[0], conflict.place, conflict.count)
    });
    let records: Vec<_> = records.collect();
    let expected = [("zeta", 2, 1, 2), ("yota", 2, 2, 1), ("yota", 3, 3, 3), ("zeta", 3, 4, 3)];
    assert_eq!(records, expected.map(|(owner, hash, place, count)| (owner.to_owned(), hash, place, count)));
    let messages: Vec<_> = backend.letters.iter().map(|letter| letter.delivery.message).collect();
    let [zetas, yotas, first, _] = [0, 1, 2, 3].map(|at: usize| backend.conflicts[at].id);
    assert_eq!(messages, [zetas, yotas, first, first], "one stored message for all tenants");
    assert_eq!(backend.messages[1..], [zetas, yotas, first]);
    for (conflict, letter) in backend.conflicts.iter().zip(&backend.letters) {
        assert_eq!(letter.delivery.queue.tenant(), conflict.owner.as_str());
        assert_eq!(letter.conflict(), Some(conflict.id));
    }
    let settled = backend.settle(&[sent(4, &more)], at(2));
    assert_eq!(settled[0].outcomes[0], Outcome::Conflict { conflict: backend.conflicts[4].id, is_new: true });
}

/// CLM-8, ENG-1: the numbers reserved for a batch suffice for its judgement.
#[test]
fn intake_takes_at_most_its_stated_numbers() {
    let tenants: Vec<_> = (0..9).map(|at| ledger(&format!("t-{at}x/ledger"), "post")).collect();
    for count in 1..=tenants.len() {
        let mut backend = Backend::new();
        for what in [1, 2] {
            let (before, sent) = (backend.last, saying(what, intake("acme/billing", 1, &tenants[..count])));
            backend.settle(std::slice::from_ref(&sent), at(0));
            let taken = usize::try_from(backend.last.0 - before.0).unwrap();
            assert!(taken <= sent.numbers_max(), "{count} tenants, {what}: {taken}");
        }
        assert_eq!(backend.conflicts.len(), count);
    }
}

/// CLM-1, CLM-8: other content from another service of the tenant is a recorded conflict; the same content is
/// refused as taken.
#[test]
fn conflict_with_another_service_is_recorded() {
    let mut backend = Backend::new();
    let sent = |source, what| saying(what, intake(source, 1, &[post()]));
    let batch = [sent("acme/billing", 1), sent("acme/shop", 2), sent("acme/shop", 1), sent("acme/shop", 2)];
    assert_eq!(backend.outcomes(&batch, at(0)).concat(), ["queued", "conflict", "taken", "conflict"]);
    let records: Vec<_> =
        backend.conflicts.iter().map(|conflict| (conflict.source.as_str(), conflict.count)).collect();
    assert_eq!((records, backend.letters.len()), (vec![("acme/shop", 2)], 1));
    assert_eq!(backend.outcomes(&[sent("acme/billing", 1)], at(1)).concat(), ["duplicate"]);
}
