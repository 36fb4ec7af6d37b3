use super::*;
use crate::record::lease::Held;

const VISIBILITY: Duration = Duration::from_secs(30);

fn key() -> QueueKey {
    QueueKey::stored("acme/in")
}

fn at(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1000)
}

fn delivery(id: i64) -> Delivery {
    Delivery {
        id: Serial(id),
        message: Serial(id - 1),
        destination: "acme/bot:notify".into(),
        queue: key(),
        dead_letter_queue: QueueKey::stored("acme/dead"),
        queued_at: at(0),
        receives: 0,
        receives_max: 2,
        tracking: Tracking::Plain,
        lane: None,
    }
}

fn queues(ids: impl IntoIterator<Item = i64>) -> Queues {
    let mut queues = Queues::new(1000, Arc::new(Numbers::of_epoch(1)));
    for id in ids {
        queues.add(&delivery(id));
    }
    queues
}

fn load(queues: &mut Queues, delivery: Delivery, (held, until): (Option<Held>, Option<i64>)) {
    let fence = until.map(|_| Serial(500));
    let (receives, visible_at) = (delivery.receives, until.map(at));
    queues.load(&delivery, &KeptLease { delivery: delivery.id, receives, fence, held, visible_at });
}

fn receive(queues: &mut Queues, now: i64) -> Vec<Lease> {
    queues.receive(&key(), 10, VISIBILITY, at(now)).leases
}

fn receipt(lease: &Lease) -> Receipt {
    Receipt { delivery_id: lease.delivery, fence: lease.fence }
}

/// DLV-2
#[test]
fn a_received_delivery_is_hidden_until_its_visibility_ends_and_comes_back_under_a_higher_fence() {
    let mut queues = queues([1]);
    let first = receive(&mut queues, 0)[0];
    assert!(receive(&mut queues, 29).is_empty());
    let second = receive(&mut queues, 30)[0];
    assert_eq!((first.attempt, second.attempt), (1, 2));
    assert_eq!(first.delivery, second.delivery);
    assert!(second.fence > first.fence);
    assert_eq!(queues.end(&key(), &[receipt(&first)]).0, [ReceiptOutcome::Fenced]);
    assert_eq!(queues.end(&key(), &[receipt(&second)]).0, [ReceiptOutcome::Done]);
    assert_eq!(queues.end(&key(), &[receipt(&second)]).0, [ReceiptOutcome::Gone]);
}

/// DLV-3
#[test]
fn only_a_receipt_that_was_given_out_ends_a_delivery() {
    let mut queues = queues([1, 2]);
    let began = queues.began;
    let lease = queues.receive(&key(), 1, VISIBILITY, at(0)).leases[0];
    let forged = Receipt { fence: Serial(lease.fence.0 + 1), ..receipt(&lease) };
    assert_eq!(queues.end(&key(), &[forged]).0, [ReceiptOutcome::Fenced]);
    for fence in [began.next(), Serial(2), Serial(1)] {
        let forged = Receipt { delivery_id: Serial(2), fence };
        assert_eq!(queues.end(&key(), &[forged]).0, [ReceiptOutcome::Fenced], "{fence}");
    }
    assert_eq!(queues.end(&key(), &[receipt(&lease)]).0, [ReceiptOutcome::Done]);
}

/// DLV-3: what is told to be gone is gone for good.
#[test]
fn a_second_receipt_is_answered_by_a_commit_of_its_own() {
    let mut queues = queues([1]);
    let lease = receive(&mut queues, 0)[0];
    let (first, second) = (queues.end(&key(), &[receipt(&lease)]), queues.end(&key(), &[receipt(&lease)]));
    assert_eq!(first, (vec![ReceiptOutcome::Done], vec![Serial(1)]));
    assert_eq!(second, (vec![ReceiptOutcome::Gone], vec![Serial(1)]), "it is deleted again");
    // The first fails, the second is durable: it stays gone.
    queues.put_back(&key(), &first.1);
    queues.forget(&key(), &second.1);
    assert!(receive(&mut queues, 60).is_empty());
}

