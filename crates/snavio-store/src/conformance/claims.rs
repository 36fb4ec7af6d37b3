//! Claims: of any number of messages with one id, the store dispatches one (CLM-1, CLM-3, CLM-4, CLM-19).

use std::sync::Arc;

use snavio_model::bounds;
use snavio_model::claim::{ClaimPolicy, IdKey};
use snavio_model::id::MessageId;
use snavio_model::registry::{BoundRoute, Route};
use snavio_model::settle::Outcome;
use snavio_model::time::Timestamp;

use super::samples::{
    KEEP_SECONDS, at, intake, intake_of, notify, pay, queued, receive, route, settle, settle_one,
};
use crate::{ClaimLookUp, Store};

/// CLM-4: tasks settle the same ids at the same time, in batches of their own.
pub async fn racing_tasks_have_one_winner_for_each_id(store: &Arc<dyn Store>) {
    const IDS: usize = 10;
    let tasks: Vec<_> = (0..32)
        .map(|task| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                // Each task begins with another id, so that the batches have the ids in different orders.
                let order = (0..IDS).map(|n| (n + task) % IDS);
                let batch = order.map(|id| intake(&format!("id-{id}"), &pay(), at(0))).collect();
                settle(&*store, batch, at(0)).await
            })
        })
        .collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        let settled = task.await.expect("no task panics");
        outcomes.extend(settled.into_iter().map(|settlement| settlement.outcomes[0]));
    }
    assert_eq!(
        outcomes.iter().filter(|outcome| queued(**outcome).is_some()).count(),
        IDS,
        "one winner for each id"
    );
    assert!(
        outcomes.iter().all(|outcome| matches!(outcome, Outcome::Queued { .. } | Outcome::Duplicate { .. }))
    );
    assert_eq!(receive(&**store, "pay", 30, at(0)).await.len(), IDS);
    assert!(receive(&**store, "pay", 30, at(0)).await.is_empty());
}

/// CLM-4
pub async fn one_batch_sees_itself(store: &Arc<dyn Store>) {
    let batch = ["a", "b", "a"].map(|id| intake(id, &pay(), at(0))).to_vec();
    let settled = settle(&**store, batch, at(0)).await;
    assert!(queued(settled[0].outcomes[0]).is_some() && queued(settled[1].outcomes[0]).is_some());
    assert_eq!(settled[2].outcomes, [Outcome::Duplicate { first_seen_at: at(0) }]);
    assert_eq!(settled[2].message, None);
}

/// CLM-1
pub async fn another_service_finds_it_taken(store: &Arc<dyn Store>) {
    settle_one(&**store, "a", &pay(), at(0)).await;
    let other = settle(&**store, vec![intake_of("acme/shop", "a", &[pay()], at(1))], at(1)).await;
    assert_eq!(other[0].outcomes, [Outcome::Taken]);
    let own = settle_one(&**store, "a", &pay(), at(2)).await;
    assert_eq!(own, Outcome::Duplicate { first_seen_at: at(0) }, "the first claim stands");
}

/// CLM-1
pub async fn tenants_do_not_share_ids(store: &Arc<dyn Store>) {
    let batch = ["acme/billing", "zeta/billing"].map(|source| intake_of(source, "a", &[pay()], at(0)));
    let settled = settle(&**store, batch.to_vec(), at(0)).await;
    assert!(settled.iter().all(|settlement| queued(settlement.outcomes[0]).is_some()), "{settled:?}");
}

/// CLM-19: time decides that a claim has expired, and not the deletion of its row.
pub async fn claim_expires_by_time_alone(store: &Arc<dyn Store>) {
    let keep = i64::from(KEEP_SECONDS);
    for (now, fresh) in [(0, true), (keep - 1, false), (keep, true), (keep + 1, false), (2 * keep, true)] {
        let outcome = settle_one(&**store, "a", &pay(), at(now)).await;
        assert_eq!(queued(outcome).is_some(), fresh, "at {now}: {outcome:?}");
    }
}

/// CLM-1
pub async fn destinations_claim_for_themselves(store: &Arc<dyn Store>) {
    settle_one(&**store, "a", &pay(), at(0)).await;
    let refund = route("refund", ClaimPolicy::Strict { keep_seconds: KEEP_SECONDS });
    let routes = [pay(), refund, notify()];
    let settled = settle(&**store, vec![intake_of("acme/billing", "a", &routes, at(1))], at(1)).await;
    let fresh: Vec<_> = settled[0].outcomes.iter().map(|outcome| queued(*outcome).is_some()).collect();
    assert_eq!(fresh, [false, true, true]);
    for name in ["pay", "refund", "notify"] {
        let received = receive(&**store, name, 30, at(1)).await;
        let destinations: Vec<_> =
            received.iter().filter_map(|delivery| delivery.destination.as_deref()).collect();
        assert_eq!(destinations, [format!("acme/bot:{name}")], "each says by which route it came");
    }
}

