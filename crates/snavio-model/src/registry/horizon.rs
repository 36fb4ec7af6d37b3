//! How far back the store knows a tenant's messages (CLM-10, CLM-19).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{BoundRoute, Change, Entry, Registry, Route, ServiceView};
use crate::bounds;
use crate::name::{GrantedName, TenantName};
use crate::time::Timestamp;

/// Periods of one destination that are distinguished. Older ones merge into one, with the shortest retention
/// among them.
const SPANS_MAX: usize = 16;

/// Selects claims by the tenants involved: the sender's, and the owner of the destination.
#[derive(Debug, Clone, Copy, Default)]
pub struct Involved<'a> {
    /// Each of these tenants must be the sender or the owner; empty for any.
    pub parties: &'a [String],
    /// The tenant of the sender; `None` for any.
    pub sender: Option<&'a TenantName>,
}

impl Involved<'_> {
    /// Whether such a claim can exist at a destination of this owner, given the tenants that can send there.
    fn can_be_at(&self, owner: &str, is_sent_by: impl Fn(&str) -> bool) -> bool {
        self.parties.iter().all(|party| party == owner || is_sent_by(party))
            && self.sender.is_none_or(|sender| is_sent_by(sender.as_str()))
    }
}

impl Registry {
    /// The shortest retention of such claims. A tenant can send to its own routes, to routes that it is
    /// granted, and to subscriptions to its events. `None` if no destination claims ids.
    pub fn shortest_keep(&self, involved: Involved<'_>) -> Option<Duration> {
        let keeps = self.services().flat_map(|view| {
            let owner = view.name.tenant();
            let routes = view
                .routes()
                .filter(move |route| involved.can_be_at(owner, |tenant| is_sent_by(tenant, view, route)));
            let subscriptions = view
                .subscriptions()
                .filter(move |route| involved.can_be_at(owner, |tenant| is_published_by(tenant, route)));
            routes.chain(subscriptions).filter_map(|route| route.route.claim.keep()).min()
        });
        keeps.min()
    }
}

fn is_sent_by(tenant: &str, view: &ServiceView, route: &BoundRoute) -> bool {
    let is_granted = |name: &str| {
        view.grants.get(name).is_some_and(|of_name| of_name.keys().any(|source| source.tenant() == tenant))
    };
    view.name.tenant() == tenant || is_granted(route.route.name.as_str()) || is_granted(GrantedName::ALL)
}

fn is_published_by(tenant: &str, route: &BoundRoute) -> bool {
    route.route.events_of.as_ref().is_some_and(|publisher| publisher.tenant() == tenant)
}

/// The past retention of claims at each destination, computed from the changelog. A route with a retention of
/// years today may have had minutes when a message was sent, and a claim of that time has expired (CLM-10).
#[derive(Debug, Default)]
pub struct Horizons {
    version: i64,
    destinations: BTreeMap<Arc<str>, Past>,
    /// All targets and names that were ever granted to a tenant's services.
    granted: BTreeMap<String, BTreeSet<(String, String)>>,
    /// All tenants that were ever registered.
    tenants: BTreeSet<TenantName>,
}

#[derive(Debug)]
struct Past {
    target: String,
    tenant: String,
    name: String,
    publishers: Option<String>,
    /// Whether any claim was ever made there.
    claimed: bool,
    spans: Vec<Span>,
}

/// A period with one retention of claims; zero if no ids were claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    from: Timestamp,
    until: Option<Timestamp>,
    keep: Duration,
}

impl Span {
    /// Whether every claim of this period, for messages sent at `sent_at` or later, is still kept. For a
    /// while after a change, messages are still settled by the previous settings.
    fn keeps(&self, sent_at: Option<Timestamp>, now: Timestamp) -> bool {
        let earliest = sent_at.map_or(self.from, |at| at.max(self.from));
        let is_later = self.until.is_some_and(|until| earliest > until.plus(bounds::CLAIM_KEEP_SLACK));
        is_later || now < earliest.plus(self.keep)
    }

    /// Whether a message that arrived at this time may have been settled by the settings of this period.
    fn may_apply_at(&self, at: Timestamp) -> bool {
        let is_later = self.until.is_some_and(|until| at > until.plus(bounds::CLAIM_KEEP_SLACK));
        !is_later && at >= self.from.minus(bounds::CLAIM_KEEP_SLACK)
    }
}

