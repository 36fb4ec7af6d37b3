use std::time::Duration;

use super::*;
use crate::adapter::{Adapter, Preset};
use crate::bounds;
use crate::claim::ClaimPolicy;
use crate::delivery::processing::{Processing, PushForm};
use crate::name::{GrantedName, QueueName};
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

pub(super) fn tenant(name: &str) -> Entry {
    Entry::Tenant(Tenant { name: name.parse().unwrap(), contact: None, suspended: false })
}

pub(super) fn service(name: &str) -> Entry {
    Entry::Service(Service::new(name.parse().unwrap()))
}

pub(super) fn filled_with(entries: Vec<Entry>) -> Registry {
    let mut registry = Registry::default();
    registry.fill(entries, &NoSecrets);
    registry
}

pub(super) fn route(target: &str, name: &str) -> Route {
    Route {
        target: target.parse().unwrap(),
        name: name.parse().unwrap(),
        events_of: None,
        queue: QueueName::new("in").unwrap(),
        dead_letter_queue: QueueName::new("dead").unwrap(),
        claim: ClaimPolicy::None,
        dispatch: DispatchMode::Adaptive,
        profile: Profile::Moderate,
        processing: Default::default(),
        receives_max: 5,
        expected_drain_seconds: 300,
        order: None,
        acl: Acl::Cached,
        expires_at: None,
        disabled: None,
    }
}

