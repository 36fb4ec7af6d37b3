//! How far back it can be known what a tenant sent (CLM-10, CLM-19).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{BoundRoute, Change, Entry, Registry, Route, ServiceView};
use crate::bounds;
use crate::name::{GrantedName, TenantName};
use crate::time::Timestamp;

/// Times of one destination that are told apart; older ones are taken for one, with the shortest keep of them.
const SPANS_MAX: usize = 16;

/// Claims by the tenants that they are of: the sender's, and the owner of the destination.
#[derive(Debug, Clone, Copy, Default)]
pub struct Involved<'a> {
    /// Each of these is the sender or the owner; any tenant where there are none.
    pub parties: &'a [String],
    /// The sender; any when not given.
    pub sender: Option<&'a TenantName>,
}

impl Involved<'_> {
    /// Whether such a claim can be at a destination of this owner, by who can send there.
    fn can_be_at(&self, owner: &str, is_sent_by: impl Fn(&str) -> bool) -> bool {
        let is_involved = |party: &String| party == owner || is_sent_by(party);
        self.parties.iter().all(is_involved) && self.sender.is_none_or(|sender| is_sent_by(sender.as_str()))
    }
}

impl Registry {
    /// The shortest time for which such claims are kept. A tenant can send by routes to its own services, by those of others
    /// that it is granted, and by subscriptions to its events. None if no claim is made of anything.
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
        view.grants.get(name).is_some_and(|of_name| of_name.keys().any(|it| it.tenant() == tenant))
    };
    view.name.tenant() == tenant || is_granted(route.route.name.as_str()) || is_granted(GrantedName::ALL)
}

fn is_published_by(tenant: &str, route: &BoundRoute) -> bool {
    route.route.events_of.as_ref().is_some_and(|it| it.tenant() == tenant)
}

/// For how long claims were kept at each destination, and when that was so: what is registered for years now may have been
/// for minutes when something was sent, and what was claimed then is forgotten (CLM-10). Made of the changelog.
#[derive(Debug, Default)]
pub struct Horizons {
    version: i64,
    destinations: BTreeMap<Arc<str>, Past>,
    /// What a tenant's services were ever granted: targets and names.
    granted: BTreeMap<String, BTreeSet<(String, String)>>,
    /// Every tenant that was ever registered.
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

/// A time in which claims were kept for so long; not at all where none were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    from: Timestamp,
    until: Option<Timestamp>,
    keep: Duration,
}

impl Span {
    /// Whether a claim that was made then, of what was sent at a time at the earliest, is kept still. For a while after a
    /// change messages are still settled by what was before.
    fn keeps(&self, sent_at: Option<Timestamp>, now: Timestamp) -> bool {
        let earliest = sent_at.map_or(self.from, |at| at.max(self.from));
        let is_later = self.until.is_some_and(|until| earliest > until.plus(bounds::CLAIM_KEEP_SLACK));
        is_later || now < earliest.plus(self.keep)
    }
}

impl Horizons {
    /// Up to which version of the registry it is made.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// Takes in the next change.
    pub fn add(&mut self, change: &Change) {
        self.version = change.version;
        if let Some(Entry::Grant(grant)) = &change.after {
            let of_tenant = self.granted.entry(grant.source.tenant().to_owned()).or_default();
            of_tenant.insert((grant.target.to_string(), grant.name.to_string()));
        }
        if let Some(Entry::Tenant(tenant)) = &change.after {
            self.tenants.insert(tenant.name.clone());
        }
        let (before, after) = (routed(change.before.as_ref()), routed(change.after.as_ref()));
        let Some(route) = after.or(before) else { return };
        let past = self.destinations.entry(route.destination()).or_insert_with(|| Past {
            target: route.target.to_string(),
            tenant: route.target.tenant().to_owned(),
            name: route.name.to_string(),
            publishers: route.events_of.as_ref().map(|it| it.tenant().to_owned()),
            claimed: false,
            spans: Vec::new(),
        });
        past.change(before.map(keep), after.map(keep), change.at);
    }

    /// Whether whatever was sent to a destination at a time, or at any, would still be known.
    pub fn keep_all_at(&self, destination: &str, sent_at: Option<Timestamp>, now: Timestamp) -> bool {
        let past = self.destinations.get(destination);
        past.is_some_and(|past| past.spans.iter().all(|it| it.keeps(sent_at, now)))
    }

