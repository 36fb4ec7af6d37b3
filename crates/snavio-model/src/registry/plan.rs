//! Plans a set of registry changes and checks it against the registered entries and against itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::change::{Author, Change, Wish};
use super::entry::{Entry, Grant, Route};
use super::identity::GrantRequest;
use super::key::{EntryKey, Kind};
use super::soundness::{control_character, own_problems};
use super::{BoundRoute, Registry};
use crate::adapter::{Adapter, UNSIGNED_ADVICE};
use crate::bounds;
use crate::delivery::processing::{ProcessingKind, Taker};
use crate::name::{CommandName, ServiceName};
use crate::ordering::Order;
use crate::time::Timestamp;

/// Turns wishes into changes of the current registry. A wish without an effect makes no change. If the result
/// would be inconsistent, the whole set is refused with all its problems.
pub fn plan(
    registry: &Registry,
    wishes: Vec<Wish>,
    author: &Author,
    window: Duration,
) -> Result<Vec<Change>, Vec<String>> {
    if wishes.len() > bounds::REGISTRY_CHANGES_MAX {
        return Err(vec![format!(
            "the request has {} changes, more than the limit of {}: split it",
            wishes.len(),
            bounds::REGISTRY_CHANGES_MAX
        )]);
    }
    let mut problems = Vec::new();
    let mut after: BTreeMap<EntryKey, Option<Entry>> = BTreeMap::new();
    for wish in wishes {
        let key = wish.key();
        let entry = match wish {
            Wish::Put(entry) => Some(entry),
            Wish::Remove(_) => None,
        };
        if after.get(&key).is_some_and(|other| *other != entry) {
            problems.push(format!("{} has two different definitions: keep one", printable(&key)));
        }
        after.insert(key, entry);
    }
    let mut planned = after.values().flatten();
    let has_other_takers = registry.routes().any(|bound| has_other_taker(&bound.route))
        || planned.any(|entry| match entry {
            Entry::Route(route) | Entry::Subscription(route) => has_other_taker(route),
            _ => false,
        });
    let draft = Draft { registry, after: &after, window, at: author.at, has_other_takers };
    problems.extend(draft.problems());
    if !problems.is_empty() {
        return Err(problems);
    }
    let changed = after.into_iter().filter_map(|(key, after)| {
        let before = registry.get(&key).cloned();
        (before != after).then_some((key, before, after))
    });
    let changes = (0..).zip(changed).map(|(offset, (key, before, after))| Change {
        version: registry.version() + 1 + offset,
        at: author.at,
        who: author.who.clone(),
        why: author.why.clone(),
        key,
        before,
        after,
    });
    Ok(changes.collect())
}

/// The key as text for messages. Control characters are replaced, because they must not reach a terminal or a
/// log.
fn printable(key: &EntryKey) -> String {
    key.to_string().replace(char::is_control, "\u{fffd}")
}

/// Whether a party other than consumers receives the route's deliveries from the queue.
fn has_other_taker(route: &Route) -> bool {
    route.processing.kind.taker() != Taker::Consumers
}

/// The planned registry.
struct Draft<'a> {
    registry: &'a Registry,
    after: &'a BTreeMap<EntryKey, Option<Entry>>,
    window: Duration,
    /// The time of the change.
    at: Timestamp,
    /// Whether a party other than consumers receives from any queue of the planned registry.
    has_other_takers: bool,
}