pub(super) fn grant(source: &str, target: &str, name: &str) -> Entry {
    let name: GrantedName = name.parse().unwrap();
    Entry::Grant(Grant::new(source.parse().unwrap(), target.parse().unwrap(), name))
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
fn registered_entries_are_found_by_name() {
    let registry = filled();
    let bot = registry.service("acme/bot").unwrap();
    let notify = CommandName::new("notify").unwrap();
    assert_eq!(bot.route(&notify, Timestamp(7)).unwrap().destination.as_ref(), "acme/bot:notify");
    assert!(bot.grant(&"acme/billing".parse().unwrap(), &notify, Timestamp(7)).is_some());
    assert!(bot.grant(&"acme/bot".parse().unwrap(), &notify, Timestamp(7)).is_none());
    assert_eq!(registry.version(), 5);
}

/// REG-5
#[test]
fn change_records_before_and_after_and_skips_repeats() {
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
fn inconsistent_change_is_refused_with_all_problems() {
    let mut bad = route("acme/nobody", "x");
    bad.dead_letter_queue = bad.queue.clone();
    bad.receives_max = 0;
    bad.claim = ClaimPolicy::Strict { keep_seconds: 10 };
    let problems = apply(&filled(), vec![Wish::Put(Entry::Route(bad))]).unwrap_err();
    assert_eq!(problems.len(), 4, "{problems:?}");
    assert!(problems[0].contains("service acme/nobody is not registered"));
}

/// A tenant and a service with texts of these lengths.
fn apply_texts(contact: usize, description: usize) -> Result<Registry, Vec<String>> {
    let contact = Some("ü".repeat(contact));
    let tenant = Entry::Tenant(Tenant { name: "acme".parse().unwrap(), contact, suspended: false });
    let description = Some("ü".repeat(description));
    let bot = Entry::Service(Service { description, ..Service::new("acme/bot".parse().unwrap()) });
    apply(&Registry::default(), vec![Wish::Put(tenant), Wish::Put(bot)])
}

/// REG-1
#[test]
fn free_texts_are_limited() {
    let (contact, description) = (bounds::CONTACT_CHARS_MAX, bounds::DESCRIPTION_CHARS_MAX);
    assert!(apply_texts(contact, description).is_ok());
    let problems = apply_texts(contact + 1, description + 1).unwrap_err();
    assert_eq!(problems.len(), 2, "{problems:?}");
}

/// REG-1
#[test]
fn control_characters_are_refused_in_every_text() {
    let entries = [
        r#"{"kind":"tenant","name":"acme","contact":"a?b"}"#,
        r#"{"kind":"service","name":"acme/bot","description":"a?b"}"#,
        r#"{"kind":"issuer","issuer":"https://a?b","audience":"snavio","keys":{"file":"/keys"}}"#,
        r#"{"kind":"issuer","issuer":"https://a","audience":"sna?vio","keys":{"file":"/keys"}}"#,
        r#"{"kind":"issuer","issuer":"https://a","audience":"snavio","keys":{"file":"/a?b"}}"#,
        r#"{"kind":"issuer","issuer":"https://a","audience":"snavio","keys":{"url":"https://a?b"}}"#,
        r#"{"kind":"workload","issuer":"https://a?b","subject":"job","service":"acme/bot"}"#,
        r#"{"kind":"workload","issuer":"https://a","subject":"a?b","service":"acme/bot"}"#,
        r#"{"kind":"ban","source":"acme/bot","reason":"a?b"}"#,
        r#"{"kind":"grant_request","source":"acme/bot","target":"acme/bot","name":"x","purpose":"a?b","asked_by":"x","asked_at":1}"#,
        r#"{"kind":"personal_token","id":"1","person":"a?b","role":"auditor","secret_hash":"","created_at":1,"expires_at":2}"#,
        r#"{"kind":"client","id":"a?b","service":"acme/bot","secret_hash":"","created_at":1}"#,
        r#"{"kind":"push_secret","destination":"acme/bot:x?y","secret":"","created_at":1}"#,
        r#"{"kind":"route","target":"acme/bot","name":"x","queue":"q","dead_letter_queue":"d","claim":{"policy":"strict"},
            "processing":{"kind":"push","url":"https://a.example/?"}}"#,
        r#"{"kind":"route","target":"acme/bot","name":"x","queue":"q","dead_letter_queue":"d",
            "disabled":{"at":"2026-01-01T00:00:00Z","why":"a?b"}}"#,
        r#"{"kind":"route","target":"acme/bot","name":"x","queue":"q","dead_letter_queue":"d","order":{"entity":"/a?b"}}"#,
        r#"{"kind":"adapter","name":"a","service":"acme/bot","source":"s","event_type":"t","external_id":[{"header":"x?y"}],
            "verification":{"scheme":"stripe"},"secrets":["s"]}"#,
        r#"{"kind":"adapter","name":"a","service":"acme/bot","source":"s","event_type":"t","external_id":[{"pointer":"/x?y"}],
            "verification":{"scheme":"stripe"},"secrets":["s"]}"#,
        r#"{"kind":"adapter","name":"a","service":"acme/bot","source":"s","event_type":"t","external_id":[{"header":"x"}],
            "members":{"x?y":{"header":"x"}},"verification":{"scheme":"stripe"},"secrets":["s"]}"#,
        r#"{"kind":"adapter","name":"a","service":"acme/bot","source":"s","event_type":"t","external_id":[{"header":"x"}],
            "id":"external","left_out":["/x?y"],"verification":{"scheme":"stripe"},"secrets":["s"]}"#,
    ];
    for text in entries {
        for (code, is_control) in [
            ("0000", true),
            ("0009", true),
            ("000a", true),
            ("000d", true),
            ("001b", true),
            ("007f", true),
            ("0085", true),
            ("009f", true),
            ("00a0", false),
            ("2603", false),
        ] {
            let entry: Entry = serde_json::from_str(&text.replace('?', &format!("\\u{code}"))).unwrap();
            let is_line_break = matches!(code, "0009" | "000a");
            let is_allowed = is_line_break && matches!(entry, Entry::Service(_));
            let problems = apply(&filled(), vec![Wish::Put(entry)]).err().unwrap_or_default().join("; ");
            let is_refused = problems.contains("control character");
            assert_eq!(is_refused, is_control && !is_allowed, "{text} with U+{code}: {problems}");
            assert!(!problems.contains(char::is_control), "{problems:?}");
        }
    }
}

/// REG-1, DLV-1
#[test]
fn disabling_a_route_checks_only_its_reason() {
    let mut pushed = route("acme/bot", "notify");
    pushed.processing = Processing::of(crate::delivery::processing::ProcessingKind::Push);
    pushed.processing.url = Some("https://a.example/".to_owned());
    let registry = apply(&filled(), vec![Wish::Put(Entry::Route(pushed.clone()))]).unwrap();
    for (why, is_accepted) in [("gone", true), ("gone\0", false)] {
        let disabled = Some(Box::new(Disabled { at: Some(Timestamp(7)), why: why.to_owned() }));
        let disabled = Route { disabled, ..pushed.clone() };
        let applied = apply(&registry, vec![Wish::Put(Entry::Route(disabled))]);
        assert_eq!(applied.is_ok(), is_accepted, "{applied:?}");
    }
}