/// DLV-2
#[test]
fn what_is_not_handed_out_after_all_is_as_it_was() {
    let mut queues = queues([1, 2]);
    let first = receive(&mut queues, 0);
    let second = receive(&mut queues, 30);
    assert_eq!(second.len(), 2);
    queues.take_back(&key(), second.clone());
    assert_eq!(queues.end(&key(), &[receipt(&first[0])]).0, [ReceiptOutcome::Done], "its fence stands again");
    let third = receive(&mut queues, 30);
    assert_eq!((third.len(), third[0].attempt), (1, 2), "and no attempt is spent");
    assert_eq!(queues.take_back(&key(), second), []);
    assert!(receive(&mut queues, 31).is_empty(), "what was leased since is not taken back");
}

/// DLV-4: whoever was not told that it is on record says it again, and then it is kept.
#[test]
fn what_is_taken_back_twice_is_kept_twice_and_counted_once() {
    let mut queues = queues([1]);
    let lease = receive(&mut queues, 0)[0];
    let first = queues.hand_back(&key(), &[receipt(&lease)], at(10));
    let second = queues.hand_back(&key(), &[receipt(&lease)], at(20));
    assert_eq!((&first, first[0].1.receives), (&second, 0));
    let again = receive(&mut queues, 10)[0];
    assert_eq!(again.attempt, 1);
    assert_eq!(queues.hand_back(&key(), &[receipt(&lease)], at(30)), [], "somebody has it since");
}

/// DLV-2
#[test]
fn a_purge_takes_what_was_there_in_bounded_steps() {
    let mut queues = queues(1..=9);
    let lease = queues.receive(&key(), 2, VISIBILITY, at(0)).leases[0];
    let acknowledged = queues.end(&key(), &[receipt(&lease)]).1;
    let mut purged = Vec::new();
    loop {
        let some = queues.end_up_to(&key(), Serial(8), 3);
        if some.is_empty() {
            break;
        }
        assert!(some.len() <= 3);
        let some: Vec<_> = some.iter().map(|it| it.id).collect();
        queues.forget(&key(), &some);
        purged.extend(some.iter().map(|id| id.0));
    }
    assert_eq!(purged, [1, 2, 3, 4, 5, 6, 7, 8]);
    // An acknowledgement that fails once the purge is durable brings nothing back.
    queues.put_back(&key(), &acknowledged);
    let left: Vec<_> = receive(&mut queues, 60).iter().map(|lease| lease.delivery.0).collect();
    assert_eq!(left, [9]);
}

/// DLV-2
#[test]
fn the_last_attempt_from_before_a_restart_has_a_leases_time_to_end_well() {
    let seconds = i64::try_from(bounds::VISIBILITY_DEFAULT.as_secs()).unwrap();
    let mut queues = queues([]);
    for id in [1, 2] {
        load(&mut queues, Delivery { receives: 2, ..delivery(id) }, (None, None));
    }
    assert!(queues.sweep(at(1000), 10).is_empty());
    assert!(receive(&mut queues, 1000).is_empty(), "nor is it handed out");
    let old = Receipt { delivery_id: Serial(1), fence: Serial(500) };
    assert_eq!(queues.end(&key(), &[old]).0, [ReceiptOutcome::Done]);
    assert!(queues.sweep(at(1000 + seconds - 1), 10).is_empty());
    assert_eq!(queues.sweep(at(1000 + seconds), 10)[0].1.len(), 1);
}

/// CLM-7
#[test]
fn a_lease_that_is_on_record_lasts_as_long_as_it_did() {
    let tracked = |id| Delivery { tracking: Tracking::Retry, receives: 1, ..delivery(id) };
    let mut queues = queues([]);
    load(&mut queues, tracked(1), (Some(Held::Leased), Some(1100)));
    load(&mut queues, tracked(2), (Some(Held::Delayed), Some(1050)));
    // Handed out before leases were kept: it has the usual time.
    load(&mut queues, tracked(3), (Some(Held::Leased), None));
    assert!(receive(&mut queues, 1000).is_empty());
    let lease = HeldDelivery::Leased { fence: Serial(500), attempt: 1, until: at(1100) };
    assert_eq!(queues.held("acme", Serial(1)), Some(lease));
    let lapsed = |queues: &mut Queues, now| {
        let lapsed = queues.take_lapsed(at(now), 10);
        lapsed.iter().flat_map(|(_, it)| it).map(|it| (it.id.0, it.fence)).collect::<Vec<_>>()
    };
    assert_eq!(lapsed(&mut queues, 1029), []);
    assert_eq!(lapsed(&mut queues, 1030), [(3, None)]);
    assert!(receive(&mut queues, 1049).is_empty());
    let second = receive(&mut queues, 1050)[0];
    assert_eq!((second.delivery, second.attempt), (Serial(2), 2));
    assert_eq!(lapsed(&mut queues, 1100), [(2, Some(second.fence)), (1, Some(Serial(500)))]);
}

