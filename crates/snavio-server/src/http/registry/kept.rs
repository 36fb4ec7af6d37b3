//! What the store holds outlives what is registered: no change may strand what waits in a queue, put those that come beside
//! it out of order, nor hand a former tenant's records to a new one of the same name (REG-24).

use std::collections::{BTreeMap, BTreeSet};

use snavio_model::name::{QueueKey, TenantName};
use snavio_model::ordering::{Lanes, OrderDefaults};
use snavio_model::registry::{Change, Entry, EntryKey, Registry, Route};
use snavio_model::time::Clock;
use snavio_store::StoreError;

use super::super::App;
use super::super::whose::has_records;

/// Why the store does not allow these changes.
pub(super) async fn problems(
    app: &App,
    registry: &Registry,
    changes: &[Change],
) -> Result<Vec<String>, StoreError> {
    let mut problems = Vec::new();
    for (queue, route) in left(registry, changes) {
        // Most queues that are left hold nothing: only what is told of is counted.
        if !app.gate.store().holds_any(&queue).await? {
            continue;
        }
        let held = app.gate.store().attributes(&queue, app.clock.now()).await?;
        let waiting = held.depth + held.in_flight + held.delayed;
        if waiting > 0 {
            problems.push(format!(
                "{route}: no other route names its queue {}, which still holds {waiting} deliveries; let them be consumed, or purge it, first",
                queue.queue()
            ));
        }
    }
    for (queue, route) in handed_over(changes) {
        if app.gate.store().holds_any(&queue).await? {
            problems.push(format!(
                "{route}: who takes from its queue {} would be another, and it still holds something; let it be consumed first, or use another queue",
                queue.queue()
            ));
        }
    }
    for (queue, routes) in laned_anew(changes, app.gate.order_defaults()) {
        let holds = app.gate.store().destinations(&queue).await?;
        for route in routes.iter().filter(|it| holds.contains(&it.name)) {
            problems.push(format!(
                "{route}: its queue {} still holds deliveries of it, and new ones would be handed out beside them; let them be consumed, or purge it, before order.scope or order.entity changes, or one of an entity is handed out at a time (order.mode, order.enabled)",
                queue.queue()
            ));
        }
    }
    for tenant in added_tenants(changes) {
        if has_records(app, tenant.as_str()).await? {
            problems.push(format!(
                "{}: the store holds records of a former tenant of this name; choose another name",
                EntryKey::tenant(tenant)
            ));
        }
    }
    Ok(problems)
}

/// The queues that no route would name any more, each with a route that does now.
fn left(registry: &Registry, changes: &[Change]) -> BTreeMap<QueueKey, EntryKey> {
    let named =
        |entry: &Option<Entry>| route_of(entry).map(|it| QueueKey::new(it.target.tenant(), &it.queue));
    let before = changes.iter().filter_map(|it| Some((named(&it.before)?, it.key.clone())));
    let mut left: BTreeMap<_, _> = before.collect();
    if left.is_empty() {
        return left;
    }
    let changed: BTreeSet<_> = changes.iter().map(|it| &it.key).collect();
    let others = registry.routes().filter(|it| !changed.contains(&it.route.key())).map(|it| it.queue.clone());
    for queue in others.chain(changes.iter().filter_map(|it| named(&it.after))) {
        left.remove(&queue);
    }
    left
}

/// The queues whose deliveries somebody else would have to take: a consumer, the gateway, or a claim's worker.
fn handed_over(changes: &[Change]) -> BTreeMap<QueueKey, EntryKey> {
    let taken = |entry: &Option<Entry>| {
        let route = route_of(entry)?;
        let kind = route.processing.kind;
        // What is pushed is followed by no claim, and what a processor is called for is.
        let by = (kind.taker(), kind.is_sent());
        Some((QueueKey::new(route.target.tenant(), &route.queue), by))
    };
    // A queue has one kind of taker, so any of those who took from it says which.
    let before: BTreeMap<_, _> = changes.iter().filter_map(|it| taken(&it.before)).collect();
    let after = changes.iter().filter_map(|it| Some((taken(&it.after)?, it.key.clone())));
    let handed_over = after.filter(|((queue, by), _)| before.get(queue).is_some_and(|it| it != by));
    handed_over.map(|((queue, _), route)| (queue, route)).collect()
}

/// The routes that have other lanes than before, by each queue that may hold deliveries of theirs (ORD-3). A route that is new may
/// have been there before: what its deliveries are in is not known then, and taken for no lanes.
fn laned_anew(changes: &[Change], defaults: &OrderDefaults) -> BTreeMap<QueueKey, BTreeSet<EntryKey>> {
    let mut laned_anew = BTreeMap::<_, BTreeSet<_>>::new();
    for change in changes {
        let (before, after) = (route_of(&change.before), route_of(&change.after));
        let lanes = |it| Lanes::of(it, defaults);
        // Who gives lanes up gives up that one of an entity is handed out at a time.
        if after.and_then(lanes).is_none() || before.and_then(lanes) == after.and_then(lanes) {
            continue;
        }
        for route in before.into_iter().chain(after) {
            let queue = QueueKey::new(route.target.tenant(), &route.queue);
            laned_anew.entry(queue).or_default().insert(change.key.clone());
        }
    }
    laned_anew
}

fn route_of(entry: &Option<Entry>) -> Option<&Route> {
    match entry {
        Some(Entry::Route(route) | Entry::Subscription(route)) => Some(route),
        _ => None,
    }
}

fn added_tenants(changes: &[Change]) -> impl Iterator<Item = &TenantName> {
    changes.iter().filter_map(|change| match (&change.before, &change.after) {
        (None, Some(Entry::Tenant(tenant))) => Some(&tenant.name),
        _ => None,
    })
}