#[test]
fn referenced_entry_cannot_be_removed_first() {
    let registry = filled();
    let bot = EntryKey::service(&"acme/bot".parse().unwrap());
    let problems = apply(&registry, vec![Wish::Remove(bot.clone())]).unwrap_err();
    assert_eq!(problems.len(), 2, "{problems:?}");

    let everything = registry.entries().map(|entry| Wish::Remove(entry.key())).collect();
    let empty = apply(&registry, everything).unwrap();
    assert_eq!(empty.entries().count(), 0);
    assert!(empty.service("acme/bot").is_none());
}

const NOON: Timestamp = Timestamp(1_000_000);

fn later(seconds: u64) -> Timestamp {
    NOON.plus(Duration::from_secs(seconds))
}

fn app_grant(name: &str, expires_at: Option<Timestamp>) -> Entry {
    match grant("zeta/app", "acme/bot", name) {
        Entry::Grant(grant) => Entry::Grant(Grant { expires_at, ..grant }),
        other => other,
    }
}

/// Two tenants with grants on `acme/bot`, whose routes have this profile.
fn granting(profile: Profile) -> Registry {
    let mut registry = Registry::default();
    registry.fill(
        vec![
            tenant("acme"),
            tenant("zeta"),
            service("acme/billing"),
            service("acme/bot"),
            service("zeta/app"),
            service("zeta/other"),
            Entry::Route(Route { profile, ..route("acme/bot", "notify") }),
            Entry::Route(Route { profile, ..route("acme/bot", "pay") }),
            Entry::Route(Route { expires_at: Some(later(10)), ..route("acme/bot", "brief") }),
            grant("acme/billing", "acme/bot", "*"),
            app_grant("notify", Some(later(60))),
            app_grant("brief", None),
            app_grant("gone", None),
        ],
        &NoSecrets,
    );
    registry
}

/// REG-2, PIP-2: permission case by case.
#[test]
fn grant_covers_source_target_and_name_until_expiry() {
    let cases = [
        ("zeta/app", "acme/bot", "notify", 0, true, "across tenants, as granted"),
        ("zeta/app", "acme/bot", "notify", 59, true, "before it expires"),
        ("zeta/app", "acme/bot", "notify", 60, false, "after it expired"),
        ("zeta/app", "acme/bot", "pay", 0, false, "another name"),
        ("zeta/other", "acme/bot", "notify", 0, false, "another source of the same tenant"),
        ("acme/bot", "acme/bot", "notify", 0, false, "the target has no grant on itself"),
        ("acme/billing", "zeta/app", "notify", 0, false, "another target"),
        ("acme/billing", "acme/bot", "notify", 0, true, "for all names"),
        ("acme/billing", "acme/bot", "whatever", 0, true, "for all names, registered or not"),
    ];
    for (source, target, name, at, is_granted, why) in cases {
        let registry = granting(Profile::Moderate);
        let view = registry.service(target).unwrap();
        let grant = view.grant(&source.parse().unwrap(), &name.parse().unwrap(), later(at));
        assert_eq!(grant.is_some(), is_granted, "{why}");
    }
    let critical = granting(Profile::Critical);
    let bot = critical.service("acme/bot").unwrap();
    let pay = "pay".parse().unwrap();
    assert!(
        bot.grant(&"acme/billing".parse().unwrap(), &pay, NOON).is_none(),
        "* does not cover critical routes"
    );
    let brief = "brief".parse().unwrap();
    assert!(bot.route(&brief, later(9)).is_some());
    assert!(bot.route(&brief, later(10)).is_none(), "an ephemeral route expires");
    assert!(bot.route(&"gone".parse().unwrap(), NOON).is_none(), "a grant creates no route");
}

fn grant_with_profile(profile: Profile) -> Wish {
    match grant("acme/billing", "acme/bot", "notify") {
        Entry::Grant(grant) => Wish::Put(Entry::Grant(Grant { profile: Some(profile), ..grant })),
        _ => unreachable!("it is a grant"),
    }
}

/// REG-2
#[test]
fn grant_may_be_stricter_but_not_more_lenient() {
    let registry = filled();
    assert!(apply(&registry, vec![grant_with_profile(Profile::Critical)]).is_ok());
    assert!(apply(&registry, vec![grant_with_profile(Profile::Moderate)]).is_ok());
    let refused = apply(&registry, vec![grant_with_profile(Profile::Low)]).unwrap_err();
    assert!(refused[0].contains("more lenient than that of route acme/bot:notify"), "{refused:?}");
}