/// CLM-7: until the claim says so, nothing else knows the newest fence.
#[test]
fn lapsed_lease_keeps_its_fence_until_it_is_on_record() {
    let mut queues = queues([]);
    load(
        &mut queues,
        Delivery { tracking: Tracking::Retry, receives: 1, ..delivery(1) },
        (Some(Held::Leased), Some(1100)),
    );
    assert_eq!(queues.take_lapsed(at(1100), 10).len(), 1);
    let lease = HeldDelivery::Leased { fence: Serial(500), attempt: 1, until: at(1100) };
    assert_eq!(queues.held("acme", Serial(1)), Some(lease));
}

/// CLM-7
#[test]
fn a_receipt_from_before_a_restart_is_judged_by_the_lease_on_record() {
    let mut queues = queues([]);
    let tracked = Delivery { tracking: Tracking::Retry, receives: 1, ..delivery(1) };
    load(&mut queues, tracked, (Some(Held::Leased), Some(1100)));
    let shown = |queues: &mut Queues, fence| {
        queues.take_shown(&key(), Receipt { delivery_id: Serial(1), fence: Serial(fence) })
    };
    assert_eq!(shown(&mut queues, 499), None, "that one was over");
    assert!(shown(&mut queues, 500).is_some_and(|it| !it.is_old));
    queues.put_back(&key(), &[Serial(1)]);
    assert!(shown(&mut queues, 501).is_some_and(|it| it.is_old), "the record of a later one may be lost");
    queues.put_back(&key(), &[Serial(1)]);
    let extending = Receipt { delivery_id: Serial(1), fence: Serial(501) };
    let (outcomes, kept) = queues.extend(&key(), &[extending], at(2000));
    assert_eq!((outcomes, kept[0].1.fence), (vec![ReceiptOutcome::Done], Some(Serial(501))));
    assert_eq!(shown(&mut queues, 500), None, "it was not the last");
}

fn is_woken(arrivals: &Notify) -> bool {
    let notified = std::pin::pin!(arrivals.notified());
    notified.enable()
}

/// DLV-2
#[test]
fn a_wake_up_is_passed_on_only_when_there_is_more_to_hand_out() {
    let most = i64::try_from(bounds::QUEUE_IN_FLIGHT_MAX).unwrap();
    let mut queues = queues(1..=most + 2);
    let arrivals = queues.arrivals(&key());
    assert!(is_woken(&arrivals));
    queues.receive(&key(), 1, VISIBILITY, at(0));
    assert!(is_woken(&arrivals), "there is more");
    let leases = queues.receive(&key(), bounds::QUEUE_IN_FLIGHT_MAX, VISIBILITY, at(0)).leases;
    assert_eq!(leases.len(), bounds::QUEUE_IN_FLIGHT_MAX - 1);
    assert!(!is_woken(&arrivals), "there is more, and it may not be handed out");
    assert!(receive(&mut queues, 1).is_empty());
    assert!(!is_woken(&arrivals), "or those who wait would wake each other for nothing");
    queues.end(&key(), &[receipt(&leases[0])]);
    assert!(is_woken(&arrivals), "now it may");
}

/// DLV-2
#[test]
fn a_receive_ends_a_bounded_number() {
    let past = 15 * 86_400;
    let most = bounds::SWEEP_ROWS_MAX;
    let mut queues = queues(1..=i64::try_from(most).unwrap() + 5);
    let arrivals = queues.arrivals(&key());
    assert_eq!(queues.receive(&key(), 10, VISIBILITY, at(past)).ended.len(), most);
    assert!(is_woken(&arrivals), "the next one goes on");
    assert_eq!(queues.receive(&key(), 10, VISIBILITY, at(past)).ended.len(), 5);
}