impl Draft<'_> {
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (key, after) in self.after {
            match after {
                Some(entry) => self.check_put(entry, &mut problems),
                None => self.check_removal(key, &mut problems),
            }
        }
        problems
    }

    /// The entry of the planned registry.
    fn planned(&self, key: &EntryKey) -> Option<&Entry> {
        match self.after.get(key) {
            Some(after) => after.as_ref(),
            None => self.registry.get(key),
        }
    }

    fn exists(&self, key: &EntryKey) -> bool {
        self.planned(key).is_some()
    }

    fn check_put(&self, entry: &Entry, problems: &mut Vec<String>) {
        let key = entry.key();
        let found = match EntryDifference::of(self.registry.get(&key), entry) {
            EntryDifference::Secrets(adapter) => adapter.secrets_problem().into_iter().collect(),
            EntryDifference::Disabled(route) => {
                route.disabled_problem().into_iter().chain(control_character(&route.disabled)).collect()
            }
            EntryDifference::More => match control_character(entry) {
                Some(problem) => vec![problem],
                None => self.put_problems(entry),
            },
        };
        if !found.is_empty() {
            let key = printable(&key);
            problems.extend(found.into_iter().map(|problem| format!("{key}: {problem}")));
        }
    }

    fn put_problems(&self, entry: &Entry) -> Vec<String> {
        let missing = entry.needs().into_iter().filter(|needed| !self.exists(needed));
        let mut found: Vec<_> = missing.map(|needed| format!("{needed} is not registered")).collect();
        found.extend(own_problems(entry, self.window));
        match entry {
            Entry::Grant(grant) => found.extend(self.grant_problems(grant)),
            Entry::GrantRequest(request) => found.extend(self.request_problems(request)),
            Entry::Adapter(adapter) => {
                found.extend(self.unsigned_problem(adapter));
                found.extend(self.subscription_below_tolerance(adapter));
            }
            Entry::Route(route) => {
                found.extend(self.shared_queue(route));
                found.extend(self.shared_scope(route));
            }
            Entry::Subscription(route) => {
                found.extend(self.subscription_problems(route));
                found.extend(self.adapter_above_retention(route));
                found.extend(self.shared_queue(route));
                found.extend(self.shared_scope(route));
            }
            _ => {}
        }
        found
    }

    /// REG-8: the number of open requests is bounded. One tenant could otherwise bury the requests of all
    /// others, and fill the registry with requests without an answer.
    fn request_problems(&self, request: &GrantRequest) -> Vec<String> {
        let mut problems = Vec::new();
        let key = EntryKey::grant_request(&request.source, &request.target, &request.name);
        let tenant = request.source.tenant();
        let waiting = self.registry.requests_of(tenant).filter(|request| request.key() != key);
        if waiting.count() >= bounds::GRANT_REQUESTS_MAX {
            let most = bounds::GRANT_REQUESTS_MAX;
            problems.push(format!("{most} requests of tenant {tenant} wait already: withdraw some first"));
        }
        problems
    }

    /// MSG-4, MSG-7: a service with signed events cannot use an adapter whose provider does not sign all of
    /// an event. A service may start to require signatures while it has such an adapter; the gateway then
    /// refuses the adapter's webhooks.
    fn unsigned_problem(&self, adapter: &Adapter) -> Option<String> {
        let service = self.planned(&EntryKey::service(&adapter.service));
        let is_signed = matches!(service, Some(Entry::Service(service)) if service.signed_events);
        let unsigned = adapter.unsigned().filter(|_| is_signed)?;
        let service = &adapter.service;
        Some(format!("events of {service} must be signed, and {unsigned}: {UNSIGNED_ADVICE}"))
    }

    /// CLM-20: a subscription must not forget an id while an adapter still accepts the same request.
    fn adapter_above_retention(&self, route: &Route) -> Option<String> {
        let planned = self.planned_of(Kind::Adapter).find_map(|entry| adapter_problem(entry, route));
        planned.or_else(|| {
            let registered = self.registry.entries_of(Kind::Adapter);
            let mut problems = registered.filter_map(|entry| Some((entry, adapter_problem(entry, route)?)));
            let unchanged = problems.find(|(entry, _)| !self.after.contains_key(&entry.key()));
            unchanged.map(|(_, problem)| problem)
        })
    }

    /// CLM-20: the same check for a new adapter, against the subscriptions of its own tenant. Another
    /// tenant's subscriptions must not keep this tenant from its adapter.
    fn subscription_below_tolerance(&self, adapter: &Adapter) -> Option<String> {
        let mut planned = self.planned_of(Kind::Subscription).filter_map(|entry| match entry {
            Entry::Subscription(route) => own_subscription_problem(adapter, route),
            _ => None,
        });
        let registered = self.registry.subscriptions.get(&adapter.service).into_iter();
        let registered = registered.flat_map(|types| types.values()).flatten().map(|bound| &bound.route);
        let unchanged = registered.filter(|route| !self.after.contains_key(&route.key()));
        planned
            .next()
            .or_else(|| unchanged.filter_map(|route| own_subscription_problem(adapter, route)).next())
    }

    /// The entries of a kind that the change puts.
    fn planned_of(&self, kind: Kind) -> impl Iterator<Item = &Entry> {
        let of_kind = self.after.range(EntryKey { kind, name: String::new() }..);
        of_kind.take_while(move |(key, _)| key.kind == kind).filter_map(|(_, entry)| entry.as_ref())
    }

    /// CLM-9: only one party receives deliveries from a queue: consumers, the gateway, or workers that begin
    /// claims.
    fn shared_queue(&self, route: &Route) -> Option<String> {
        let taker = route.processing.kind.taker();
        // Usually only consumers receive from queues. The search is then unnecessary.
        if taker == Taker::Consumers && !self.has_other_takers {
            return None;
        }
        let other = self.routes(self.registry.routes()).find(|other| has_queue_conflict(route, other))?;
        let other_taker = other.processing.kind.taker();
        if other_taker == taker {
            // DLV-4: a target that is down must not delay the deliveries of another target.
            return Some(format!(
                "a push route needs its own queue, but {} is the queue of {}: use another queue",
                route.queue,
                other.key()
            ));
        }
        Some(format!(
            "queue {} is taken from by {}, and by {} for {}: use another queue",
            route.queue,
            taker.told(),
            other_taker.told(),
            other.key()
        ))
    }

    /// ORD-2: an entity has one state, so all routes of a scope must judge in the same way.
    fn shared_scope(&self, route: &Route) -> Option<String> {
        let order = route.order.as_ref().filter(|order| order.scope.is_some())?;
        let service = self.registry.service(route.target.as_str());
        let registered = service.into_iter().flat_map(|view| view.routes().chain(view.subscriptions()));
        let other = self.routes(registered).find(|other| has_scope_conflict(route, order, other))?;
        Some(format!(
            "acl or order.enabled, mode, ttl_seconds or on_failure differ from those of {}, which has the same scope: change \
             them together",
            other.key()
        ))
    }

    /// PIP-13: the publisher decides which other tenants get its events. A tenant without a grant must not
    /// learn whether the type exists.
    fn subscription_problems(&self, route: &Route) -> Vec<String> {
        let Some(publisher) = &route.events_of else {
            return vec!["events_of must name the service that publishes".to_owned()];
        };
        if route.processing.kind == ProcessingKind::Reported {
            return vec!["processing.kind reported is for work that its service begins by itself".to_owned()];
        }
        let is_foreign = route.foreign_publisher().is_some();
        if is_foreign && !self.is_granted(&route.target, publisher, &route.name) {
            return vec![format!(
                "{publisher} has not granted its events {} to {}",
                route.name, route.target
            )];
        }
        let of_type = EntryKey::event_type(publisher, &route.name);
        let is_missing = is_foreign && !self.exists(&of_type);
        let mut problems: Vec<_> =
            is_missing.then(|| format!("{of_type} is not registered")).into_iter().collect();
        if self.other_subscriptions(route, publisher) >= bounds::SUBSCRIPTIONS_PER_TYPE_MAX {
            let most = bounds::SUBSCRIPTIONS_PER_TYPE_MAX;
            problems.push(format!("{of_type} has {most} subscriptions already, and can have no more"));
        }
        problems
    }

    /// Whether the planned registry grants a service of another tenant the events of a type.
    fn is_granted(&self, source: &ServiceName, publisher: &ServiceName, name: &CommandName) -> bool {
        let grant = self.planned(&EntryKey::grant(source, publisher, &name.clone().into()));
        matches!(grant, Some(Entry::Grant(grant)) if grant.expires_at.is_none_or(|end| self.at < end))
    }

    /// The number of other planned subscriptions to the same events.
    fn other_subscriptions(&self, route: &Route, publisher: &ServiceName) -> usize {
        let registered = self.registry.subscriptions_to(publisher, &route.name).iter();
        let unchanged = registered.filter(|bound| {
            is_other_subscription(&bound.route, route, publisher)
                && !self.after.contains_key(&bound.route.key())
        });
        let unchanged = unchanged.count();
        // With few subscriptions, as usual, the exact number of planned ones does not matter and is not
        // counted.
        if unchanged + self.after.len() < bounds::SUBSCRIPTIONS_PER_TYPE_MAX {
            return unchanged;
        }
        let planned = self.after.values().flatten().filter(|entry| match entry {
            Entry::Subscription(other) => is_other_subscription(other, route, publisher),
            _ => false,
        });
        unchanged + planned.count()
    }

    /// REG-2: a grant may be stricter than its route, never more lenient.
    fn grant_problems(&self, grant: &Grant) -> Vec<String> {
        let Some(profile) = grant.profile else { return Vec::new() };
        let target = self.registry.service(grant.target.as_str());
        let registered = target.into_iter().flat_map(|view| view.routes());
        let covered = self.routes(registered).filter(|route| is_covered(route, grant));
        let mut lenient = covered.filter(|route| profile > route.profile);
        let problem = lenient
            .next()
            .map(|route| format!("its profile is more lenient than that of route {}", route.destination()));
        problem.into_iter().collect()
    }

    /// Planned routes and subscriptions: the ones that the change puts, and the ones of `registered` that it
    /// leaves unchanged.
    fn routes<'s>(
        &'s self,
        registered: impl Iterator<Item = &'s Arc<BoundRoute>>,
    ) -> impl Iterator<Item = &'s Route> {
        let changed = self.after.values().flatten().filter_map(|entry| match entry {
            Entry::Route(route) | Entry::Subscription(route) => Some(route),
            _ => None,
        });
        let unchanged = registered.map(|bound| &bound.route);
        changed.chain(unchanged.filter(|route| !self.after.contains_key(&route.key())))
    }

    fn check_removal(&self, key: &EntryKey, problems: &mut Vec<String>) {
        if self.registry.get(key).is_none() {
            problems.push(format!("{key} is not registered"));
        }
        let is_needed = matches!(
            key.kind,
            Kind::Tenant | Kind::Service | Kind::EventType | Kind::Route | Kind::Subscription
        );
        if !is_needed {
            return;
        }
        if matches!(key.kind, Kind::Route | Kind::Subscription) {
            // The push secret is the only entry that refers to a route, so no further search is necessary.
            let secret = EntryKey::push_secret(&key.name);
            if self.exists(&secret) {
                problems.push(format!("{key} cannot be removed while {secret} is registered"));
            }
            return;
        }
        let needing = self.registry.entries().filter(|entry| entry.refers_to().contains(key));
        for entry in needing.filter(|entry| self.exists(&entry.key())).take(20) {
            problems.push(format!("{key} cannot be removed while {} is registered", entry.key()));
        }
    }
}