fn ban(source: &ServiceName, until: Option<Timestamp>) -> Entry {
    Entry::Ban(Ban { source: source.clone(), reason: String::new(), until })
}

/// LIM-7
#[test]
fn ban_is_in_force_until_it_expires() {
    let mut registry = filled();
    let source: ServiceName = "acme/billing".parse().unwrap();
    assert!(registry.ban(&source, NOON).is_none());
    registry.put(ban(&source, Some(later(60))), &NoSecrets);
    assert!(registry.ban(&source, later(59)).is_some());
    assert!(registry.ban(&source, later(60)).is_none());
    registry.put(ban(&source, None), &NoSecrets);
    assert!(registry.ban(&source, later(86_400)).is_some());
    assert!(registry.ban(&"acme/bot".parse().unwrap(), NOON).is_none());
}

fn apply_token(role: Role, tenant: Option<&str>) -> Result<Registry, Vec<String>> {
    let token = PersonalToken {
        id: "t1".to_owned(),
        person: "Ada".to_owned(),
        role,
        tenant: tenant.map(|name| name.parse().unwrap()),
        secret_hash: String::new(),
        created_at: NOON,
        expires_at: later(60),
    };
    apply(&filled(), vec![Wish::Put(Entry::PersonalToken(token))])
}

/// REG-9
#[test]
fn personal_token_has_the_scope_of_its_role() {
    for role in Role::ALL {
        assert_eq!(apply_token(role, Some("acme")).is_ok(), role != Role::Operator, "{role:?}");
        assert_eq!(apply_token(role, None).is_ok(), !role.is_of_a_tenant(), "{role:?}");
        assert!(apply_token(role, Some("nobody")).is_err(), "{role:?}");
    }
}

fn event_type(owner: &str, name: &str) -> Entry {
    let version = Default::default();
    Entry::EventType(EventType { owner: owner.parse().unwrap(), name: name.parse().unwrap(), version })
}

fn subscription(target: &str, publisher: &str, name: &str) -> Entry {
    Entry::Subscription(Route { events_of: publisher.parse().ok(), ..route(target, name) })
}

/// `acme/shop` publishes `order.paid`. Its tenant has two more services, and another tenant has one.
fn publishing() -> Registry {
    let mut registry = Registry::default();
    let entries = [
        tenant("acme"),
        tenant("zeta"),
        service("acme/shop"),
        service("acme/ledger"),
        service("acme/mail"),
        service("zeta/app"),
        event_type("acme/shop", "order.paid"),
    ];
    registry.fill(entries.into(), &NoSecrets);
    registry
}

fn put(entry: Entry) -> Wish {
    Wish::Put(entry)
}

/// The destinations that receive an event type of `acme/shop`.
fn subscribers(registry: &Registry, name: &str, at: Timestamp) -> Vec<String> {
    let shop = registry.service("acme/shop").unwrap();
    let subscribed = registry.subscribed(shop, &name.parse().unwrap(), at);
    subscribed.iter().map(|(_, bound)| bound.destination.to_string()).collect()
}

/// REG-2, PIP-13
#[test]
fn subscription_within_a_tenant_needs_no_grant() {
    let registry = publishing();
    let ledger = subscription("acme/ledger", "acme/shop", "order.paid");
    assert_eq!(ledger.key().to_string(), "subscription acme/ledger:acme/shop:order.paid");
    let subscribed = apply(&registry, vec![put(ledger.clone())]).unwrap();
    assert_eq!(subscribers(&subscribed, "order.paid", NOON), ["acme/ledger:acme/shop:order.paid"]);
    assert!(subscribers(&subscribed, "order.lost", NOON).is_empty());
    let ledger_view = subscribed.service("acme/ledger").unwrap();
    assert_eq!((ledger_view.subscriptions().count(), ledger_view.routes().count()), (1, 0));
    assert_eq!(subscribed.queues().count(), 2, "its queues are listed");
    for (entry, problem) in [
        (subscription("acme/ledger", "acme/shop", "x"), "event_type acme/shop:x is not registered"),
        (subscription("acme/ledger", "acme/no", "x"), "service acme/no is not registered"),
        (subscription("acme/no", "acme/shop", "order.paid"), "service acme/no is not registered"),
        (Entry::Subscription(route("acme/ledger", "order.paid")), "events_of must name the service"),
        (
            Entry::Route(Route { events_of: "acme/shop".parse().ok(), ..route("acme/ledger", "order.paid") }),
            "events_of is only for subscriptions",
        ),
    ] {
        let problems = apply(&registry, vec![put(entry)]).unwrap_err();
        assert!(problems.iter().any(|found| found.contains(problem)), "{problems:?}");
    }
    let again = apply(&subscribed, vec![put(ledger)]).unwrap();
    assert_eq!(again.version(), subscribed.version(), "the same again changes nothing");
}

