//! Adapters with their decrypted secrets.

use std::sync::Arc;

use super::{Entry, EntryKey, Registry, Unseal};
use crate::adapter::{Adapter, ForeignSecret};

/// An adapter with its decrypted secrets, ready to verify requests.
#[derive(Debug)]
pub struct LiveAdapter {
    /// The adapter as registered.
    pub adapter: Adapter,
    /// The secrets that could be decrypted.
    pub secrets: Vec<ForeignSecret>,
}

impl LiveAdapter {
    pub(super) fn open(adapter: &Adapter, unseal: &dyn Unseal) -> Self {
        let secrets = adapter.secrets.iter().filter_map(|sealed| unseal.unseal_text(sealed)).collect();
        Self { adapter: adapter.clone(), secrets }
    }

    /// The name `tenant/name`.
    pub fn name(&self) -> String {
        EntryKey::adapter(&self.adapter).name
    }

    /// Whether the registry still has this adapter unchanged.
    pub fn is_in(&self, registry: &Registry) -> bool {
        let current = registry.get(&EntryKey::adapter(&self.adapter));
        matches!(current, Some(Entry::Adapter(current)) if **current == self.adapter)
    }
}

impl Registry {
    /// The adapter with this name in a tenant.
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

    /// Sealed texts are the secrets themselves.
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
    fn adapter_is_found_with_its_decryptable_secrets() {
        let mut registry = shop();
        registry.put(Entry::Adapter(Box::new(adapter())), &Plain);
        let live = Arc::clone(registry.adapter("acme", "hub").unwrap());
        assert_eq!((live.name().as_str(), live.secrets.len()), ("acme/hub", 1));
        assert!(registry.adapter("zeta", "hub").is_none());
        assert!(live.is_in(&registry));
        let changed = Adapter { source: "other".to_owned(), ..adapter() };
        registry.put(Entry::Adapter(Box::new(changed.clone())), &Plain);
        assert!(!live.is_in(&registry), "the adapter has changed");
        registry.remove(&EntryKey::adapter(&changed));
        assert!(registry.adapter("acme", "hub").is_none() && !live.is_in(&registry));
    }

    fn put_adapter(adapter: Adapter) -> Wish {
        Wish::Put(Entry::Adapter(Box::new(adapter)))
    }

    /// MSG-7, REG-1
    #[test]
    fn adapter_needs_its_service_and_a_fixed_type() {
        let mut registry = shop();
        assert!(problems(&registry, put_adapter(adapter())).is_empty());
        let other = Adapter { event_type: "github".parse().unwrap(), ..adapter() };
        let missing = "adapter acme/hub: event_type acme/shop:github is not registered";
        assert_eq!(problems(&registry, put_adapter(other.clone())), [missing]);
        let suffix = Some(Origin::Header("x-github-event".to_owned()));
        assert!(problems(&registry, put_adapter(Adapter { event_type_suffix: suffix, ..other })).is_empty());
        let foreign = Adapter { service: "acme/none".parse().unwrap(), ..adapter() };
        assert_eq!(problems(&registry, put_adapter(foreign)).len(), 2);
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

    fn stripe_adapter(tolerance_seconds: u32) -> Entry {
        let verification = Verification::Stripe { tolerance_seconds };
        Entry::Adapter(Box::new(Adapter { verification, ..adapter() }))
    }

    fn strict_subscription(keep_seconds: u32) -> Entry {
        subscription("acme/shop", "github.event", ClaimPolicy::Strict { keep_seconds })
    }

    /// CLM-20, MSG-7
    #[test]
    fn claim_must_outlive_the_adapters_tolerance() {
        let expected = "claim.keep_seconds is 659, but a claim must outlive twice the tolerance of the adapter of its events, and a wait for the commit: 2 × 300 s + 60 s = 660 s";
        let mut registry = shop();
        registry.put(stripe_adapter(300), &Plain);
        let key = "subscription acme/shop:acme/shop:github.event";
        assert_eq!(problems(&registry, Wish::Put(strict_subscription(659))), [format!("{key}: {expected}")]);
        assert!(problems(&registry, Wish::Put(strict_subscription(660))).is_empty());
        let none = subscription("acme/shop", "github.event", ClaimPolicy::None);
        assert!(problems(&registry, Wish::Put(none)).is_empty(), "a route without claims promises nothing");

        let mut registry = shop();
        registry.put(strict_subscription(659), &Plain);
        assert_eq!(
            problems(&registry, Wish::Put(stripe_adapter(300))),
            [format!("adapter acme/hub: {key}: {expected}")]
        );
        assert!(problems(&registry, Wish::Put(stripe_adapter(299))).is_empty());
        assert!(
            problems(&registry, Wish::Put(Entry::Adapter(Box::new(adapter())))).is_empty(),
            "it has no tolerance"
        );
        let both = vec![Wish::Put(stripe_adapter(3600)), Wish::Put(strict_subscription(3600))];
        assert_eq!(all_problems(&shop(), both).len(), 2, "each of the two has its own problem");
        assert!(
            all_problems(
                &shop(),
                vec![Wish::Put(stripe_adapter(3600)), Wish::Put(strict_subscription(7260))]
            )
            .is_empty()
        );

        let suffix = Some(Origin::Pointer("/kind".to_owned().try_into().unwrap()));
        let verification = Verification::Stripe { tolerance_seconds: 300 };
        let any = Adapter {
            event_type: "github".parse().unwrap(),
            event_type_suffix: suffix,
            verification,
            ..adapter()
        };
        assert_eq!(
            problems(&registry, Wish::Put(Entry::Adapter(Box::new(any)))).len(),
            1,
            "a suffix may produce the subscribed type"
        );
    }

    /// REG-5, MSG-7
    #[test]
    fn evidence_contains_no_secret_of_an_adapter() {
        let text = |adapter: Adapter| serde_json::to_string(&Entry::Adapter(Box::new(adapter))).unwrap();
        let evidence = EntryEvidence::of(&text(adapter()));
        assert!(evidence.text.contains("github") && !evidence.text.contains("secret"), "{}", evidence.text);
        let other = EntryEvidence::of(&text(Adapter { secrets: vec![Sealed("b".to_owned())], ..adapter() }));
        assert_eq!(evidence.text, other.text);
        assert_ne!(evidence.secret_digest, other.secret_digest);
    }
}
