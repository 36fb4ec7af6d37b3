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
fn what_is_registered_is_found_by_name() {
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
        let bot = Entry::Service(Service { description, ..Service::new("acme/bot".parse().unwrap()) });
        apply(&Registry::default(), vec![Wish::Put(tenant), Wish::Put(bot)])
    };
    let (contact, description) = (bounds::CONTACT_CHARS_MAX, bounds::DESCRIPTION_CHARS_MAX);
    assert!(with(contact, description).is_ok());
    let problems = with(contact + 1, description + 1).unwrap_err();
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

const NOON: Timestamp = Timestamp(1_000_000);

fn later(seconds: u64) -> Timestamp {
    NOON.plus(Duration::from_secs(seconds))
}

/// REG-2, PIP-2: who may send what, case by case.
#[test]
fn a_grant_is_good_for_its_source_target_and_name_until_it_ends() {
    let all = |profile| {
        let with = |route: Route| Entry::Route(Route { profile, ..route });
        let ends = |name: &str, expires_at| match grant("zeta/app", "acme/bot", name) {
            Entry::Grant(grant) => Entry::Grant(Grant { expires_at, ..grant }),
            other => other,
        };
        let mut registry = Registry::default();
        registry.fill(
            vec![
                tenant("acme"),
                tenant("zeta"),
                service("acme/billing"),
                service("acme/bot"),
                service("zeta/app"),
                service("zeta/other"),
                with(route("acme/bot", "notify")),
                with(route("acme/bot", "pay")),
                Entry::Route(Route { expires_at: Some(later(10)), ..route("acme/bot", "brief") }),
                grant("acme/billing", "acme/bot", "*"),
                ends("notify", Some(later(60))),
                ends("brief", None),
                ends("gone", None),
            ],
            &NoSecrets,
        );
        registry
    };
    let cases = [
        ("zeta/app", "acme/bot", "notify", 0, true, "across tenants, as granted"),
        ("zeta/app", "acme/bot", "notify", 59, true, "until it ends"),
        ("zeta/app", "acme/bot", "notify", 60, false, "not from then on"),
        ("zeta/app", "acme/bot", "pay", 0, false, "another name"),
        ("zeta/other", "acme/bot", "notify", 0, false, "another source of the same tenant"),
        ("acme/bot", "acme/bot", "notify", 0, false, "the target itself has none either"),
        ("acme/billing", "zeta/app", "notify", 0, false, "another target"),
        ("acme/billing", "acme/bot", "notify", 0, true, "for all names"),
        ("acme/billing", "acme/bot", "whatever", 0, true, "for all names, registered or not"),
    ];
    for (source, target, name, at, is_granted, why) in cases {
        let registry = all(Profile::Moderate);
        let view = registry.service(target).unwrap();
        let grant = view.grant(&source.parse().unwrap(), &name.parse().unwrap(), later(at));
        assert_eq!(grant.is_some(), is_granted, "{why}");
    }
    let critical = all(Profile::Critical);
    let bot = critical.service("acme/bot").unwrap();
    let pay = "pay".parse().unwrap();
    assert!(
        bot.grant(&"acme/billing".parse().unwrap(), &pay, NOON).is_none(),
        "* is not for critical routes"
    );
    let brief = "brief".parse().unwrap();
    assert!(bot.route(&brief, later(9)).is_some());
    assert!(bot.route(&brief, later(10)).is_none(), "an ephemeral route ends");
    assert!(bot.route(&"gone".parse().unwrap(), NOON).is_none(), "a grant makes no route");
}

/// REG-2
#[test]
fn a_grant_may_be_stricter_than_its_route_and_not_more_lenient() {
    let with = |profile| match grant("acme/billing", "acme/bot", "notify") {
        Entry::Grant(it) => Wish::Put(Entry::Grant(Grant { profile: Some(profile), ..it })),
        _ => unreachable!("it is a grant"),
    };
    let registry = filled();
    assert!(apply(&registry, vec![with(Profile::Critical)]).is_ok());
    assert!(apply(&registry, vec![with(Profile::Moderate)]).is_ok());
    let refused = apply(&registry, vec![with(Profile::Low)]).unwrap_err();
    assert!(refused[0].contains("more lenient than that of route acme/bot:notify"), "{refused:?}");
}