fn app_subscription() -> Wish {
    put(subscription("zeta/app", "acme/shop", "order.paid"))
}

/// PIP-13, QUA-5
#[test]
fn subscription_across_tenants_needs_a_grant_by_name() {
    let registry = publishing();
    for others in [vec![], vec![put(grant("zeta/app", "acme/shop", "*"))]] {
        let problems =
            apply(&registry, others.into_iter().chain([app_subscription()]).collect()).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].ends_with("acme/shop has not granted its events order.paid to zeta/app"));
    }
    let unknown = apply(&registry, vec![put(subscription("zeta/app", "acme/none", "order.paid"))]);
    let problem = unknown.unwrap_err()[0].clone();
    assert!(problem.ends_with("acme/none has not granted its events order.paid to zeta/app"), "{problem}");

    let given = Grant::new("zeta/app".parse().unwrap(), "acme/shop".parse().unwrap(), {
        let name: GrantedName = "order.paid".parse().unwrap();
        name
    });
    let until = |end| put(Entry::Grant(Grant { expires_at: end, ..given.clone() }));
    assert!(
        apply(&registry, vec![app_subscription(), until(Some(Timestamp(7)))]).is_err(),
        "the grant has expired"
    );
    let subscribed = apply(&registry, vec![app_subscription(), until(Some(later(60)))]).unwrap();
    assert_eq!(subscribers(&subscribed, "order.paid", later(59)).len(), 1);
    assert!(subscribers(&subscribed, "order.paid", later(60)).is_empty(), "the grant has expired");
    let revoked = apply(&subscribed, vec![Wish::Remove(Entry::Grant(given.clone()).key())]).unwrap();
    assert!(subscribers(&revoked, "order.paid", NOON).is_empty(), "the grant is revoked");
    // The owner can remove a type without the consent of its subscribers.
    let of_type = EntryKey::event_type(&given.target, &"order.paid".parse().unwrap());
    let gone = apply(&subscribed, vec![Wish::Remove(of_type)]).unwrap();
    assert!(gone.service("acme/shop").unwrap().event_types().next().is_none());
    let back = apply(&gone, vec![put(event_type("acme/shop", "order.paid"))]).unwrap();
    assert_eq!(subscribers(&back, "order.paid", NOON).len(), 1, "the subscription waited for the type");
}

/// PIP-13
#[test]
fn event_type_may_have_several_subscriptions() {
    let both =
        ["acme/ledger", "acme/mail"].map(|target| put(subscription(target, "acme/shop", "order.paid")));
    let registry = apply(&publishing(), both.into()).unwrap();
    let mut subscribed = subscribers(&registry, "order.paid", NOON);
    subscribed.sort_unstable();
    assert_eq!(subscribed, ["acme/ledger:acme/shop:order.paid", "acme/mail:acme/shop:order.paid"]);
}

/// Services and a subscription of each to `order.paid`.
fn many_subscriptions(count: usize) -> Vec<Wish> {
    let names: Vec<_> = (0..count).map(|n| format!("acme/s-{n}")).collect();
    let services = names.iter().map(|name| put(service(name)));
    let subscriptions = names.iter().map(|name| put(subscription(name, "acme/shop", "order.paid")));
    services.chain(subscriptions).collect()
}

/// PIP-13, QUA-1: one commit holds all deliveries of an event, so their number is bounded.
#[test]
fn subscriptions_of_an_event_type_are_limited() {
    let most = bounds::SUBSCRIPTIONS_PER_TYPE_MAX;
    assert!(apply(&publishing(), many_subscriptions(most)).is_ok());
    let problems = apply(&publishing(), many_subscriptions(most + 1)).unwrap_err();
    assert!(problems[0].ends_with("has 1000 subscriptions already, and can have no more"), "{}", problems[0]);
}