fn adapter_problem(entry: &Entry, route: &Route) -> Option<String> {
    let Entry::Adapter(adapter) = entry else { return None };
    let is_publisher = route.events_of.as_ref() == Some(&adapter.service);
    if is_publisher && adapter.makes(&route.name) { outlived(adapter, route) } else { None }
}

fn own_subscription_problem(adapter: &Adapter, route: &Route) -> Option<String> {
    let is_subscribed = route.events_of.as_ref() == Some(&adapter.service) && adapter.makes(&route.name);
    let is_own = is_subscribed && route.foreign_publisher().is_none();
    let problem = outlived(adapter, route).filter(|_| is_own)?;
    Some(format!("{}: {problem}", route.key()))
}

/// Whether two routes cannot share a queue: different parties would receive from it, or one of the routes
/// pushes.
fn has_queue_conflict(route: &Route, other: &Route) -> bool {
    let (kind, other_kind) = (route.processing.kind, other.processing.kind);
    let has_push = kind.is_sent() || other_kind.is_sent();
    other.target.tenant() == route.target.tenant()
        && other.queue == route.queue
        && (other_kind.taker() != kind.taker() || has_push && other.key() != route.key())
}

/// Whether another route of the same scope judges differently.
fn has_scope_conflict(route: &Route, order: &Order, other: &Route) -> bool {
    let Some(other_order) = &other.order else { return false };
    // The gateway may have to permit a message on an `acl: always` route again. The message would then come
    // behind a later one of another route, and be late.
    let has_other_acl = other_order.scope == order.scope && other.acl != route.acl;
    other.target == route.target && (!other_order.counts_with(order) || has_other_acl)
}

