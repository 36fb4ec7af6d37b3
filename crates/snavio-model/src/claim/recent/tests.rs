use proptest::prelude::*;

use super::*;

const KEEP: Duration = Duration::from_secs(120);
const WIDE: usize = bounds::REMEMBERED_DESTINATIONS_MAX + 1;

fn at(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1000)
}

fn memory(reserved_max: usize) -> RecentMessages {
    RecentMessages::bounded(KEEP, 100, reserved_max, at(0))
}

/// A message at destinations that claim nothing.
fn unclaimed(destinations: impl IntoIterator<Item = Fingerprint>) -> Fingerprints {
    let mark = |fingerprint| Some(Mark { fingerprint, is_claimed: false });
    Fingerprints { each: destinations.into_iter().map(mark).collect(), all: Fingerprint::MAX }
}

fn claimed(destination: Fingerprint) -> Fingerprints {
    let mark = Mark { fingerprint: destination, is_claimed: true };
    Fingerprints { each: vec![Some(mark)], all: Fingerprint::MAX }
}

fn reserved(known: Vec<bool>) -> Admission {
    Admission::New { known, is_reserved: true }
}

fn is_known(recent: &mut RecentMessages, message: Fingerprint) -> bool {
    recent.admit(&claimed(message)) == Admission::Known
}

/// PIP-2
#[test]
fn message_is_known_for_the_window_and_forgotten_later() {
    let mut recent = memory(0);
    recent.remember(&claimed(1), at(10));
    recent.remember(&claimed(2), at(129));
    assert!(is_known(&mut recent, 1) && is_known(&mut recent, 2));
    recent.remember(&claimed(3), at(260));
    assert!(!is_known(&mut recent, 1), "older than the window and a generation");
    assert!(is_known(&mut recent, 2) && is_known(&mut recent, 3));
}

/// PIP-2
#[test]
fn memory_holds_at_most_two_generations() {
    let mut recent = memory(0);
    for n in 0..10_000 {
        recent.remember(&claimed(n), at(1));
    }
    assert!(recent.young.len() + recent.old.len() <= 200);
    assert!(is_known(&mut recent, 9_999));
}

/// PIP-2
#[test]
fn copy_waits_until_the_first_is_remembered_or_released() {
    let mut recent = memory(10);
    let message = unclaimed([1]);
    assert_eq!(recent.admit(&message), reserved(vec![]));
    assert_eq!(recent.admit(&message), Admission::Copy);
    recent.release(&message);
    assert_eq!(recent.admit(&message), reserved(vec![]), "the first was refused");
    recent.remember(&message, at(1));
    recent.release(&message);
    assert_eq!(recent.admit(&message), Admission::Known);
    assert!(recent.reserved.is_empty());
}

/// PIP-2, CLM-4
#[test]
fn copies_at_claimed_destinations_never_wait() {
    let mut recent = memory(0);
    for _ in 0..2 {
        assert_eq!(recent.admit(&claimed(1)), Admission::New { known: vec![], is_reserved: false });
    }
}

/// PIP-2, PIP-13
#[test]
fn copies_wait_for_unclaimed_destinations_alone() {
    let mut recent = memory(10);
    recent.remember(&unclaimed([1]), at(0));
    // Another destination compares contents, and the memory is not asked there.
    let known = vec![true, false];
    let message = Fingerprints { each: vec![unclaimed([1]).each[0], None], ..unclaimed([]) };
    for _ in 0..2 {
        assert_eq!(recent.admit(&message), Admission::New { known: known.clone(), is_reserved: false });
    }
}

/// PIP-2, PIP-9
#[test]
fn wide_event_takes_one_reservation() {
    let mut recent = memory(2);
    let message = |all, width| Fingerprints { all, ..unclaimed((0..width as Fingerprint).map(|n| all + n)) };
    assert_eq!(recent.admit(&message(1_000, WIDE - 1)), reserved(vec![]));
    assert_eq!(recent.admit(&message(2_000, WIDE)), reserved(vec![]));
    assert_eq!(recent.admit(&message(3_000, 1)), Admission::Full);
    recent.release(&message(1_000, WIDE - 1));
    assert_eq!(recent.admit(&message(3_000, 1)), reserved(vec![]));
}

/// PIP-2, PIP-13
#[test]
fn wide_events_are_remembered_once_unlike_new_subscriptions() {
    let mut recent = memory(10);
    recent.remember(&unclaimed([10, 11]), at(0));
    let known = vec![true, true, false];
    assert_eq!(recent.admit(&unclaimed([10, 11, 12])), reserved(known));
    let wide = Fingerprints { all: 2, ..unclaimed((0..WIDE as Fingerprint).map(|n| 100 + n)) };
    assert_eq!(recent.admit(&wide), reserved(vec![]));
    let narrow = Fingerprints { all: 2, ..unclaimed([100]) };
    assert_eq!(recent.admit(&narrow), Admission::Copy, "reserved for all destinations together");
    recent.remember(&wide, at(0));
    recent.release(&wide);
    assert_eq!(recent.admit(&wide), Admission::Known);
    assert_eq!(recent.admit(&narrow), Admission::Known);
    let other = Fingerprints { all: 3, ..unclaimed([100]) };
    assert_eq!(recent.admit(&other), reserved(vec![]), "no fingerprint of its own");
}

#[derive(Debug, Clone)]
enum Step {
    /// A copy arrives that goes to these destinations.
    Arrive(Vec<bool>),
    /// The commit of a copy in flight succeeds, or the copy is refused.
    End { copy: usize, is_accepted: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let arrive =
        (proptest::collection::vec(any::<bool>(), 3), any::<bool>()).prop_map(|(mut to, is_wide)| {
            to.resize(if is_wide { WIDE } else { 3 }, true);
            Step::Arrive(to)
        });
    let end = (any::<usize>(), any::<bool>()).prop_map(|(copy, is_accepted)| Step::End { copy, is_accepted });
    prop_oneof![arrive, end]
}

proptest! {
    /// PIP-2, PIP-13
    #[test]
    fn no_destination_gets_two_copies(steps in proptest::collection::vec(step(), 1..60)) {
        let mut recent = memory(1_000);
        let mut in_flight: Vec<(Fingerprints, Vec<bool>)> = Vec::new();
        let mut dispatched = std::collections::HashSet::new();
        for step in steps {
            match step {
                Step::Arrive(to) => {
                    let marks = to.iter().enumerate().map(|(place, goes)| {
                        goes.then_some(Mark { fingerprint: place as Fingerprint, is_claimed: false })
                    });
                    let message = Fingerprints { each: marks.flatten().map(Some).collect(), all: 1_000 };
                    if let Admission::New { known, is_reserved: true } = recent.admit(&message) {
                        in_flight.push((message, known));
                    }
                }
                Step::End { .. } if in_flight.is_empty() => {}
                Step::End { copy, is_accepted } => {
                    let (message, known) = in_flight.swap_remove(copy % in_flight.len());
                    if is_accepted {
                        for (place, mark) in message.each.iter().enumerate() {
                            if known.get(place) != Some(&true) {
                                prop_assert!(dispatched.insert(mark.unwrap().fingerprint), "{mark:?} twice");
                            }
                        }
                        recent.remember(&message, at(1));
                    }
                    recent.release(&message);
                }
            }
        }
        for (message, _) in &in_flight {
            recent.release(message);
        }
        prop_assert!(recent.reserved.is_empty());
    }
}