/// REG-24
#[test]
fn event_type_and_service_stay_while_own_tenant_subscribes() {
    let registry = apply(&publishing(), vec![put(subscription("acme/ledger", "acme/shop", "order.paid"))]);
    let registry = registry.unwrap();
    for (kind, name) in [
        (Kind::EventType, "acme/shop:order.paid"),
        (Kind::Service, "acme/shop"),
        (Kind::Service, "acme/ledger"),
    ] {
        let key = EntryKey { kind, name: name.to_owned() };
        let problems = apply(&registry, vec![Wish::Remove(key)]).unwrap_err();
        let by = "cannot be removed while subscription acme/ledger:acme/shop:order.paid is registered";
        assert!(problems.iter().any(|found| found.ends_with(by)), "{problems:?}");
    }
    let everything = registry.entries().map(|entry| Wish::Remove(entry.key())).collect();
    assert_eq!(apply(&registry, everything).unwrap().routes().count(), 0);
}

fn requires_signed_events(registry: &Registry) -> bool {
    registry.service("acme/shop").unwrap().signed_events
}

/// MSG-4
#[test]
fn signed_events_follow_the_setting() {
    let mut registry = publishing();
    assert!(!requires_signed_events(&registry));
    for signed_events in [true, false] {
        let shop = Service { signed_events, ..Service::new("acme/shop".parse().unwrap()) };
        registry.put(Entry::Service(shop), &NoSecrets);
        assert_eq!(requires_signed_events(&registry), signed_events);
        assert!(registry.service("acme/shop").unwrap().event_types().next().is_some(), "the types stay");
    }
}

/// PIP-13, CLM-1
#[test]
fn subscription_destination_names_the_event_type() {
    for (destination, name) in
        [("acme/ledger:acme/shop:order.paid", Some("order.paid")), ("acme/bot:pay", None), ("", None)]
    {
        assert_eq!(event_type_of(destination), name);
    }
}

fn pushed(name: &str, queue: &str) -> Route {
    let processing = Processing::push("https://hooks.example/");
    Route { processing, queue: QueueName::new(queue).unwrap(), ..route("acme/bot", name) }
}

fn refusal(registry: &Registry, wishes: Vec<Wish>) -> String {
    apply(registry, wishes).map(|_| ()).unwrap_err().join("; ")
}

/// DLV-4
#[test]
fn push_route_needs_its_own_queue() {
    let registry = apply(&filled(), vec![Wish::Put(Entry::Route(pushed("one", "hooks")))]).unwrap();
    let called = Route {
        processing: Processing::http("https://gl.example/"),
        claim: ClaimPolicy::strict(),
        ..pushed("two", "hooks")
    };
    for (other, says) in [
        (
            pushed("two", "hooks"),
            "a push route needs its own queue, but hooks is the queue of route acme/bot:one",
        ),
        (called, "a push route needs its own queue"),
        (Route { processing: Processing::default(), ..pushed("two", "hooks") }, "taken from by consumers"),
    ] {
        let problem = refusal(&registry, vec![Wish::Put(Entry::Route(other))]);
        assert!(problem.contains(says), "{problem}");
    }
    let again = Route { receives_max: 9, ..pushed("one", "hooks") };
    apply(&registry, vec![Wish::Put(Entry::Route(again)), Wish::Put(Entry::Route(pushed("two", "more")))])
        .unwrap();
}

fn push_secret() -> Entry {
    Entry::PushSecret(PushSecret::new("acme/bot:one", Sealed("x".into()), Timestamp(0)))
}

/// DLV-1
#[test]
fn push_secret_needs_its_route_and_blocks_its_removal() {
    let problem = refusal(&filled(), vec![Wish::Put(push_secret())]);
    assert_eq!(problem, "push_secret acme/bot:one: route acme/bot:one is not registered");
    let both = vec![Wish::Put(push_secret()), Wish::Put(Entry::Route(pushed("one", "hooks")))];
    let registry = apply(&filled(), both).unwrap();
    let route = EntryKey { kind: Kind::Route, name: "acme/bot:one".into() };
    let problem = refusal(&registry, vec![Wish::Remove(route.clone())]);
    assert_eq!(problem, "route acme/bot:one cannot be removed while push_secret acme/bot:one is registered");
    let gone = apply(&registry, vec![Wish::Remove(route), Wish::Remove(push_secret().key())]).unwrap();
    assert!(gone.get(&push_secret().key()).is_none() && gone.push_secret("acme/bot:one").is_none());
}