/// LIM-7
#[test]
fn a_ban_holds_until_it_ends() {
    let mut registry = filled();
    let source: ServiceName = "acme/billing".parse().unwrap();
    let ban = |until| Entry::Ban(Ban { source: source.clone(), reason: String::new(), until });
    assert!(registry.ban(&source, NOON).is_none());
    registry.put(ban(Some(later(60))), &NoSecrets);
    assert!(registry.ban(&source, later(59)).is_some());
    assert!(registry.ban(&source, later(60)).is_none());
    registry.put(ban(None), &NoSecrets);
    assert!(registry.ban(&source, later(86_400)).is_some());
    assert!(registry.ban(&"acme/bot".parse().unwrap(), NOON).is_none());
}

/// REG-9
#[test]
fn a_personal_token_has_the_scope_of_its_role() {
    let token = |role, tenant: Option<&str>| {
        Wish::Put(Entry::PersonalToken(PersonalToken {
            id: "t1".to_owned(),
            person: "Ada".to_owned(),
            role,
            tenant: tenant.map(|it| it.parse().unwrap()),
            secret_hash: String::new(),
            created_at: NOON,
            expires_at: later(60),
        }))
    };
    for role in Role::ALL {
        let fits = |tenant| apply(&filled(), vec![token(role, tenant)]).is_ok();
        assert_eq!(fits(Some("acme")), role != Role::Operator, "{role:?}");
        assert_eq!(fits(None), !role.is_of_a_tenant(), "{role:?}");
        assert!(!fits(Some("nobody")), "{role:?}");
    }
}

fn event_type(owner: &str, name: &str) -> Entry {
    let version = Default::default();
    Entry::EventType(EventType { owner: owner.parse().unwrap(), name: name.parse().unwrap(), version })
}

fn subscription(target: &str, publisher: &str, name: &str) -> Entry {
    Entry::Subscription(Route { events_of: publisher.parse().ok(), ..route(target, name) })
}

/// `acme/shop` publishes `order.paid`; two more services of its tenant, and one of another.
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

/// Who gets an event of `acme/shop`.
fn subscribers(registry: &Registry, name: &str, at: Timestamp) -> Vec<String> {
    let shop = registry.service("acme/shop").unwrap();
    let subscribed = registry.subscribed(shop, &name.parse().unwrap(), at);
    subscribed.iter().map(|(_, bound)| bound.destination.to_string()).collect()
}

/// REG-2, PIP-13
#[test]
fn a_subscription_of_the_same_tenant_needs_the_type_and_no_grant() {
    let registry = publishing();
    let ledger = subscription("acme/ledger", "acme/shop", "order.paid");
    assert_eq!(ledger.key().to_string(), "subscription acme/ledger:acme/shop:order.paid");
    let subscribed = apply(&registry, vec![put(ledger.clone())]).unwrap();
    assert_eq!(subscribers(&subscribed, "order.paid", NOON), ["acme/ledger:acme/shop:order.paid"]);
    assert!(subscribers(&subscribed, "order.lost", NOON).is_empty());
    let ledger_view = subscribed.service("acme/ledger").unwrap();
    assert_eq!((ledger_view.subscriptions().count(), ledger_view.routes().count()), (1, 0));
    assert_eq!(subscribed.queues().count(), 2, "its queues are known");
    for (entry, problem) in [
        (subscription("acme/ledger", "acme/shop", "x"), "event_type acme/shop:x is not registered"),
        (subscription("acme/ledger", "acme/no", "x"), "service acme/no is not registered"),
        (subscription("acme/no", "acme/shop", "order.paid"), "service acme/no is not registered"),
        (Entry::Subscription(route("acme/ledger", "order.paid")), "events_of must name the service"),
        (
            Entry::Route(Route { events_of: "acme/shop".parse().ok(), ..route("acme/ledger", "order.paid") }),
            "events_of is of subscriptions",
        ),
    ] {
        let problems = apply(&registry, vec![put(entry)]).unwrap_err();
        assert!(problems.iter().any(|it| it.contains(problem)), "{problems:?}");
    }
    let again = apply(&subscribed, vec![put(ledger)]).unwrap();
    assert_eq!(again.version(), subscribed.version(), "the same again changes nothing");
}