impl Horizons {
    /// The version of the registry up to which the changes are included.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// Adds the next change of the changelog.
    pub fn add(&mut self, change: &Change) {
        self.version = change.version;
        if let Some(Entry::Grant(grant)) = &change.after {
            let of_tenant = self.granted.entry(grant.source.tenant().to_owned()).or_default();
            of_tenant.insert((grant.target.to_string(), grant.name.to_string()));
        }
        if let Some(Entry::Tenant(tenant)) = &change.after {
            self.tenants.insert(tenant.name.clone());
        }
        let (before, after) = (route_of(change.before.as_ref()), route_of(change.after.as_ref()));
        let Some(route) = after.or(before) else { return };
        let past = self.destinations.entry(route.destination()).or_insert_with(|| Past {
            target: route.target.to_string(),
            tenant: route.target.tenant().to_owned(),
            name: route.name.to_string(),
            publishers: route.events_of.as_ref().map(|publisher| publisher.tenant().to_owned()),
            claimed: false,
            spans: Vec::new(),
        });
        past.change(before.map(retention), after.map(retention), change.at);
    }

    /// Whether every message to a destination, sent at this time or (with `None`) at any time, still has its
    /// claim.
    pub fn keep_all_at(&self, destination: &str, sent_at: Option<Timestamp>, now: Timestamp) -> bool {
        let past = self.destinations.get(destination);
        past.is_some_and(|past| past.spans.iter().all(|span| span.keeps(sent_at, now)))
    }

    /// All tenants that were ever registered, ordered by name.
    pub fn tenants(&self) -> impl Iterator<Item = &TenantName> {
        self.tenants.iter()
    }

    /// Whether a destination was ever registered at which such claims can exist.
    pub fn was_registered(&self, destination: &str, involved: Involved<'_>) -> bool {
        self.destinations.get(destination).is_some_and(|past| self.can_be_at(past, involved))
    }

    /// Whether a destination claims ids, or ever did.
    pub fn ever_claimed_at(&self, destination: &str) -> bool {
        self.destinations.get(destination).is_some_and(|past| past.claimed)
    }

    /// Whether a destination existed at this time and claimed ids.
    pub fn was_claiming_at(&self, destination: &str, at: Timestamp) -> bool {
        let past = self.destinations.get(destination);
        past.is_some_and(|past| {
            past.spans
                .iter()
                .any(|span| !span.keep.is_zero() && at >= span.from && span.until.is_none_or(|end| at < end))
        })
    }

    /// Whether an id that arrived at a destination at this time was claimed, or may have been: for a while
    /// around a change, messages are settled by the settings before or after it.
    pub fn may_have_claimed_at(&self, destination: &str, at: Timestamp) -> bool {
        let Some(past) = self.destinations.get(destination) else { return false };
        // The merged oldest period records only its shortest retention; some of its periods may have had a
        // longer one.
        let merged = past.spans.first().filter(|_| past.claimed && past.spans.len() == SPANS_MAX);
        let claiming = past.spans.iter().filter(|span| !span.keep.is_zero());
        claiming.chain(merged).any(|span| span.may_apply_at(at))
    }

    /// Whether all such claims, for messages sent at this time or (with `None`) at any time, are still kept
    /// at every destination that ever claimed ids.
    pub fn keep_all_of(&self, involved: Involved<'_>, sent_at: Option<Timestamp>, now: Timestamp) -> bool {
        let past = self.destinations.values().filter(|past| past.claimed && self.can_be_at(past, involved));
        past.flat_map(|past| &past.spans).all(|span| span.keeps(sent_at, now))
    }

    /// Whether a tenant was ever granted a name at the target of a destination.
    fn was_granted(&self, past: &Past, tenant: &str, name: &str) -> bool {
        let granted = self.granted.get(tenant);
        granted.is_some_and(|granted| granted.contains(&(past.target.clone(), name.to_owned())))
    }