fn is_other_subscription(other: &Route, route: &Route, publisher: &ServiceName) -> bool {
    other.events_of.as_ref() == Some(publisher) && other.name == route.name && other.target != route.target
}

fn is_covered(route: &Route, grant: &Grant) -> bool {
    route.target == grant.target
        && route.events_of.is_none()
        && (grant.name.is_all() || grant.name.as_str() == route.name.as_str())
}

/// The difference of a put entry to the registered one. Unchanged members were permitted at their
/// registration, and do not block a change beside them: a grant may have been revoked since, or the service
/// may have started to require signatures.
enum EntryDifference<'e> {
    /// Only the sealed secrets (REG-13).
    Secrets(&'e Adapter),
    /// Only the disabled state of a push route (DLV-1).
    Disabled(&'e Route),
    /// More than that, or nothing: the entry is checked as a whole.
    More,
}

impl<'e> EntryDifference<'e> {
    fn of(before: Option<&Entry>, after: &'e Entry) -> Self {
        match (before, after) {
            (Some(Entry::Adapter(before)), Entry::Adapter(after)) if before != after => {
                let resealed = Adapter { secrets: after.secrets.clone(), ..(**before).clone() };
                if resealed == **after { Self::Secrets(after) } else { Self::More }
            }
            (Some(Entry::Route(before)), Entry::Route(after))
            | (Some(Entry::Subscription(before)), Entry::Subscription(after))
                if before.disabled != after.disabled =>
            {
                let switched = Route { disabled: after.disabled.clone(), ..before.clone() };
                if switched == *after { Self::Disabled(after) } else { Self::More }
            }
            _ => Self::More,
        }
    }
}

impl Entry {
    /// The entries that must exist at the registration of this one.
    fn needs(&self) -> Vec<EntryKey> {
        match self {
            Self::GrantRequest(request) if request.is_abroad() => vec![EntryKey::service(&request.source)],
            _ => self.refers_to(),
        }
    }

    /// The entries that cannot be removed while this one exists.
    pub(super) fn refers_to(&self) -> Vec<EntryKey> {
        match self {
            Self::Tenant(_) => vec![],
            Self::Service(service) => {
                vec![EntryKey { kind: Kind::Tenant, name: service.name.tenant().to_owned() }]
            }
            Self::Route(route) => vec![EntryKey::service(&route.target)],
            Self::EventType(event_type) => vec![EntryKey::service(&event_type.owner)],
            Self::Subscription(route) => subscription_refers_to(route),
            Self::Grant(grant) => vec![EntryKey::service(&grant.source), EntryKey::service(&grant.target)],
            Self::PushSecret(secret) => vec![secret.route_key()],
            Self::Key(key) => vec![EntryKey::service(&key.service)],
            Self::Client(client) => vec![EntryKey::service(&client.service)],
            Self::PersonalToken(token) => token.tenant.iter().map(EntryKey::tenant).collect(),
            Self::GrantRequest(request) => {
                vec![EntryKey::service(&request.source), EntryKey::service(&request.target)]
            }
            Self::Issuer(_) => vec![],
            Self::Workload(workload) => {
                vec![EntryKey::issuer(&workload.issuer), EntryKey::service(&workload.service)]
            }
            Self::Ban(ban) => vec![EntryKey::service(&ban.source)],
            Self::Adapter(adapter) => adapter_refers_to(adapter),
        }
    }
}

/// A subscription refers to its own service, and to the publisher and type if they are of the same tenant.
/// Another tenant may remove its type at any time; its subscriptions then receive nothing.
fn subscription_refers_to(route: &Route) -> Vec<EntryKey> {
    let publisher = route.events_of.iter().filter(|_| route.foreign_publisher().is_none());
    let of_publisher = publisher
        .flat_map(|publisher| [EntryKey::service(publisher), EntryKey::event_type(publisher, &route.name)]);
    [EntryKey::service(&route.target)].into_iter().chain(of_publisher).collect()
}

/// An adapter refers to its service, and to its event type unless a suffix varies the type.
fn adapter_refers_to(adapter: &Adapter) -> Vec<EntryKey> {
    let event_type = EntryKey::event_type(&adapter.service, &adapter.event_type);
    let is_fixed = adapter.event_type_suffix.is_none();
    [EntryKey::service(&adapter.service)].into_iter().chain(is_fixed.then_some(event_type)).collect()
}

/// CLM-20: the problem of a claim that expires while the adapter still accepts the same request, with the
/// arithmetic. A route without claims accepts every repeat anyway.
fn outlived(adapter: &Adapter, route: &Route) -> Option<String> {
    let (tolerance, keep) = adapter.verification.tolerance().zip(route.claim.keep())?;
    let least = 2 * tolerance + bounds::CLAIM_KEEP_SLACK;
    (keep < least).then(|| {
        format!(
            "claim.keep_seconds is {}, but a claim must outlive twice the tolerance of the adapter of its events, and a wait for the commit: 2 × {} s + {} s = {} s",
            keep.as_secs(),
            tolerance.as_secs(),
            bounds::CLAIM_KEEP_SLACK.as_secs(),
            least.as_secs()
        )
    })
}