/// PIP-13, QUA-5
#[test]
fn a_subscription_of_another_tenant_needs_a_grant_by_name_as_long_as_it_is_there() {
    let registry = publishing();
    let app = || put(subscription("zeta/app", "acme/shop", "order.paid"));
    for others in [vec![], vec![put(grant("zeta/app", "acme/shop", "*"))]] {
        let problems = apply(&registry, others.into_iter().chain([app()]).collect()).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].ends_with("acme/shop has not granted its events order.paid to zeta/app"));
    }
    let unknown = apply(&registry, vec![put(subscription("zeta/app", "acme/none", "order.paid"))]);
    let told = unknown.unwrap_err()[0].clone();
    assert!(told.ends_with("acme/none has not granted its events order.paid to zeta/app"), "{told}");

    let given = Grant::new("zeta/app".parse().unwrap(), "acme/shop".parse().unwrap(), {
        let name: GrantedName = "order.paid".parse().unwrap();
        name
    });
    let until = |end| put(Entry::Grant(Grant { expires_at: end, ..given.clone() }));
    assert!(apply(&registry, vec![app(), until(Some(Timestamp(7)))]).is_err(), "it has ended");
    let subscribed = apply(&registry, vec![app(), until(Some(later(60)))]).unwrap();
    assert_eq!(subscribers(&subscribed, "order.paid", later(59)).len(), 1);
    assert!(subscribers(&subscribed, "order.paid", later(60)).is_empty(), "the grant has ended");
    let taken_back = apply(&subscribed, vec![Wish::Remove(Entry::Grant(given.clone()).key())]).unwrap();
    assert!(subscribers(&taken_back, "order.paid", NOON).is_empty(), "the grant is gone");
    // Its owner lets a type go without asking those who have it.
    let of_type = EntryKey::event_type(&given.target, &"order.paid".parse().unwrap());
    let gone = apply(&subscribed, vec![Wish::Remove(of_type)]).unwrap();
    assert!(gone.service("acme/shop").unwrap().event_types().next().is_none());
    let back = apply(&gone, vec![put(event_type("acme/shop", "order.paid"))]).unwrap();
    assert_eq!(subscribers(&back, "order.paid", NOON).len(), 1, "what is subscribed waits for it");
}

/// PIP-13
#[test]
fn a_type_has_as_many_subscriptions_as_are_wanted() {
    let both =
        ["acme/ledger", "acme/mail"].map(|target| put(subscription(target, "acme/shop", "order.paid")));
    let registry = apply(&publishing(), both.into()).unwrap();
    let mut subscribed = subscribers(&registry, "order.paid", NOON);
    subscribed.sort_unstable();
    assert_eq!(subscribed, ["acme/ledger:acme/shop:order.paid", "acme/mail:acme/shop:order.paid"]);
}

/// PIP-13, QUA-1: all deliveries of an event are in one commit, so there is a bound on how many there are.
#[test]
fn a_type_has_a_bounded_number_of_subscriptions() {
    let most = bounds::SUBSCRIPTIONS_PER_TYPE_MAX;
    let wishes = |count: usize| -> Vec<Wish> {
        let name = |place: usize| format!("acme/s-{place}");
        let service = |place| put(Entry::Service(Service::new(name(place).parse().unwrap())));
        let subscribed = |place| put(subscription(&name(place), "acme/shop", "order.paid"));
        (0..count).map(service).chain((0..count).map(subscribed)).collect()
    };
    assert!(apply(&publishing(), wishes(most)).is_ok());
    let problems = apply(&publishing(), wishes(most + 1)).unwrap_err();
    assert!(problems[0].ends_with("has 1000 subscriptions already, and can have no more"), "{}", problems[0]);
}

