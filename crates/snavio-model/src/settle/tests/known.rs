//! The node's memory of accepted messages at one of several destinations.

use super::*;

/// PIP-13, PIP-2
#[test]
fn memory_of_one_destination_leaves_the_others_alone() {
    let mut backend = Backend::of_depth(1);
    let known = |known: &[bool]| Intake {
        known: known.into(),
        ..intake("acme/billing", 1, &[notify(), post(), refund()])
    };
    assert_eq!(backend.outcomes(&[known(&[])], at(0)), [["queued"; 3]]);
    assert_eq!(backend.outcomes(&[known(&[true, false, false])], at(1)), [["duplicate"; 3]]);
    let later = Intake { known: vec![true, false], ..intake("acme/billing", 2, &[notify(), refund()]) };
    assert_eq!(
        backend.outcomes(&[later], at(1)),
        [["duplicate", "buried"]],
        "other destinations have it, so it is not refused"
    );
}