/// DLV-1
#[test]
fn commands_are_pushed_natively_and_only_pushes_are_disabled() {
    let disabled = Some(Box::new(Disabled { at: None, why: "410".into() }));
    let form = Processing { form: PushForm::Cloudevents, ..Processing::push("https://hooks.example/") };
    for (route, says) in [
        (
            Route { processing: form, ..pushed("one", "hooks") },
            "processing.form must be native: a command is no event",
        ),
        (
            Route { disabled: disabled.clone(), ..route("acme/bot", "one") },
            "disabled is only for processing.kind push",
        ),
    ] {
        let problem = refusal(&filled(), vec![Wish::Put(Entry::Route(route))]);
        assert!(problem.contains(says), "{problem}");
    }
    apply(&filled(), vec![Wish::Put(Entry::Route(Route { disabled, ..pushed("one", "hooks") }))]).unwrap();
}

fn put_adapter(adapter: &Adapter) -> Wish {
    Wish::Put(Entry::Adapter(Box::new(adapter.clone())))
}

/// REG-13, MSG-7: the service requires signed events by now, and the adapter's provider signs nothing.
#[test]
fn resealed_adapter_is_not_checked_again() {
    let bot: crate::name::ServiceName = "acme/bot".parse().unwrap();
    let sealed = vec![Sealed("before".to_owned())];
    let adapter = Preset::Telegram.adapter("bot".parse().unwrap(), bot.clone(), sealed);
    let of_type = event_type("acme/bot", "telegram.update");
    let there = apply(&filled(), vec![put_adapter(&adapter), Wish::Put(of_type)]).unwrap();
    let signing = Entry::Service(Service { signed_events: true, ..Service::new(bot) });
    let there = apply(&there, vec![Wish::Put(signing)]).unwrap();
    let resealed = Adapter { secrets: vec![Sealed("under another key".to_owned())], ..adapter.clone() };
    assert_eq!(apply(&there, vec![put_adapter(&resealed)]).unwrap().version(), there.version() + 1);
    for (other, says) in [
        (Adapter { source: "other".to_owned(), ..resealed.clone() }, "events of acme/bot must be signed"),
        (adapter.clone(), "events of acme/bot must be signed"),
        (Adapter { secrets: Vec::new(), ..adapter }, "an adapter has 1 to 4 secrets"),
    ] {
        let problem = refusal(&there, vec![put_adapter(&other)]);
        assert!(problem.contains(says), "{problem}");
    }
}

fn put_subscription(route: &Route) -> Wish {
    Wish::Put(Entry::Subscription(route.clone()))
}

/// DLV-1, PIP-13: without the grant or the type, the push can no longer be registered, but it can still be
/// disabled.
#[test]
fn push_is_switched_though_it_could_not_be_registered() {
    let given = grant("zeta/app", "acme/shop", "order.paid");
    let Entry::Subscription(plain) = subscription("zeta/app", "acme/shop", "order.paid") else {
        unreachable!()
    };
    let pushed = Route { processing: Processing::push("https://hooks.example/"), ..plain };
    let there = apply(&publishing(), vec![put_subscription(&pushed), Wish::Put(given.clone())]).unwrap();
    let of_type = EntryKey { kind: Kind::EventType, name: "acme/shop:order.paid".into() };
    let there = apply(&there, vec![Wish::Remove(given.key()), Wish::Remove(of_type)]).unwrap();
    let because = |why: &str| Some(Box::new(Disabled { at: None, why: why.into() }));
    let disabled = Route { disabled: because("410"), ..pushed.clone() };
    let off = apply(&there, vec![put_subscription(&disabled)]).unwrap();
    assert_eq!(off.version(), there.version() + 1);
    assert_eq!(
        apply(&off, vec![put_subscription(&pushed)]).unwrap().version(),
        off.version() + 1,
        "enabled again"
    );
    for (other, says) in [
        (
            Route { disabled: because(&"x".repeat(bounds::REASON_CHARS_MAX + 1)), ..pushed.clone() },
            "disabled.why is longer",
        ),
        (Route { receives_max: 9, ..disabled }, "has not granted its events"),
        (pushed, "has not granted its events"),
    ] {
        let problem = refusal(&there, vec![put_subscription(&other)]);
        assert!(problem.contains(says), "{problem}");
    }
}