/// REG-24
#[test]
fn a_type_and_its_service_stay_as_long_as_their_own_tenant_is_subscribed() {
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
        assert!(problems.iter().any(|it| it.ends_with(by)), "{problems:?}");
    }
    let everything = registry.entries().map(|entry| Wish::Remove(entry.key())).collect();
    assert_eq!(apply(&registry, everything).unwrap().routes().count(), 0);
}

/// MSG-4
#[test]
fn whether_events_must_be_signed_follows_the_setting() {
    let mut registry = publishing();
    let is_signed = |registry: &Registry| registry.service("acme/shop").unwrap().signed_events;
    assert!(!is_signed(&registry));
    for signed_events in [true, false] {
        let shop = Service { signed_events, ..Service::new("acme/shop".parse().unwrap()) };
        registry.put(Entry::Service(shop), &NoSecrets);
        assert_eq!(is_signed(&registry), signed_events);
        assert!(registry.service("acme/shop").unwrap().event_types().next().is_some(), "the rest stays");
    }
}

/// PIP-13, CLM-1
#[test]
fn the_destination_of_a_subscription_tells_the_event_type() {
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
fn what_is_pushed_has_a_queue_of_its_own() {
    let registry = apply(&filled(), vec![Wish::Put(Entry::Route(pushed("one", "hooks")))]).unwrap();
    let called = Route {
        processing: Processing::http("https://gl.example/"),
        claim: ClaimPolicy::strict(),
        ..pushed("two", "hooks")
    };
    for (other, says) in [
        (
            pushed("two", "hooks"),
            "what is pushed has a queue of its own, and hooks is that of route acme/bot:one",
        ),
        (called, "what is pushed has a queue of its own"),
        (Route { processing: Processing::default(), ..pushed("two", "hooks") }, "taken from by consumers"),
    ] {
        let told = refusal(&registry, vec![Wish::Put(Entry::Route(other))]);
        assert!(told.contains(says), "{told}");
    }
    let again = Route { receives_max: 9, ..pushed("one", "hooks") };
    apply(&registry, vec![Wish::Put(Entry::Route(again)), Wish::Put(Entry::Route(pushed("two", "more")))])
        .unwrap();
}

/// DLV-1
#[test]
fn a_secret_is_there_with_its_route_and_goes_with_it() {
    let secret = || Entry::PushSecret(PushSecret::new("acme/bot:one", Sealed("x".into()), Timestamp(0)));
    let told = refusal(&filled(), vec![Wish::Put(secret())]);
    assert_eq!(told, "push_secret acme/bot:one: route acme/bot:one is not registered");
    let both = vec![Wish::Put(secret()), Wish::Put(Entry::Route(pushed("one", "hooks")))];
    let registry = apply(&filled(), both).unwrap();
    let route = EntryKey { kind: Kind::Route, name: "acme/bot:one".into() };
    let told = refusal(&registry, vec![Wish::Remove(route.clone())]);
    assert_eq!(told, "route acme/bot:one cannot be removed while push_secret acme/bot:one is registered");
    let gone = apply(&registry, vec![Wish::Remove(route), Wish::Remove(secret().key())]).unwrap();
    assert!(gone.get(&secret().key()).is_none() && gone.push_secret("acme/bot:one").is_none());
}

/// DLV-1
#[test]
fn commands_are_pushed_as_they_are_and_only_pushes_are_disabled() {
    let disabled = Some(Box::new(Disabled { at: None, why: "410".into() }));
    let form = Processing { form: PushForm::Cloudevents, ..Processing::push("https://hooks.example/") };
    for (route, says) in [
        (
            Route { processing: form, ..pushed("one", "hooks") },
            "processing.form must be native: a command is no event",
        ),
        (
            Route { disabled: disabled.clone(), ..route("acme/bot", "one") },
            "disabled is for processing.kind push",
        ),
    ] {
        let told = refusal(&filled(), vec![Wish::Put(Entry::Route(route))]);
        assert!(told.contains(says), "{told}");
    }
    apply(&filled(), vec![Wish::Put(Entry::Route(Route { disabled, ..pushed("one", "hooks") }))]).unwrap();
}

/// REG-13, MSG-7: its service has begun to sign its events since, and its provider signs nothing.
#[test]
fn an_adapter_whose_secrets_alone_are_others_is_not_asked_again_whether_it_may_be() {
    let sealed = |text: &str| Sealed(text.to_owned());
    let bot: crate::name::ServiceName = "acme/bot".parse().unwrap();
    let adapter = Preset::Telegram.adapter("bot".parse().unwrap(), bot.clone(), vec![sealed("before")]);
    let put = |adapter: &Adapter| Wish::Put(Entry::Adapter(Box::new(adapter.clone())));
    let of_type = event_type("acme/bot", "telegram.update");
    let there = apply(&filled(), vec![put(&adapter), Wish::Put(of_type)]).unwrap();
    let signing = Entry::Service(Service { signed_events: true, ..Service::new(bot) });
    let there = apply(&there, vec![Wish::Put(signing)]).unwrap();
    let anew = Adapter { secrets: vec![sealed("under another key")], ..adapter.clone() };
    assert_eq!(apply(&there, vec![put(&anew)]).unwrap().version(), there.version() + 1);
    for (other, says) in [
        (Adapter { source: "other".to_owned(), ..anew.clone() }, "events of acme/bot must be signed"),
        (adapter.clone(), "events of acme/bot must be signed"),
        (Adapter { secrets: Vec::new(), ..adapter }, "an adapter has 1 to 4 secrets"),
    ] {
        let told = refusal(&there, vec![put(&other)]);
        assert!(told.contains(says), "{told}");
    }
}

/// DLV-1, PIP-13: whoever took the grant back, or the type away, cannot keep a receiver that is gone from being left alone.
#[test]
fn a_push_is_disabled_and_enabled_though_it_could_not_be_registered_anew() {
    let given = grant("zeta/app", "acme/shop", "order.paid");
    let Entry::Subscription(plain) = subscription("zeta/app", "acme/shop", "order.paid") else {
        unreachable!()
    };
    let pushed = Route { processing: Processing::push("https://hooks.example/"), ..plain };
    let put = |route: &Route| Wish::Put(Entry::Subscription(route.clone()));
    let there = apply(&publishing(), vec![put(&pushed), Wish::Put(given.clone())]).unwrap();
    let of_type = EntryKey { kind: Kind::EventType, name: "acme/shop:order.paid".into() };
    let there = apply(&there, vec![Wish::Remove(given.key()), Wish::Remove(of_type)]).unwrap();
    let because = |why: &str| Some(Box::new(Disabled { at: None, why: why.into() }));
    let disabled = Route { disabled: because("410"), ..pushed.clone() };
    let off = apply(&there, vec![put(&disabled)]).unwrap();
    assert_eq!(off.version(), there.version() + 1);
    assert_eq!(apply(&off, vec![put(&pushed)]).unwrap().version(), off.version() + 1, "its owner enables it");
    for (other, says) in [
        (
            Route { disabled: because(&"x".repeat(bounds::REASON_CHARS_MAX + 1)), ..pushed.clone() },
            "disabled.why is longer",
        ),
        (Route { receives_max: 9, ..disabled }, "has not granted its events"),
        (pushed, "has not granted its events"),
    ] {
        let told = refusal(&there, vec![put(&other)]);
        assert!(told.contains(says), "{told}");
    }
}