    /// Every tenant that was ever registered, in the order of their names.
    pub fn tenants(&self) -> impl Iterator<Item = &TenantName> {
        self.tenants.iter()
    }

    /// Whether a destination was ever registered at which such claims can be.
    pub fn was_registered(&self, destination: &str, involved: Involved<'_>) -> bool {
        self.destinations.get(destination).is_some_and(|past| self.can_be_at(past, involved))
    }

    /// Whether claims are made at a destination, or ever were.
    pub fn ever_claimed_at(&self, destination: &str) -> bool {
        self.destinations.get(destination).is_some_and(|it| it.claimed)
    }

    /// Whether a destination that claims was there at a time.
    pub fn was_claiming_at(&self, destination: &str, at: Timestamp) -> bool {
        let past = self.destinations.get(destination);
        let was_then = |it: &Span| !it.keep.is_zero() && at >= it.from && it.until.is_none_or(|end| at < end);
        past.is_some_and(|past| past.spans.iter().any(was_then))
    }

    /// Whether what came to a destination at a time was claimed there, or may have been: for a while around a change messages
    /// are settled by what was before and after it.
    pub fn may_have_claimed_at(&self, destination: &str, at: Timestamp) -> bool {
        let may_be_of = |it: &Span| {
            let is_later = it.until.is_some_and(|until| at > until.plus(bounds::CLAIM_KEEP_SLACK));
            !is_later && at >= it.from.minus(bounds::CLAIM_KEEP_SLACK)
        };
        let Some(past) = self.destinations.get(destination) else { return false };
        // Of the oldest times, which are taken for one, the shortest keep is known, and some may have been longer.
        let merged = past.spans.first().filter(|_| past.claimed && past.spans.len() == SPANS_MAX);
        let claiming = past.spans.iter().filter(|it| !it.keep.is_zero());
        claiming.chain(merged).any(may_be_of)
    }

    /// Whether every such claim of what was sent at a time, or at any, would still be kept, wherever claims were ever made.
    pub fn keep_all_of(&self, involved: Involved<'_>, sent_at: Option<Timestamp>, now: Timestamp) -> bool {
        let past = self.destinations.values().filter(|past| past.claimed && self.can_be_at(past, involved));
        past.flat_map(|past| &past.spans).all(|span| span.keeps(sent_at, now))
    }

    /// Whether such claims can be at a destination, by who could ever send there.
    fn can_be_at(&self, past: &Past, involved: Involved<'_>) -> bool {
        let is_granted = |tenant: &str, name: &str| {
            let granted = self.granted.get(tenant);
            granted.is_some_and(|granted| granted.contains(&(past.target.clone(), name.to_owned())))
        };
        let is_sent_by = |tenant: &str| match &past.publishers {
            Some(publishers) => publishers == tenant,
            None => {
                past.tenant == tenant
                    || is_granted(tenant, &past.name)
                    || is_granted(tenant, GrantedName::ALL)
            }
        };
        involved.can_be_at(&past.tenant, is_sent_by)
    }
}

