//! What a set of changes must hold before it is taken: against what is registered, and against itself.

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

/// Turns wishes into changes against the registry as it is: what changes nothing is left out, and the result
/// is refused as a whole, with every problem named, when it would not hold together.
pub fn plan(
    registry: &Registry,
    wishes: Vec<Wish>,
    author: &Author,
    window: Duration,
) -> Result<Vec<Change>, Vec<String>> {
    if wishes.len() > bounds::REGISTRY_CHANGES_MAX {
        return Err(vec![format!(
            "{} changes at once, at most {}",
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
            problems.push(format!("{} is given twice, and differently", printable(&key)));
        }
        after.insert(key, entry);
    }
    let is_other = |route: &Route| route.processing.kind.taker() != Taker::Consumers;
    let mut wished = after.values().flatten();
    let has_other_takers = registry.routes().any(|it| is_other(&it.route))
        || wished.any(|it| matches!(it, Entry::Route(it) | Entry::Subscription(it) if is_other(it)));
    let draft = Draft { registry, after: &after, window, at: author.at, has_other_takers };
    problems.extend(draft.problems());
    if !problems.is_empty() {
        return Err(problems);
    }
    let changed = after.into_iter().filter_map(|(key, after)| {
        let before = registry.get(&key).cloned();
        (before != after).then_some((key, before, after))
    });
    let change = |(offset, (key, before, after))| Change {
        version: registry.version() + 1 + offset,
        at: author.at,
        who: author.who.clone(),
        why: author.why.clone(),
        key,
        before,
        after,
    };
    Ok((0..).zip(changed).map(change).collect())
}

/// A key for a message: a control character in it must not reach a terminal or a log.
fn printable(key: &EntryKey) -> String {
    key.to_string().replace(char::is_control, "\u{fffd}")
}

/// The registry as it would be.
struct Draft<'a> {
    registry: &'a Registry,
    after: &'a BTreeMap<EntryKey, Option<Entry>>,
    window: Duration,
    /// When it would be.
    at: Timestamp,
    /// Whether anybody but consumers takes from queues, or would.
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

    fn as_it_would_be(&self, key: &EntryKey) -> Option<&Entry> {
        match self.after.get(key) {
            Some(after) => after.as_ref(),
            None => self.registry.get(key),
        }
    }

    fn exists(&self, key: &EntryKey) -> bool {
        self.as_it_would_be(key).is_some()
    }

    fn check_put(&self, entry: &Entry, problems: &mut Vec<String>) {
        let key = entry.key();
        let found = match Touched::of(self.registry.get(&key), entry) {
            Touched::Secrets(adapter) => adapter.secrets_problem().into_iter().collect(),
            Touched::Disabled(route) => {
                route.disabled_problem().into_iter().chain(control_character(&route.disabled)).collect()
            }
            Touched::More => match control_character(entry) {
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
                found.extend(self.forgetful_subscription(adapter));
            }
            Entry::Route(route) => {
                found.extend(self.shared_queue(route));
                found.extend(self.shared_scope(route));
            }
            Entry::Subscription(route) => {
                found.extend(self.subscription_problems(route));
                found.extend(self.patient_adapter(route));
                found.extend(self.shared_queue(route));
                found.extend(self.shared_scope(route));
            }
            _ => {}
        }
        found
    }

    /// REG-8: what waits for somebody's answer has a bound, or one tenant could bury all others' requests, and fill
    /// the registry with those that nobody will ever answer.
    fn request_problems(&self, request: &GrantRequest) -> Vec<String> {
        let mut problems = Vec::new();
        let key = EntryKey::grant_request(&request.source, &request.target, &request.name);
        let tenant = request.source.tenant();
        let waiting = self.registry.requests_of(tenant).filter(|it| it.key() != key);
        if waiting.count() >= bounds::GRANT_REQUESTS_MAX {
            let most = bounds::GRANT_REQUESTS_MAX;
            problems.push(format!("{most} requests of tenant {tenant} wait already: withdraw some first"));
        }
        problems
    }

    /// MSG-4, MSG-7: an adapter whose provider does not sign all of an event is of no use to a service that must sign. A
    /// service may begin to sign while it has such an adapter: from then on that one's webhooks are refused.
    fn unsigned_problem(&self, adapter: &Adapter) -> Option<String> {
        let service = self.as_it_would_be(&EntryKey::service(&adapter.service));
        let is_signed = matches!(service, Some(Entry::Service(it)) if it.signed_events);
        let unsigned = adapter.unsigned().filter(|_| is_signed)?;
        let service = &adapter.service;
        Some(format!("events of {service} must be signed, and {unsigned}: {UNSIGNED_ADVICE}"))
    }

    /// CLM-20: whoever subscribes must not forget an id while an adapter still takes its request.
    fn patient_adapter(&self, route: &Route) -> Option<String> {
        let is_of = |it: &Adapter| route.events_of.as_ref() == Some(&it.service) && it.makes(&route.name);
        let adapter = |it: &Entry| match it {
            Entry::Adapter(it) if is_of(it) => outlived(it, route),
            _ => None,
        };
        let is_there = |it: &&Entry| !self.after.contains_key(&it.key());
        let mut there = self.registry.entries_of(Kind::Adapter).filter(|it| adapter(it).is_some());
        self.wished(Kind::Adapter).find_map(adapter).or_else(|| there.find(is_there).and_then(adapter))
    }

    /// The other way round, for the subscriptions of the adapter's own tenant: another tenant's must not keep this one from
    /// its adapter.
    fn forgetful_subscription(&self, adapter: &Adapter) -> Option<String> {
        let forgets = |it: &Route| {
            let is_of = it.events_of.as_ref() == Some(&adapter.service) && adapter.makes(&it.name);
            let problem = outlived(adapter, it).filter(|_| is_of && it.foreign_publisher().is_none())?;
            Some(format!("{}: {problem}", it.key()))
        };
        let mut wished = self.wished(Kind::Subscription).filter_map(|it| match it {
            Entry::Subscription(it) => forgets(it),
            _ => None,
        });
        let there = self.registry.subscriptions.get(&adapter.service).into_iter().flat_map(|it| it.values());
        let there = there.flatten().map(|it| &it.route).filter(|it| !self.after.contains_key(&it.key()));
        wished.next().or_else(|| there.filter_map(forgets).next())
    }

    /// The entries of a kind that are asked for.
    fn wished(&self, kind: Kind) -> impl Iterator<Item = &Entry> {
        let of_kind = self.after.range(EntryKey { kind, name: String::new() }..);
        of_kind.take_while(move |(key, _)| key.kind == kind).filter_map(|(_, entry)| entry.as_ref())
    }

    /// CLM-9: what the gateway or a claim's worker takes from a queue is not a consumer's, and the other way round.
    fn shared_queue(&self, route: &Route) -> Option<String> {
        let taken_by = |it: &Route| it.processing.kind.taker();
        let is_sent = |it: &Route| it.processing.kind.is_sent();
        // Where nobody but consumers takes from queues, as is usual, there is nothing to look for.
        if taken_by(route) == Taker::Consumers && !self.has_other_takers {
            return None;
        }
        let is_other = |it: &Route| {
            it.target.tenant() == route.target.tenant()
                && it.queue == route.queue
                && (taken_by(it) != taken_by(route)
                    || (is_sent(it) || is_sent(route)) && it.key() != route.key())
        };
        let other = self.routes(self.registry.routes()).find(|it| is_other(it))?;
        if taken_by(other) == taken_by(route) {
            // DLV-4: a target that is down must hold up nobody else's.
            let told = format!(
                "what is pushed has a queue of its own, and {} is that of {}",
                route.queue,
                other.key()
            );
            return Some(format!("{told}: use another queue"));
        }
        Some(format!(
            "queue {} is taken from by {}, and by {} for {}: use another queue",
            route.queue,
            taken_by(route).told(),
            taken_by(other).told(),
            other.key()
        ))
    }

    /// ORD-2: an entity has one state, and is judged in one way, whichever of its types comes.
    fn shared_scope(&self, route: &Route) -> Option<String> {
        let order = route.order.as_ref().filter(|it| it.scope.is_some())?;
        // One that is permitted anew comes behind one that is not, and would be late there.
        let is_permitted_otherwise = |it: &Route, of: &Order| of.scope == order.scope && it.acl != route.acl;
        let differs = |it: &Route, of: &Order| !of.counts_with(order) || is_permitted_otherwise(it, of);
        let is_other = |it: &&Route| {
            it.target == route.target && it.order.as_ref().is_some_and(|order| differs(it, order))
        };
        let service = self.registry.service(route.target.as_str());
        let there = service.into_iter().flat_map(|it| it.routes().chain(it.subscriptions()));
        let other = self.routes(there).find(is_other)?;
        Some(format!(
            "acl or order.enabled, mode, ttl_seconds or on_failure differ from those of {}, which has the same scope: change \
             them together",
            other.key()
        ))
    }

    /// PIP-13: whose events another tenant may have is the publisher's to say. Who has no grant does not learn whether
    /// there is such a type.
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

    /// Whether a service of another tenant may have events of a type, as it would be.
    fn is_granted(&self, source: &ServiceName, publisher: &ServiceName, name: &CommandName) -> bool {
        let grant = self.as_it_would_be(&EntryKey::grant(source, publisher, &name.clone().into()));
        matches!(grant, Some(Entry::Grant(grant)) if grant.expires_at.is_none_or(|end| self.at < end))
    }

    /// How many others would have the same events.
    fn other_subscriptions(&self, route: &Route, publisher: &ServiceName) -> usize {
        let is_other = |it: &Route| {
            it.events_of.as_ref() == Some(publisher) && it.name == route.name && it.target != route.target
        };
        let there = self.registry.subscriptions_to(publisher, &route.name).iter();
        let there =
            there.filter(|it| is_other(&it.route) && !self.after.contains_key(&it.route.key())).count();
        // Where few are there, as is usual, what is wished for is not gone through for each of them.
        if there + self.after.len() < bounds::SUBSCRIPTIONS_PER_TYPE_MAX {
            return there;
        }
        let wished = self.after.values().flatten();
        there + wished.filter(|it| matches!(it, Entry::Subscription(it) if is_other(it))).count()
    }

    /// REG-2: a grant may be stricter than its route, never more lenient.
    fn grant_problems(&self, grant: &Grant) -> Vec<String> {
        let Some(profile) = grant.profile else { return Vec::new() };
        let is_for = |it: &&Route| {
            it.target == grant.target
                && it.events_of.is_none()
                && (grant.name.is_all() || grant.name.as_str() == it.name.as_str())
        };
        let target = self.registry.service(grant.target.as_str());
        let there = target.into_iter().flat_map(|it| it.routes());
        let lenient = self.routes(there).filter(is_for).find(|it| profile > it.profile);
        let problem =
            |route: &Route| format!("its profile is more lenient than that of route {}", route.destination());
        lenient.map(problem).into_iter().collect()
    }

    /// Routes and subscriptions as they would be: those that are asked for, and of those that are there the others.
    fn routes<'s>(
        &'s self,
        there: impl Iterator<Item = &'s Arc<BoundRoute>>,
    ) -> impl Iterator<Item = &'s Route> {
        let changed = self.after.values().flatten().filter_map(|entry| match entry {
            Entry::Route(it) | Entry::Subscription(it) => Some(it),
            _ => None,
        });
        changed.chain(there.map(|it| &it.route).filter(|it| !self.after.contains_key(&it.key())))
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
            // All that goes with a route is what is pushed by it is signed with: no need to look further.
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

/// What of an entry is another than it was. What stays as it is was permitted when it was registered, and is not held against
/// what changes beside it: a grant that was taken back since, or a service that has begun to sign.
enum Touched<'e> {
    /// Its sealed secrets, and nothing else (REG-13).
    Secrets(&'e Adapter),
    /// Whether anything is pushed by it, and nothing else (DLV-1).
    Disabled(&'e Route),
    /// More than that, or nothing at all: it is asked for as a whole.
    More,
}

impl<'e> Touched<'e> {
    fn of(before: Option<&Entry>, after: &'e Entry) -> Self {
        match (before, after) {
            (Some(Entry::Adapter(before)), Entry::Adapter(after)) if before != after => {
                let sealed_anew = Adapter { secrets: after.secrets.clone(), ..(**before).clone() };
                if sealed_anew == **after { Self::Secrets(after) } else { Self::More }
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
    /// The entries that must be there when this one is registered.
    fn needs(&self) -> Vec<EntryKey> {
        match self {
            Self::GrantRequest(it) if it.is_abroad() => vec![EntryKey::service(&it.source)],
            _ => self.refers_to(),
        }
    }

    /// The entries that this one goes with.
    pub(super) fn refers_to(&self) -> Vec<EntryKey> {
        let service = |name| EntryKey::service(name);
        match self {
            Self::Tenant(_) => vec![],
            Self::Service(it) => vec![EntryKey { kind: Kind::Tenant, name: it.name.tenant().to_owned() }],
            Self::Route(it) => vec![service(&it.target)],
            Self::EventType(it) => vec![service(&it.owner)],
            Self::Subscription(it) => subscription_refers_to(it),
            Self::Grant(it) => vec![service(&it.source), service(&it.target)],
            Self::PushSecret(it) => vec![it.route_key()],
            Self::Key(it) => vec![service(&it.service)],
            Self::Client(it) => vec![service(&it.service)],
            Self::PersonalToken(it) => it.tenant.iter().map(EntryKey::tenant).collect(),
            Self::GrantRequest(it) => vec![service(&it.source), service(&it.target)],
            Self::Issuer(_) => vec![],
            Self::Workload(it) => vec![EntryKey::issuer(&it.issuer), service(&it.service)],
            Self::Ban(it) => vec![service(&it.source)],
            Self::Adapter(it) => adapter_refers_to(it),
        }
    }
}

/// A subscription goes with its own service, and with the type it is for where that is of the same tenant. Another
/// tenant's type goes when its owner says so: what is subscribed to it gets nothing then.
fn subscription_refers_to(route: &Route) -> Vec<EntryKey> {
    let publisher = route.events_of.iter().filter(|_| route.foreign_publisher().is_none());
    let of_publisher =
        publisher.flat_map(|it| [EntryKey::service(it), EntryKey::event_type(it, &route.name)]);
    [EntryKey::service(&route.target)].into_iter().chain(of_publisher).collect()
}

/// An adapter goes with its service, and with the type of its events where that is one: a suffix may make any type of it.
fn adapter_refers_to(adapter: &Adapter) -> Vec<EntryKey> {
    let event_type = EntryKey::event_type(&adapter.service, &adapter.event_type);
    let is_one = adapter.event_type_suffix.is_none();
    [EntryKey::service(&adapter.service)].into_iter().chain(is_one.then_some(event_type)).collect()
}

/// CLM-20: what is wrong with a claim that ends while its adapter still takes the same request, with the arithmetic. A
/// route without claims takes every repeat, and says so.
fn outlived(adapter: &Adapter, route: &Route) -> Option<String> {
    let (tolerance, keep) = adapter.verification.tolerance().zip(route.claim.keep())?;
    let least = 2 * tolerance + bounds::CLAIM_KEEP_SLACK;
    (keep < least).then(|| {
        format!(
            "claim.keep_seconds is {}, but a claim must outlive twice the tolerance of the adapter whose events it is for, and a wait for the commit: 2 × {} s + {} s = {} s",
            keep.as_secs(),
            tolerance.as_secs(),
            bounds::CLAIM_KEEP_SLACK.as_secs(),
            least.as_secs()
        )
    })
}
