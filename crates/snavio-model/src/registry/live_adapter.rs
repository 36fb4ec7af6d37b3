//! An adapter whose secrets are open.

use std::sync::Arc;

use super::{Entry, EntryKey, Registry, Unseal};
use crate::adapter::{Adapter, ForeignSecret};

/// An adapter as requests are verified by it.
#[derive(Debug)]
pub struct LiveAdapter {
    /// As it is registered.
    pub adapter: Adapter,
    /// Its secrets, those that opened.
    pub secrets: Vec<ForeignSecret>,
}

impl LiveAdapter {
    pub(super) fn open(adapter: &Adapter, unseal: &dyn Unseal) -> Self {
        let secrets = adapter.secrets.iter().filter_map(|it| unseal.unseal_text(it)).collect();
        Self { adapter: adapter.clone(), secrets }
    }

    /// What it is called: `tenant/name`.
    pub fn name(&self) -> String {
        EntryKey::adapter(&self.adapter).name
    }

    /// Whether it is still registered just so.
    pub fn is_in(&self, registry: &Registry) -> bool {
        matches!(registry.get(&EntryKey::adapter(&self.adapter)), Some(Entry::Adapter(it)) if **it == self.adapter)
    }
}

impl Registry {
    /// The adapter of this name within a tenant.
    pub fn adapter(&self, tenant: &str, name: &str) -> Option<&Arc<LiveAdapter>> {
        self.adapters.get(&format!("{tenant}/{name}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::adapter::{Origin, Preset, Verification};
    use crate::claim::ClaimPolicy;
    use crate::registry::{Author, EntryEvidence, EventType, Route, Sealed, Service, Tenant, Wish, plan};
    use crate::signature::signing::Secret;
    use crate::time::Timestamp;

    /// Texts are sealed as they are.
    struct Plain;

    impl Unseal for Plain {
        fn unseal(&self, _: &Sealed) -> Option<Secret> {
            None
        }

        fn unseal_text(&self, sealed: &Sealed) -> Option<ForeignSecret> {
            ForeignSecret::new(&sealed.0).ok()
        }
    }

    fn adapter() -> Adapter {
        let secrets = vec![Sealed("a secret of theirs".to_owned()), Sealed("short".to_owned())];
        Preset::Github.adapter("hub".parse().unwrap(), "acme/shop".parse().unwrap(), secrets)
    }

    fn shop() -> Registry {
        let owner: crate::name::ServiceName = "acme/shop".parse().unwrap();
        let mut registry = Registry::default();
        let name = "github.event".parse().unwrap();
        let entries = vec![
            Entry::Tenant(Tenant { name: "acme".parse().unwrap(), contact: None, suspended: false }),
            Entry::Service(Service::new(owner.clone())),
            Entry::EventType(EventType { owner, name, version: Default::default() }),
        ];
        registry.fill(entries, &Plain);
        registry
    }

    fn problems(registry: &Registry, wish: Wish) -> Vec<String> {
        all_problems(registry, vec![wish])
    }

    fn all_problems(registry: &Registry, wishes: Vec<Wish>) -> Vec<String> {
        let author = Author { who: String::new(), why: String::new(), at: Timestamp(1) };
        plan(registry, wishes, &author, Duration::from_secs(60)).err().unwrap_or_default()
    }

    /// MSG-7, REG-1
    #[test]
    fn an_adapter_is_found_by_tenant_and_name_with_the_secrets_that_open() {
        let mut registry = shop();
        registry.put(Entry::Adapter(Box::new(adapter())), &Plain);
        let live = Arc::clone(registry.adapter("acme", "hub").unwrap());
        assert_eq!((live.name().as_str(), live.secrets.len()), ("acme/hub", 1));
        assert!(registry.adapter("zeta", "hub").is_none());
        assert!(live.is_in(&registry));
        let changed = Adapter { source: "other".to_owned(), ..adapter() };
        registry.put(Entry::Adapter(Box::new(changed.clone())), &Plain);
        assert!(!live.is_in(&registry), "it is another one now");
        registry.remove(&EntryKey::adapter(&changed));
        assert!(registry.adapter("acme", "hub").is_none() && !live.is_in(&registry));
    }

    /// MSG-7, REG-1
    #[test]
    fn an_adapter_needs_its_service_and_its_type_unless_a_suffix_makes_it() {
        let mut registry = shop();
        let put = |adapter: Adapter| Wish::Put(Entry::Adapter(Box::new(adapter)));
        assert!(problems(&registry, put(adapter())).is_empty());
        let other = Adapter { event_type: "github".parse().unwrap(), ..adapter() };
        let missing = "adapter acme/hub: event_type acme/shop:github is not registered";
        assert_eq!(problems(&registry, put(other.clone())), [missing]);
        let suffix = Some(Origin::Header("x-github-event".to_owned()));
        assert!(problems(&registry, put(Adapter { event_type_suffix: suffix, ..other })).is_empty());
        let foreign = Adapter { service: "acme/none".parse().unwrap(), ..adapter() };
        assert_eq!(problems(&registry, put(foreign)).len(), 2);
        registry.put(Entry::Adapter(Box::new(adapter())), &Plain);
        let of_type =
            EntryKey { kind: crate::registry::Kind::EventType, name: "acme/shop:github.event".to_owned() };
        assert_eq!(
            problems(&registry, Wish::Remove(of_type)),
            ["event_type acme/shop:github.event cannot be removed while adapter acme/hub is registered"]
        );
    }

    fn subscription(target: &str, name: &str, claim: ClaimPolicy) -> Entry {
        let text = format!(
            r#"{{"target":"{target}","events_of":"acme/shop","name":"{name}","queue":"q","dead_letter_queue":"dead"}}"#
        );
        let route: Route = serde_json::from_str(&text).unwrap();
        Entry::Subscription(Route { claim, ..route })
    }

    /// CLM-20, MSG-7
    #[test]
    fn a_claim_outlives_what_an_adapter_still_takes_whichever_is_registered_first() {
        let put = |entry: Entry| Wish::Put(entry);
        let stripe = |tolerance_seconds| {
            let verification = Verification::Stripe { tolerance_seconds };
            Entry::Adapter(Box::new(Adapter { verification, ..adapter() }))
        };
        let strict = |keep_seconds| {
            let claim = ClaimPolicy::Strict { keep_seconds };
            subscription("acme/shop", "github.event", claim)
        };
        let told = "claim.keep_seconds is 659, but a claim must outlive twice the tolerance of the adapter whose events it is for, and a wait for the commit: 2 × 300 s + 60 s = 660 s";
        let mut registry = shop();
        registry.put(stripe(300), &Plain);
        let key = "subscription acme/shop:acme/shop:github.event";
        assert_eq!(problems(&registry, put(strict(659))), [format!("{key}: {told}")]);
        assert!(problems(&registry, put(strict(660))).is_empty());
        let none = subscription("acme/shop", "github.event", ClaimPolicy::None);
        assert!(problems(&registry, put(none)).is_empty(), "it promises nothing");

        let mut registry = shop();
        registry.put(strict(659), &Plain);
        assert_eq!(problems(&registry, put(stripe(300))), [format!("adapter acme/hub: {key}: {told}")]);
        assert!(problems(&registry, put(stripe(299))).is_empty());
        assert!(problems(&registry, put(Entry::Adapter(Box::new(adapter())))).is_empty(), "it knows no time");
        let both = vec![put(stripe(3600)), put(strict(3600))];
        assert_eq!(all_problems(&shop(), both).len(), 2, "in one file each is told");
        assert!(all_problems(&shop(), vec![put(stripe(3600)), put(strict(7260))]).is_empty());

        let suffix = Some(Origin::Pointer("/kind".to_owned().try_into().unwrap()));
        let verification = Verification::Stripe { tolerance_seconds: 300 };
        let any = Adapter {
            event_type: "github".parse().unwrap(),
            event_type_suffix: suffix,
            verification,
            ..adapter()
        };
        assert_eq!(
            problems(&registry, put(Entry::Adapter(Box::new(any)))).len(),
            1,
            "a suffix may make its type"
        );
    }

    /// REG-5, MSG-7
    #[test]
    fn whoever_verifies_the_changelog_sees_no_secret_of_an_adapter() {
        let text = |adapter: Adapter| serde_json::to_string(&Entry::Adapter(Box::new(adapter))).unwrap();
        let evidence = EntryEvidence::of(&text(adapter()));
        assert!(evidence.text.contains("github") && !evidence.text.contains("secret"), "{}", evidence.text);
        let other = EntryEvidence::of(&text(Adapter { secrets: vec![Sealed("b".to_owned())], ..adapter() }));
        assert_eq!(evidence.text, other.text);
        assert_ne!(evidence.secret_digest, other.secret_digest);
    }
}