/// DLV-2
#[test]
fn extension_keeps_it_hidden_and_release_gives_it_back_after_its_delay() {
    let mut queues = queues([1]);
    let lease = receive(&mut queues, 0)[0];
    let extended = queues.extend(&key(), &[receipt(&lease)], at(100));
    assert_eq!(extended, (vec![ReceiptOutcome::Done], vec![]), "and nothing of it is kept");
    assert!(receive(&mut queues, 99).is_empty());
    assert_eq!(queues.release(&key(), &[receipt(&lease)], at(110)), [ReceiptOutcome::Done]);
    let attributes = queues.attributes(&key(), at(105));
    assert_eq!((attributes.depth, attributes.in_flight, attributes.delayed), (0, 0, 1));
    assert!(receive(&mut queues, 109).is_empty());
    assert_eq!(receive(&mut queues, 110).len(), 1);
}

/// DLV-2
#[test]
fn after_its_receives_it_is_ended_instead_of_handed_out() {
    let mut queues = queues([1, 2]);
    receive(&mut queues, 0);
    receive(&mut queues, 30);
    let found = queues.receive(&key(), 10, VISIBILITY, at(60));
    assert!(found.leases.is_empty());
    let reason = DeadReason::ReceivesExhausted;
    assert_eq!(found.ended, [1, 2].map(|id| Ended { id: Serial(id), reason, receives: 2 }));
}

/// DLV-2
#[test]
fn what_nobody_takes_ends_with_its_retention() {
    let mut queues = queues([1, 2]);
    let almost = 14 * 86_400 - 1;
    assert!(queues.sweep(at(almost), 10).is_empty());
    let ended = queues.sweep(at(almost + 1), 1);
    let first = Ended { id: Serial(1), reason: DeadReason::RetentionExpired, receives: 0 };
    assert_eq!(ended, [(key(), vec![first])]);
    assert_eq!(queues.len(), 1);
}

/// DLV-3
#[test]
fn an_acknowledgement_from_before_a_restart_ends_the_delivery() {
    let mut queues = queues([1, 2, 3]);
    let old = Receipt { delivery_id: Serial(2), fence: Serial(500) };
    assert_eq!(queues.end(&key(), &[old]).0, [ReceiptOutcome::Done]);
    let rest: Vec<_> = receive(&mut queues, 0).iter().map(|lease| lease.delivery.0).collect();
    assert_eq!(rest, [1, 3]);
    assert_eq!(queues.len(), 2);
}

#[test]
fn what_could_not_be_ended_comes_back() {
    let mut queues = queues([1]);
    let lease = receive(&mut queues, 0)[0];
    let (_, taken) = queues.end(&key(), &[receipt(&lease)]);
    assert_eq!(queues.len(), 0);
    queues.put_back(&key(), &taken);
    assert_eq!(receive(&mut queues, 30).len(), 1);
}

#[test]
fn a_full_queue_has_no_room_and_gains_it_back() {
    let mut queues = Queues::new(2, Arc::new(Numbers::of_epoch(1)));
    queues.add(&delivery(1));
    queues.add(&delivery(2));
    assert_eq!(queues.room(&key()), 0);
    let lease = receive(&mut queues, 0)[0];
    assert_eq!(queues.room(&key()), 0, "what is in flight still counts");
    queues.end(&key(), &[receipt(&lease)]);
    assert_eq!(queues.room(&key()), 1);
}

/// CLM-7, DLV-2: what a claim waits for and somebody is at stays, also while what came of it is being committed; how often the
/// others were tried goes with them.
#[test]
fn a_purge_leaves_what_somebody_is_at_until_its_end_is_on_record() {
    let mut queues = queues([]);
    for id in 1..=5 {
        queues.add(&Delivery { tracking: Tracking::Retry, ..delivery(id) });
    }
    let mut lease = |seconds| queues.receive(&key(), 1, Duration::from_secs(seconds), at(0)).leases[0];
    let (reported, _lapsing, _held, tried) = (lease(30), lease(10), lease(30), lease(30));
    assert!(queues.take_shown(&key(), receipt(&reported)).is_some());
    assert!(queues.take_shown(&key(), receipt(&tried)).is_some());
    queues.resume(&key(), tried.delivery, at(60));
    assert_eq!(queues.take_lapsed(at(20), 10)[0].1.len(), 1);
    let purging = queues.end_up_to(&key(), Serial(100), 10);
    let purging: Vec<_> = purging.iter().map(|it| (it.id.0, it.receives)).collect();
    assert_eq!(purging, [(4, 1), (5, 0)]);
    queues.forget(&key(), &[Serial(4), Serial(5)]);
    assert_eq!(queues.in_progress(&key(), Serial(100)), 3);
}
