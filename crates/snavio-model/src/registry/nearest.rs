//! The names most similar to one that is not granted or not registered, for refusals and warnings.

use super::{Entry, EntryKey, Grant, Kind, Registry};
use crate::bounds;
use crate::name::{CommandName, ServiceName};
use crate::nearest::SIMILARITY_MIN;
use crate::time::Timestamp;

impl Registry {
    /// The grants of a source that are most similar to a denied name, best first. A grant for all names at
    /// the same target comes first, because it does not cover critical routes. The result reveals nothing
    /// about the grants of other sources or the entries of the target.
    pub fn nearest_grants(
        &self,
        source: &ServiceName,
        (target, name): (&ServiceName, &CommandName),
        at: Timestamp,
    ) -> Vec<&Grant> {
        let to_target = self.grants_from(format!("{source}>{target}:"));
        let to_target = to_target.take_while(|grant| grant.source == *source && grant.target == *target);
        let all = self.grants_from(format!("{source}>")).take_while(|grant| grant.source == *source);
        let to_others = all.filter(|grant| grant.target != *target);
        let grants = to_target.chain(to_others).take(bounds::GRANTS_LOOKED_THROUGH_MAX);
        let live = grants.filter(|grant| grant.expires_at.is_none_or(|end| at < end));
        let similarity = |grant: &Grant| {
            let of_target = match grant.target == *target {
                true if grant.name.is_all() => return f64::INFINITY,
                true => 1.0,
                false => strsim::jaro_winkler(target.as_str(), grant.target.as_str()),
            };
            of_target + strsim::jaro_winkler(name.as_str(), grant.name.as_str())
        };
        nearest(live.take(bounds::GRANTS_COMPARED_MAX).map(|grant| (similarity(grant), grant)))
    }

    /// The grants from a key on. All grants of a source are adjacent, and so are those for one target.
    fn grants_from(&self, name: String) -> impl Iterator<Item = &Grant> {
        let entries = self.entries.range::<_, EntryKey>(EntryKey { kind: Kind::Grant, name }..);
        entries.map_while(|(_, entry)| match entry.as_ref() {
            Entry::Grant(grant) => Some(grant),
            _ => None,
        })
    }

    /// The event types of a publisher that are most similar to an unregistered one, best first.
    pub fn nearest_event_types(&self, publisher: &ServiceName, name: &CommandName) -> Vec<&CommandName> {
        let types = self.service(publisher.as_str()).into_iter().flat_map(|view| view.event_types());
        let types = types.take(bounds::GRANTS_COMPARED_MAX).map(|event_type| &event_type.name);
        nearest(types.map(|known| (strsim::jaro_winkler(name.as_str(), known.as_str()), known)))
    }

    /// The warning for the target's owner about a grant that permits nothing, because neither route nor event
    /// type exists.
    pub fn grant_warning(&self, grant: &Grant, at: Timestamp) -> Option<String> {
        let Grant { source, target, name, .. } = grant;
        let view = self.service(target.as_str()).filter(|_| !name.is_all())?;
        let known = CommandName::new(name.as_str()).ok()?;
        if view.route(&known, at).is_some() || view.event_type(&known).is_some() {
            return None;
        }
        let routes = view.routes().map(|route| route.route.name.as_str());
        let names = routes.chain(view.event_types().map(|event_type| event_type.name.as_str()));
        let similar = names.map(|known| (strsim::jaro_winkler(name.as_str(), known), known));
        let similar = nearest(similar.filter(|(similarity, _)| *similarity > SIMILARITY_MIN));
        let meant = similar.first().map(|known| format!("; did you mean {known}?")).unwrap_or_default();
        Some(format!(
            "grant {source} > {target}: {name}: {target} has no route and no event type {name}, so messages under this \
             grant are refused (route-missing) until one is registered{meant}"
        ))
    }
}