impl Past {
    fn change(&mut self, before: Option<Duration>, after: Option<Duration>, at: Timestamp) {
        self.claimed |= before.into_iter().chain(after).any(|keep| !keep.is_zero());
        // Of the time before the changelog nothing is known but this.
        if let Some(keep) = before.filter(|_| self.spans.is_empty()) {
            self.spans.push(Span { from: Timestamp(0), until: None, keep });
        }
        if let Some(open) = self.spans.last_mut().filter(|it| it.until.is_none()) {
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

fn routed(entry: Option<&Entry>) -> Option<&Route> {
    match entry {
        Some(Entry::Route(route) | Entry::Subscription(route)) => Some(route),
        _ => None,
    }
}

fn keep(route: &Route) -> Duration {
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

    /// The horizons after a route was registered so, at these times; not at all, where there is no policy.
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

    /// Whether claims are kept that a tenant sent, or was sent.
    fn kept(horizons: &Horizons, tenant: &str, sent_at: Option<Timestamp>, now: Timestamp) -> bool {
        let parties = [tenant.to_owned()];
        horizons.keep_all_of(Involved { parties: &parties, sender: None }, sent_at, now)
    }

    /// CLM-10
    #[test]
    fn what_was_sent_under_a_shorter_keep_may_be_forgotten() {
        let ledger = Some(ClaimPolicy::ledger());
        let changed = registered(&[(0, Some(SHORT)), (1000, Some(SHORT)), (DAY, ledger)]);
        for (sent_at, now, is_kept) in [
            (Some(600), 700, true),
            (Some(600), 780, false),
            (Some(600), DAY + 5, false),
            (None, 100, true),
            (None, 180, false),
            (None, DAY + 5, false),
            // For a minute after a change messages may be settled by what was before.
            (Some(DAY + 30), DAY + 300, false),
            (Some(DAY + 61), DAY + 300, true),
            (Some(DAY + 61), 2000 * DAY, true),
            (Some(DAY + 61), 2558 * DAY + 61, false),
        ] {
            let sent = sent_at.map(at);
            let destination = route().destination();
            assert_eq!(changed.keep_all_at(&destination, sent, at(now)), is_kept, "{sent_at:?} at {now}");
            assert_eq!(kept(&changed, route().target.tenant(), sent, at(now)), is_kept);
        }
        assert!(
            changed.ever_claimed_at(&route().destination())
                && !changed.ever_claimed_at("acme/nobody:nothing")
        );
        let always = registered(&[(0, ledger)]);
        assert!(always.keep_all_at(&route().destination(), None, at(2000 * DAY)), "nothing was there before");
        assert!(
            !always.keep_all_at("acme/nobody:nothing", None, at(0)),
            "and of what never was nothing is said"
        );
        assert!(kept(&always, "elsewhere", None, at(3000 * DAY)), "who can send nothing has sent nothing");
        let unclaimed = registered(&[(0, Some(ClaimPolicy::None)), (10, ledger)]);
        assert!(!unclaimed.keep_all_at(&route().destination(), None, at(20)));
        assert!(unclaimed.ever_claimed_at(&route().destination()), "it is now");
        let never = registered(&[(0, Some(ClaimPolicy::None)), (10, None)]);
        assert!(!never.ever_claimed_at(&route().destination()));
        let gone = registered(&[(0, Some(SHORT)), (1000, None)]);
        assert!(gone.ever_claimed_at(&route().destination()), "it was then");
        assert!(!kept(&gone, route().target.tenant(), Some(at(500)), at(2000)), "it was there then");
        assert!(kept(&gone, route().target.tenant(), Some(at(1500)), at(2000)));
    }

    /// CLM-20
    #[test]
    fn what_was_claimed_when_it_came_is_known_when_nothing_is_claimed_any_more() {
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
        let claiming = |seconds| once.was_claiming_at(&route().destination(), at(seconds));
        assert_eq!([9, 10, 19, 20].map(claiming), [false, true, true, false]);
    }

    /// CLM-10
    #[test]
    fn what_was_granted_once_may_have_been_used() {
        let mut horizons = registered(&[(0, Some(SHORT))]);
        assert!(kept(&horizons, "zeta", None, at(500)));
        let name: GrantedName = GrantedName::ALL.parse().unwrap();
        let shop = "zeta/shop".parse().unwrap();
        let granted = Entry::Grant(Grant::new(shop, route().target, name));
        let (who, why, key, before) = (String::new(), String::new(), granted.key(), None);
        horizons.add(&Change { version: 9, at: at(1), who, why, key, before, after: Some(granted) });
        assert!(!kept(&horizons, "zeta", None, at(500)));
        assert_eq!(horizons.version(), 9);
    }

    /// CLM-10: whoever changes a route again and again fills no memory, and makes nothing certain.
    #[test]
    fn changes_without_end_have_their_bound() {
        let long = Some(ClaimPolicy::Event { keep_seconds: 100_000, answers: false });
        let steps: Vec<_> =
            (0..100).map(|it| (it * 1000, if it % 2 == 0 { Some(SHORT) } else { long })).collect();
        let horizons = registered(&steps);
        assert!(horizons.destinations.values().all(|it| it.spans.len() <= SPANS_MAX));
        assert!(!horizons.keep_all_at(&route().destination(), Some(at(1500)), at(99_500)));
        let ending: Vec<_> = (0..100)
            .map(|it| (it * 1000, Some(if it % 2 == 0 { ClaimPolicy::None } else { SHORT })))
            .collect();
        assert!(
            registered(&ending).may_have_claimed_at(&route().destination(), at(1500)),
            "it may have been"
        );
    }
}
