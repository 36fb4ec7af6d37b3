//! What a node's memory knows of one destination, beside others.

use super::*;

/// PIP-13, PIP-2
#[test]
fn what_memory_knows_of_one_destination_says_nothing_of_the_others() {
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
        "others have it: it is not refused"
    );
}