/// CLM-10, CLM-18: until the claim is swept, or while it is held.
pub async fn expired_claim_is_shown_on_request(store: &Arc<dyn Store>) {
    settle_one(&**store, "a", &pay(), at(0)).await;
    let id = IdKey { id: MessageId::stored("a"), tenant: "acme".parse().expect("a tenant") };
    let later = at(i64::from(KEEP_SECONDS));
    assert!(store.claims_of(&id, later).await.expect("the store answers").is_empty());
    let all = store.claims_of(&id, Timestamp(i64::MIN)).await.expect("the store answers");
    assert_eq!(all.iter().map(|claim| claim.claim.is_live(later)).collect::<Vec<_>>(), [false]);
}

/// REG-24
pub async fn tenant_has_claims_as_sender_and_as_recipient(store: &Arc<dyn Store>) {
    let has = async |tenant: &str| store.has_claims(tenant).await.expect("the store answers");
    assert!(!has("acme").await);
    settle(&**store, vec![intake_of("zeta/app", "a", &[pay()], at(0))], at(0)).await;
    for (tenant, expected) in [("zeta", true), ("acme", true), ("acm", false), ("bot", false)] {
        assert_eq!(has(tenant).await, expected, "{tenant}");
    }
}

/// CLM-1, CLM-10: claims of other services fill no page of a service.
pub async fn look_up_of_service_finds_its_claim_among_many(store: &Arc<dyn Store>) {
    let others = (0..bounds::PAGE_MAX)
        .map(|number| route(&format!("a{number}"), ClaimPolicy::Strict { keep_seconds: KEEP_SECONDS }));
    let target = "zeta/worker".parse().expect("a service");
    let own = Arc::new(BoundRoute::new(Route { target, ..pay().route.clone() }));
    for id in ["0193a1c2-7d1e-7c3a-9f51-2b6f6f0a9d11", "invoice-4711"] {
        let routes: Vec<_> = others.clone().chain([Arc::clone(&own)]).collect();
        settle(&**store, vec![intake_of("acme/billing", id, &routes, at(0))], at(0)).await;
        let asked = ClaimLookUp {
            id: MessageId::stored(id),
            senders: vec!["acme".parse().expect("a tenant")],
            parties: vec!["acme".to_owned()],
            destination: None,
            service: Some("zeta/worker".parse().expect("a service")),
        };
        let found = async |asked: ClaimLookUp| {
            let claims = store.claims_under(&asked, at(1)).await.expect("the store answers");
            claims.iter().map(|claim| claim.key.destination.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(found(asked.clone()).await, ["zeta/worker:pay"]);
        let sender = Some("acme/billing".parse().expect("a service"));
        assert_eq!(found(ClaimLookUp { service: sender, ..asked.clone() }).await.len(), bounds::PAGE_MAX);
        let idle = Some("zeta/work".parse().expect("a service"));
        assert!(found(ClaimLookUp { service: idle, ..asked }).await.is_empty());
    }
}

/// CLM-1, CLM-10: a look-up names the senders and the recipients of the id, for ids of any form.
pub async fn id_is_looked_up_among_all_senders(store: &Arc<dyn Store>) {
    let uuid = "0193a1c2-7d1e-7c3a-9f51-2b6f6f0a9d11";
    let zeta_route = {
        let target = "zeta/worker".parse().expect("a service");
        Arc::new(BoundRoute::new(Route { target, ..pay().route.clone() }))
    };
    for id in [uuid, "invoice-4711"] {
        for source in ["acme/billing", "zeta/billing", "kira/billing"] {
            settle(&**store, vec![intake_of(source, id, &[pay()], at(0))], at(0)).await;
        }
        settle(
            &**store,
            vec![intake_of("acme/billing", id, std::slice::from_ref(&zeta_route), at(0))],
            at(0),
        )
        .await;
        let all = ["acme", "beta", "kira", "zeta"];
        for (senders, parties, destination, found) in [
            (
                &all[..],
                &[][..],
                None,
                &["acme acme/bot:pay", "acme zeta/worker:pay", "kira acme/bot:pay", "zeta acme/bot:pay"][..],
            ),
            (
                &all,
                &["acme"],
                None,
                &["acme acme/bot:pay", "acme zeta/worker:pay", "kira acme/bot:pay", "zeta acme/bot:pay"],
            ),
            (&all, &["zeta"], None, &["acme zeta/worker:pay", "zeta acme/bot:pay"]),
            (&all, &["kira", "acme"], None, &["kira acme/bot:pay"]),
            (&all, &["kira", "zeta"], None, &[]),
            (&all, &["acm"], None, &[]),
            (&["kira", "beta"], &[], None, &["kira acme/bot:pay"]),
            (&all, &["acme"], Some("zeta/worker:pay"), &["acme zeta/worker:pay"]),
        ] {
            let asked = ClaimLookUp {
                id: MessageId::stored(id),
                senders: senders.iter().map(|name| name.parse().expect("a tenant")).collect(),
                parties: parties.iter().map(|name| (*name).to_owned()).collect(),
                destination: destination.map(str::to_owned),
                service: None,
            };
            let claims = store.claims_under(&asked, at(1)).await.expect("the store answers");
            let claims: Vec<_> = claims
                .iter()
                .map(|claim| format!("{} {}", claim.key.tenant, claim.key.destination))
                .collect();
            assert_eq!(claims, found, "{asked:?}");
            let later = store.claims_under(&asked, at(2 * i64::from(KEEP_SECONDS))).await;
            assert!(later.expect("the store answers").is_empty(), "they have expired");
        }
    }
}