    /// Whether such claims can exist at a destination, given the tenants that could ever send there.
    fn can_be_at(&self, past: &Past, involved: Involved<'_>) -> bool {
        let is_sent_by = |tenant: &str| match &past.publishers {
            Some(publishers) => publishers == tenant,
            None => {
                past.tenant == tenant
                    || self.was_granted(past, tenant, &past.name)
                    || self.was_granted(past, tenant, GrantedName::ALL)
            }
        };
        involved.can_be_at(&past.tenant, is_sent_by)
    }
}

impl Past {
    fn change(&mut self, before: Option<Duration>, after: Option<Duration>, at: Timestamp) {
        self.claimed |= before.into_iter().chain(after).any(|keep| !keep.is_zero());
        // This is the only knowledge about the time before the changelog.
        if let Some(keep) = before.filter(|_| self.spans.is_empty()) {
            self.spans.push(Span { from: Timestamp(0), until: None, keep });
        }
        if let Some(open) = self.spans.last_mut().filter(|span| span.until.is_none()) {
            if Some(open.keep) == after {
                return;
            }
            open.until = Some(at);
        }
        self.spans.extend(after.map(|keep| Span { from: at, until: None, keep }));
        if self.spans.len() > SPANS_MAX {
            let oldest = self.spans.remove(0);
            let next = &mut self.spans[0];
            (next.from, next.keep) = (oldest.from, next.keep.min(oldest.keep));
        }
    }
}

fn route_of(entry: Option<&Entry>) -> Option<&Route> {
    match entry {
        Some(Entry::Route(route) | Entry::Subscription(route)) => Some(route),
        _ => None,
    }
}