/// The best candidates, best first; equal ones in their given order.
fn nearest<T>(candidates: impl Iterator<Item = (f64, T)>) -> Vec<T> {
    let mut candidates: Vec<_> = candidates.collect();
    candidates.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    candidates.into_iter().take(bounds::NEAREST_NAMES_MAX).map(|(_, candidate)| candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::EventType;
    use crate::registry::tests::{filled_with, grant, route, service, tenant};

    fn nearest_names(registry: &Registry, target: &str, name: &str) -> Vec<String> {
        let source = "acme/billing".parse().unwrap();
        let wanted = (&target.parse().unwrap(), &name.parse().unwrap());
        let grants = registry.nearest_grants(&source, wanted, Timestamp(0));
        grants.iter().map(|grant| format!("{} {}", grant.target, grant.name)).collect()
    }

    /// REG-2
    #[test]
    fn nearest_grants_belong_to_the_source() {
        let registry = filled_with(vec![
            tenant("acme"),
            service("acme/billing"),
            service("acme/bot"),
            service("acme/bank"),
            service("acme/shop"),
            grant("acme/billing", "acme/bot", "notify-user"),
            grant("acme/billing", "acme/bot", "pay"),
            grant("acme/billing", "acme/bank", "refund"),
            grant("acme/billing", "acme/bank", "notify"),
            grant("acme/shop", "acme/bot", "notify-users"),
        ]);
        assert_eq!(
            nearest_names(&registry, "acme/bot", "notify-users")[..2],
            ["acme/bot notify-user", "acme/bank notify"]
        );
        assert_eq!(nearest_names(&registry, "acme/bank", "refunds")[0], "acme/bank refund");
        assert_eq!(nearest_names(&registry, "acme/bots", "pay")[0], "acme/bot pay", "another target");
        assert_eq!(nearest_names(&registry, "zeta/x", "y").len(), bounds::NEAREST_NAMES_MAX);
        let source = "acme/bank".parse().unwrap();
        let wanted = (&"acme/bot".parse().unwrap(), &"pay".parse().unwrap());
        assert!(
            registry.nearest_grants(&source, wanted, Timestamp(0)).is_empty(),
            "this source has no grants"
        );
    }

    fn expired_grant(n: usize) -> Entry {
        match grant("acme/billing", "acme/bot", &format!("a{n}")) {
            Entry::Grant(grant) => Entry::Grant(Grant { expires_at: Some(Timestamp(0)), ..grant }),
            entry => entry,
        }
    }

    /// REG-2
    #[test]
    fn expired_grants_displace_no_live_ones() {
        let mut entries = vec![tenant("acme"), service("acme/billing"), service("acme/bot")];
        entries.extend((0..2 * bounds::GRANTS_COMPARED_MAX).map(expired_grant));
        entries.extend([grant("acme/billing", "acme/bot", "pay"), grant("acme/billing", "acme/bot", "*")]);
        assert_eq!(nearest_names(&filled_with(entries), "acme/bot", "pays"), ["acme/bot *", "acme/bot pay"]);
    }

    /// REG-8
    #[test]
    fn grant_without_route_or_event_type_has_a_warning() {
        let registry = filled_with(vec![
            tenant("acme"),
            service("acme/billing"),
            service("acme/bot"),
            Entry::Route(route("acme/bot", "notify")),
            Entry::EventType(EventType {
                owner: "acme/bot".parse().unwrap(),
                name: "bot.stopped".parse().unwrap(),
                version: Default::default(),
            }),
        ]);
        let warning = |name: &str| match grant("acme/billing", "acme/bot", name) {
            Entry::Grant(grant) => registry.grant_warning(&grant, Timestamp(0)),
            _ => None,
        };
        for fine in ["notify", "bot.stopped", "*"] {
            assert_eq!(warning(fine), None, "{fine}");
        }
        let misspelt = warning("notfy").unwrap();
        assert!(misspelt.ends_with("did you mean notify?"), "{misspelt}");
        let unlike = warning("zzz").unwrap();
        assert!(unlike.ends_with("until one is registered"), "{unlike}");
    }
}
