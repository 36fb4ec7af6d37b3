//! Lists of claims that are not complete (CLM-2, CLM-11).

use std::sync::Arc;

use snavio_model::claim::Status;
use snavio_model::id::Serial;

use super::processing::{self, completed_report, failed_report, finish_one, tracked_route};
use super::samples::{at, receipt, receive, settle_one};
use crate::{ClaimFilter, Store};

/// CLM-11
pub async fn open_claims_are_listed_by_owner_and_status(store: &Arc<dyn Store>) {
    for id in ["a", "b", "c"] {
        settle_one(&**store, id, &tracked_route(), at(0)).await;
    }
    let works = receive(&**store, "book", 30, at(0)).await;
    finish_one(&**store, completed_report(receipt(&works[0]), "1"), 1).await;
    finish_one(&**store, failed_report(receipt(&works[1]), true, 0), 1).await;
    let open = async |owner: Option<&str>, statuses: &[Status], after| {
        let (owner, statuses) = (owner.map(str::to_owned), statuses.to_vec());
        let filter = ClaimFilter { owner, service: None, statuses, after };
        let found = store.open_claims(&filter, 10, at(2)).await.expect("they can be listed");
        found.iter().map(|claim| (claim.key.id.to_string(), claim.claim.message)).collect::<Vec<_>>()
    };
    let all = [Status::Processing, Status::Failed { is_final: false }, Status::Failed { is_final: true }];
    let found = open(None, &all, Serial(0)).await;
    assert_eq!(found.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(open(Some("acme"), &all, Serial(0)).await.len(), 2);
    assert_eq!(open(Some("acm"), &all, Serial(0)).await.len(), 0);
    assert_eq!(open(None, &all[..1], Serial(0)).await.len(), 1);
    assert_eq!(open(None, &all, found[0].1).await.len(), 1);
    // CLM-1: the claims of a service are those of messages that it sent and those at its destinations.
    for (service, count) in [("acme/billing", 2), ("acme/bot", 2), ("acme/bo", 0), ("acme/other", 0)] {
        let service = Some(service.parse().expect("a service"));
        let filter =
            ClaimFilter { owner: Some("acme".to_owned()), service, statuses: all.to_vec(), after: Serial(0) };
        assert_eq!(
            store.open_claims(&filter, 10, at(2)).await.expect("they are listed").len(),
            count,
            "{filter:?}"
        );
    }
}

/// CLM-2, CLM-11: a failed claim that is leased again is `PROCESSING`, in lists as in look-ups.
pub async fn listed_claims_have_the_requested_status(store: &Arc<dyn Store>) {
    for id in ["a", "b", "c", "d"] {
        settle_one(&**store, id, &tracked_route(), at(0)).await;
    }
    let works = receive(&**store, "book", 30, at(0)).await;
    for (work, retry_at) in works.iter().zip([5, 500, 5]) {
        finish_one(&**store, failed_report(receipt(work), false, retry_at), 1).await;
    }
    let again = receive(&**store, "book", 30, at(6)).await;
    assert_eq!(again.iter().map(|work| work.message.id.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    let listed = async |status: Status, limit: usize, now: i64| {
        let (mut ids, mut after) = (Vec::new(), Serial(0));
        loop {
            let filter = ClaimFilter { owner: None, service: None, statuses: vec![status], after };
            let page = store.open_claims(&filter, limit, at(now)).await.expect("they are listed");
            let Some(last) = page.last() else { return ids };
            after = last.claim.message;
            for claim in &page {
                let looked_up =
                    processing::read_claim(&**store, claim.key.id.as_str(), now).await.status(at(now));
                assert_eq!((claim.status(at(now)), looked_up), (status, status), "{claim:?}");
            }
            ids.extend(page.iter().map(|claim| claim.key.id.to_string()));
        }
    };
    let waiting = Status::Failed { is_final: false };
    for limit in [1, 2, 10] {
        assert_eq!(listed(Status::Processing, limit, 7).await, ["a", "c", "d"], "{limit} a page");
        assert_eq!(listed(waiting, limit, 7).await, ["b"], "{limit} a page");
    }
    assert_eq!(listed(waiting, 2, 37).await, ["a", "b", "c"], "their leases are over");
    finish_one(&**store, failed_report(receipt(&again[0]), true, 0), 8).await;
    finish_one(&**store, completed_report(receipt(&again[1]), "1"), 8).await;
    assert_eq!(listed(Status::Failed { is_final: true }, 1, 9).await, ["a"]);
    assert_eq!(listed(waiting, 1, 9).await, ["b"]);
    assert_eq!(listed(Status::Processing, 1, 9).await, ["d"]);
}