fn retention(route: &Route) -> Duration {
    route.claim.keep().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::ClaimPolicy;
    use crate::registry::Grant;

    const DAY: i64 = 86_400;
    const SHORT: ClaimPolicy = ClaimPolicy::Event { keep_seconds: 180, answers: false };

    fn at(seconds: i64) -> Timestamp {
        Timestamp(1_794_731_400_000 + seconds * 1000)
    }

    fn route() -> Route {
        let text =
            r#"{ "target": "acme/ledger", "name": "post", "queue": "q", "dead_letter_queue": "dead" }"#;
        serde_json::from_str(text).unwrap()
    }

    /// The horizons after a route was registered with these policies at these times; no policy removes the
    /// route.
    fn registered(steps: &[(i64, Option<ClaimPolicy>)]) -> Horizons {
        let (mut horizons, mut before) = (Horizons::default(), None);
        for (version, (seconds, policy)) in steps.iter().enumerate() {
            let after = policy.map(|claim| Entry::Route(Route { claim, ..route() }));
            let key = after.as_ref().or(before.as_ref()).map(Entry::key).unwrap();
            let (who, why) = (String::new(), String::new());
            let change = Change {
                version: version as i64 + 1,
                at: at(*seconds),
                who,
                why,
                key,
                before,
                after: after.clone(),
            };
            horizons.add(&change);
            before = after;
        }
        horizons
    }

    /// Whether all claims are kept that a tenant sent or received.
    fn keeps(horizons: &Horizons, tenant: &str, sent_at: Option<Timestamp>, now: Timestamp) -> bool {
        let parties = [tenant.to_owned()];
        horizons.keep_all_of(Involved { parties: &parties, sender: None }, sent_at, now)
    }

    /// CLM-10
    #[test]
    fn shorter_past_retention_may_have_forgotten() {
        let ledger = Some(ClaimPolicy::ledger());
        let changed = registered(&[(0, Some(SHORT)), (1000, Some(SHORT)), (DAY, ledger)]);
        for (sent_at, now, is_kept) in [
            (Some(600), 700, true),
            (Some(600), 780, false),
            (Some(600), DAY + 5, false),
            (None, 100, true),
            (None, 180, false),
            (None, DAY + 5, false),
            // For a minute after a change, messages may be settled by the previous settings.
            (Some(DAY + 30), DAY + 300, false),
            (Some(DAY + 61), DAY + 300, true),
            (Some(DAY + 61), 2000 * DAY, true),
            (Some(DAY + 61), 2558 * DAY + 61, false),
        ] {
            let sent = sent_at.map(at);
            let destination = route().destination();
            assert_eq!(changed.keep_all_at(&destination, sent, at(now)), is_kept, "{sent_at:?} at {now}");
            assert_eq!(keeps(&changed, route().target.tenant(), sent, at(now)), is_kept);
        }
        assert!(
            changed.ever_claimed_at(&route().destination())
                && !changed.ever_claimed_at("acme/nobody:nothing")
        );
        let always = registered(&[(0, ledger)]);
        assert!(always.keep_all_at(&route().destination(), None, at(2000 * DAY)), "no route existed before");
        assert!(
            !always.keep_all_at("acme/nobody:nothing", None, at(0)),
            "an unknown destination promises nothing"
        );
        assert!(
            keeps(&always, "elsewhere", None, at(3000 * DAY)),
            "a tenant without permission sent nothing"
        );
        let unclaimed = registered(&[(0, Some(ClaimPolicy::None)), (10, ledger)]);
        assert!(!unclaimed.keep_all_at(&route().destination(), None, at(20)));
        assert!(unclaimed.ever_claimed_at(&route().destination()), "it claims ids now");
        let never = registered(&[(0, Some(ClaimPolicy::None)), (10, None)]);
        assert!(!never.ever_claimed_at(&route().destination()));
        let gone = registered(&[(0, Some(SHORT)), (1000, None)]);
        assert!(gone.ever_claimed_at(&route().destination()), "it claimed ids before its removal");
        assert!(!keeps(&gone, route().target.tenant(), Some(at(500)), at(2000)), "it existed at that time");
        assert!(keeps(&gone, route().target.tenant(), Some(at(1500)), at(2000)));
    }

    /// CLM-20
    #[test]
    fn past_claims_are_known_after_claiming_ends() {
        let none = Some(ClaimPolicy::None);
        let loosened = registered(&[(0, none), (1000, Some(SHORT)), (2000, none), (3000, None)]);
        for (came_at, was_claimed) in
            [(500, false), (950, true), (1500, true), (2030, true), (2061, false), (3500, false)]
        {
            let claimed = loosened.may_have_claimed_at(&route().destination(), at(came_at));
            assert_eq!(claimed, was_claimed, "{came_at}");
        }
        assert!(!loosened.may_have_claimed_at("acme/nobody:nothing", at(1500)));
        let once =
            registered(&[(0, Some(ClaimPolicy::None)), (10, Some(SHORT)), (20, Some(ClaimPolicy::None))]);
        let was_claiming =
            [9, 10, 19, 20].map(|seconds| once.was_claiming_at(&route().destination(), at(seconds)));
        assert_eq!(was_claiming, [false, true, true, false]);
    }

    /// CLM-10
    #[test]
    fn past_grant_may_have_been_used() {
        let mut horizons = registered(&[(0, Some(SHORT))]);
        assert!(keeps(&horizons, "zeta", None, at(500)));
        let name: GrantedName = GrantedName::ALL.parse().unwrap();
        let shop = "zeta/shop".parse().unwrap();
        let granted = Entry::Grant(Grant::new(shop, route().target, name));
        let (who, why, key, before) = (String::new(), String::new(), granted.key(), None);
        horizons.add(&Change { version: 9, at: at(1), who, why, key, before, after: Some(granted) });
        assert!(!keeps(&horizons, "zeta", None, at(500)));
        assert_eq!(horizons.version(), 9);
    }

    /// CLM-10: endless changes of a route use bounded memory, and make no claim certain.
    #[test]
    fn endless_changes_use_bounded_memory() {
        let long = Some(ClaimPolicy::Event { keep_seconds: 100_000, answers: false });
        let steps: Vec<_> =
            (0..100).map(|n| (n * 1000, if n % 2 == 0 { Some(SHORT) } else { long })).collect();
        let horizons = registered(&steps);
        assert!(horizons.destinations.values().all(|past| past.spans.len() <= SPANS_MAX));
        assert!(!horizons.keep_all_at(&route().destination(), Some(at(1500)), at(99_500)));
        let ending: Vec<_> =
            (0..100).map(|n| (n * 1000, Some(if n % 2 == 0 { ClaimPolicy::None } else { SHORT }))).collect();
        assert!(
            registered(&ending).may_have_claimed_at(&route().destination(), at(1500)),
            "a claim may exist"
        );
    }
}
