use std::time::Duration;

use super::*;
use crate::claim::ClaimPolicy;
use crate::limits;
use crate::name::QueueName;
use crate::time::Timestamp;

struct NoSecrets;

impl Unseal for NoSecrets {
    fn unseal(&self, _: &Sealed) -> Option<Secret> {
        None
    }
}

const WINDOW: Duration = Duration::from_secs(60);

fn author() -> Author {
    Author { who: "operator".into(), why: "test".into(), at: Timestamp(7) }
}

fn tenant(name: &str) -> Entry {
    Entry::Tenant(Tenant { name: name.parse().unwrap(), contact: None, suspended: false })
}

fn service(name: &str) -> Entry {
    Entry::Service(Service { name: name.parse().unwrap(), description: None })
}

fn route(target: &str, name: &str) -> Route {
    Route {
        target: target.parse().unwrap(),
        name: name.parse().unwrap(),
        queue: QueueName::new("in").unwrap(),
        dead_letter_queue: QueueName::new("dead").unwrap(),
        claim: ClaimPolicy::None,
        dispatch: DispatchMode::Adaptive,
        profile: Profile::Moderate,
        receives_max: 5,
        expected_drain_seconds: 300,
    }
}

fn grant(source: &str, target: &str, name: &str) -> Entry {
    Entry::Grant(Grant {
        source: source.parse().unwrap(),
        target: target.parse().unwrap(),
        name: name.parse().unwrap(),
    })
}

fn apply(registry: &Registry, wishes: Vec<Wish>) -> Result<Registry, Vec<String>> {
    plan(registry, wishes, &author(), WINDOW).map(|changes| registry.with(&changes, &NoSecrets))
}

fn filled() -> Registry {
    let wishes = vec![
        Wish::Put(grant("acme/billing", "acme/bot", "notify")),
        Wish::Put(Entry::Route(route("acme/bot", "notify"))),
        Wish::Put(service("acme/bot")),
        Wish::Put(service("acme/billing")),
        Wish::Put(tenant("acme")),
    ];
    apply(&Registry::default(), wishes).unwrap()
}

/// REG-1
#[test]
fn what_is_registered_is_found_by_name() {
    let registry = filled();
    let bot = registry.service("acme/bot").unwrap();
    let notify = CommandName::new("notify").unwrap();
    assert_eq!(bot.route(&notify).unwrap().destination.as_ref(), "acme/bot:notify");
    assert!(bot.grant(&"acme/billing".parse().unwrap(), &notify).is_some());
    assert!(bot.grant(&"acme/bot".parse().unwrap(), &notify).is_none());
    assert_eq!(registry.version(), 5);
}

/// REG-5
#[test]
fn a_change_says_what_was_before_and_after_and_the_same_again_changes_nothing() {
    let registry = filled();
    let mut other = route("acme/bot", "notify");
    other.claim = ClaimPolicy::strict();
    let wishes = vec![Wish::Put(Entry::Route(other.clone())), Wish::Put(tenant("acme"))];
    let changes = plan(&registry, wishes, &author(), WINDOW).unwrap();
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].before, Some(Entry::Route(route("acme/bot", "notify"))));
    assert_eq!(changes[0].after, Some(Entry::Route(other)));
    assert_eq!((changes[0].version, changes[0].who.as_str()), (6, "operator"));
}

/// REG-2
#[test]
fn what_would_not_hold_together_is_refused_with_every_problem_named() {
    let mut bad = route("acme/nobody", "x");
    bad.dead_letter_queue = bad.queue.clone();
    bad.receives_max = 0;
    bad.claim = ClaimPolicy::Strict { keep_seconds: 10 };
    let problems = apply(&filled(), vec![Wish::Put(Entry::Route(bad))]).unwrap_err();
    assert_eq!(problems.len(), 4, "{problems:?}");
    assert!(problems[0].contains("service acme/nobody is not registered"));
}

/// REG-1
#[test]
fn free_texts_have_an_end() {
    let with = |contact: usize, description: usize| {
        let contact = Some("ü".repeat(contact));
        let tenant = Entry::Tenant(Tenant { name: "acme".parse().unwrap(), contact, suspended: false });
        let description = Some("ü".repeat(description));
        let bot = Entry::Service(Service { name: "acme/bot".parse().unwrap(), description });
        apply(&Registry::default(), vec![Wish::Put(tenant), Wish::Put(bot)])
    };
    let (contact, description) = (limits::CONTACT_CHARS_MAX, limits::DESCRIPTION_CHARS_MAX);
    assert!(with(contact, description).is_ok());
    let problems = with(contact + 1, description + 1).unwrap_err();
    assert_eq!(problems.len(), 2, "{problems:?}");
}

#[test]
fn what_others_need_cannot_be_removed_before_them() {
    let registry = filled();
    let bot = EntryKey::service(&"acme/bot".parse().unwrap());
    let problems = apply(&registry, vec![Wish::Remove(bot.clone())]).unwrap_err();
    assert_eq!(problems.len(), 2, "{problems:?}");

    let everything = registry.entries().map(|entry| Wish::Remove(entry.key())).collect();
    let empty = apply(&registry, everything).unwrap();
    assert_eq!(empty.entries().count(), 0);
    assert!(empty.service("acme/bot").is_none());
}
