use super::*;
use crate::name::{GrantedName, TenantName};
use crate::registry::{
    Author, Ban, Grant, GrantRequest, Issuer, KeySet, PersonalToken, Sealed, Service, Tenant, Unseal,
    Workload, plan,
};
use crate::signature::signing::Secret;
use crate::time::Timestamp;

struct Closed;

impl Unseal for Closed {
    fn unseal(&self, _: &Sealed) -> Option<Secret> {
        None
    }
}

fn service(name: &str) -> ServiceName {
    name.parse().unwrap()
}

fn tenant(name: &str) -> TenantName {
    TenantName::new(name).unwrap()
}

fn person(role: Role, tenant: Option<&str>) -> Standing<'_> {
    Standing::Person { role, tenant }
}

/// REG-9, QUA-5: every principal and every permission, for its own tenant, another one and the platform.
#[test]
fn permission_table_is_complete() {
    use Verdict::{Allowed as Yes, Forbidden as No, Hidden};
    let bot = service("acme/bot");
    let own = Some("acme");
    // In the order of `Permission::ALL`: read, manage, mend, resolve, record, operate.
    let all = [Yes; 6];
    let (hidden, no) = ([Hidden; 6], [No; 6]);
    let reads = [Yes, No, No, No, No, No];
    let audits = [Yes, No, No, No, Yes, No];
    let mends = [Yes, No, Yes, No, No, No];
    let resolves = [Yes, No, Yes, Yes, No, No];
    let manages = [Yes, Yes, Yes, No, Yes, No];
    for (name, who, of_own, of_other, of_platform) in [
        ("the operator's token", Standing::Operator, all, all, all),
        ("an operator", person(Role::Operator, None), all, all, all),
        ("a tenant's admin", person(Role::TenantAdmin, own), manages, hidden, no),
        ("a tenant's viewer", person(Role::TenantViewer, own), reads, hidden, no),
        ("a tenant's bookkeeper", person(Role::AccountingOps, own), resolves, hidden, no),
        ("a tenant's auditor", person(Role::Auditor, own), audits, hidden, no),
        ("an auditor of all", person(Role::Auditor, None), audits, audits, audits),
        ("a service", Standing::Service(&bot), mends, hidden, no),
        // Such tokens are never issued: a tenant role without a tenant reaches nothing.
        ("an admin of none", person(Role::TenantAdmin, None), hidden, hidden, no),
        ("a viewer of none", person(Role::TenantViewer, None), hidden, hidden, no),
        ("a bookkeeper of none", person(Role::AccountingOps, None), hidden, hidden, no),
    ] {
        for (over, expected) in
            [(Over::Tenant("acme"), of_own), (Over::Tenant("zeta"), of_other), (Over::Platform, of_platform)]
        {
            let judged = Permission::ALL.map(|permission| who.judge(permission, over));
            assert_eq!(judged, expected, "{name} over {over:?}");
        }
    }
    for role in Role::ALL {
        assert_eq!(role.is_of_a_tenant(), person(role, None).judge(Permission::Read, Over::Platform) == No);
    }
}

fn request() -> GrantRequest {
    GrantRequest {
        source: service("acme/bot"),
        target: service("zeta/bot"),
        name: GrantedName::new("pay").unwrap(),
        purpose: String::new(),
        asked_by: "anna".into(),
        asked_at: Timestamp(1),
    }
}

fn token(of: &str) -> Entry {
    Entry::PersonalToken(PersonalToken {
        id: format!("id-{of}"),
        person: "anna".into(),
        role: Role::TenantViewer,
        tenant: Some(tenant(of)),
        secret_hash: String::new(),
        created_at: Timestamp(1),
        expires_at: Timestamp(2),
    })
}

fn issuer() -> Entry {
    let keys = KeySet::File("/etc/keys.json".into());
    Entry::Issuer(Issuer { issuer: "https://ci.example".into(), audience: "snavio".into(), keys })
}

fn workload(of: &str) -> Entry {
    let (issuer, subject) = ("https://ci.example".to_owned(), "job".to_owned());
    Entry::Workload(Workload { issuer, subject, service: service(of) })
}

fn tenant_entry(name: &str, suspended: bool, contact: Option<&str>) -> Entry {
    Entry::Tenant(Tenant { name: tenant(name), contact: contact.map(Into::into), suspended })
}

fn grant_entry(from: &str, to: &str) -> Entry {
    Entry::Grant(Grant::new(service(from), service(to), GrantedName::new("pay").unwrap()))
}

fn registry() -> Registry {
    let ban = Ban { source: service("acme/bot"), reason: String::new(), until: None };
    let mut registry = Registry::default();
    let entries = vec![
        tenant_entry("acme", false, None),
        tenant_entry("zeta", true, None),
        Entry::Service(Service::new(service("acme/bot"))),
        Entry::Service(Service::new(service("zeta/bot"))),
        grant_entry("acme/bot", "zeta/bot"),
        Entry::GrantRequest(request()),
        token("acme"),
        issuer(),
        workload("acme/bot"),
        Entry::Ban(ban),
    ];
    registry.fill(entries, &Closed);
    registry
}

fn put_tenant(name: &str, suspended: bool, contact: Option<&str>) -> Wish {
    Wish::Put(tenant_entry(name, suspended, contact))
}

/// REG-2, REG-8, REG-9: the people of a tenant change its entries, and the platform changes the rest.
#[test]
fn wishes_are_judged_by_their_effect() {
    use Verdict::{Allowed as Yes, Forbidden as No, Hidden};
    let registry = registry();
    let acme = person(Role::TenantAdmin, Some("acme"));
    let zeta = person(Role::TenantAdmin, Some("zeta"));
    let viewer = person(Role::TenantViewer, Some("acme"));
    let source = service("acme/bot");
    let (bot, other) = (Standing::Service(&source), service("acme/other"));
    let other = Standing::Service(&other);
    let put = Wish::Put;
    let remove = |entry: &Entry| Wish::Remove(entry.key());
    let new_service = Entry::Service(Service::new(service("acme/more")));
    let asked = Entry::GrantRequest(request());
    let cases = [
        ("a contact of its own", put_tenant("acme", false, Some("x")), [Yes, Hidden, No, No, No]),
        ("its own as it is", put_tenant("acme", false, None), [Yes, Hidden, No, No, No]),
        ("its own suspended", put_tenant("acme", true, None), [No, Hidden, No, No, No]),
        ("a suspension lifted", put_tenant("zeta", false, None), [Hidden, No, Hidden, Hidden, Hidden]),
        ("a new tenant", put_tenant("new", false, None), [Hidden, Hidden, Hidden, Hidden, Hidden]),
        ("a service", put(new_service), [Yes, Hidden, No, No, No]),
        (
            "a grant by its target's owner",
            put(grant_entry("zeta/bot", "acme/bot")),
            [Yes, Hidden, No, No, No],
        ),
        (
            "a grant that exists",
            put(grant_entry("acme/bot", "zeta/bot")),
            [Hidden, Yes, Hidden, Hidden, Hidden],
        ),
        (
            "a revoked grant",
            remove(&grant_entry("acme/bot", "zeta/bot")),
            [Hidden, Yes, Hidden, Hidden, Hidden],
        ),
        (
            "a missing grant",
            remove(&grant_entry("zeta/bot", "zeta/bot")),
            [Hidden, Hidden, Hidden, Hidden, Hidden],
        ),
        ("a token", put(token("acme")), [No, Hidden, No, No, No]),
        ("an issuer", put(issuer()), [No, No, No, No, No]),
        ("its workload", put(workload("acme/bot")), [No, Hidden, No, No, No]),
        ("its workload released", remove(&workload("acme/bot")), [Yes, Hidden, No, No, No]),
        ("another's workload", put(workload("zeta/bot")), [Hidden, Hidden, Hidden, Hidden, Hidden]),
        ("a request", put(asked.clone()), [Yes, Hidden, No, Yes, No]),
        ("a request answered", remove(&asked), [Yes, Yes, No, Yes, No]),
    ];
    for (what, wish, expected) in cases {
        let judged = [acme, zeta, viewer, bot, other].map(|who| who.judge_wish(&registry, &wish));
        assert_eq!(judged, expected, "{what}");
        for who in [Standing::Operator, person(Role::Operator, None)] {
            let is_there = registry.get(&wish.key()).is_some() || matches!(wish, Wish::Put(_));
            assert_eq!(who.judge_wish(&registry, &wish) == Yes, is_there, "{what}");
        }
        for who in [person(Role::Auditor, None), person(Role::Auditor, Some("acme"))] {
            assert_ne!(who.judge_wish(&registry, &wish), Yes, "{what}: an auditor changes nothing");
        }
    }
}

/// REG-8
#[test]
fn requesting_person_is_hidden_from_the_target_tenant() {
    let (acme, zeta) = (service("acme/bot"), service("zeta/bot"));
    let asked = Entry::GrantRequest(GrantRequest { asked_by: "anna (id-acme)".into(), ..request() });
    for (who, asked_by) in [
        (Standing::Operator, "anna (id-acme)"),
        (person(Role::Auditor, None), "anna (id-acme)"),
        (person(Role::TenantViewer, Some("acme")), "anna (id-acme)"),
        (Standing::Service(&acme), "anna (id-acme)"),
        (person(Role::TenantAdmin, Some("zeta")), "acme"),
        (person(Role::Auditor, Some("zeta")), "acme"),
        (Standing::Service(&zeta), "acme"),
    ] {
        let Entry::GrantRequest(shown) = who.view(&asked).into_owned() else { panic!("it stays a request") };
        assert_eq!(shown, GrantRequest { asked_by: asked_by.into(), ..request() }, "{who:?}");
    }
}

/// REG-9
#[test]
fn entries_and_changes_are_shown_to_their_owners() {
    let registry = registry();
    let bot = service("acme/bot");
    let count = |who: Standing<'_>| registry.entries().filter(|entry| who.sees(entry)).count();
    let all = registry.entries().count();
    assert_eq!(count(Standing::Operator), all);
    assert_eq!(count(person(Role::Auditor, None)), all);
    // Tenant, service, token, request, workload. A viewer and a service do not see the token.
    assert_eq!(count(person(Role::TenantAdmin, Some("acme"))), 5);
    assert_eq!(count(person(Role::Auditor, Some("acme"))), 5);
    assert_eq!(count(person(Role::TenantViewer, Some("acme"))), 4);
    assert_eq!(count(Standing::Service(&bot)), 4);
    // Tenant, service, grant, request.
    assert_eq!(count(person(Role::TenantViewer, Some("zeta"))), 4);
    assert_eq!(count(person(Role::TenantAdmin, None)), 0);

    let author = Author { who: "o".into(), why: String::new(), at: Timestamp(1) };
    let renewed = Wish::Put(workload("zeta/bot"));
    let moved = plan(&registry, vec![renewed], &author, std::time::Duration::ZERO).unwrap().remove(0);
    for (who, seen) in [
        (Standing::Operator, true),
        (person(Role::Auditor, None), true),
        (person(Role::Auditor, Some("acme")), true),
        (person(Role::Auditor, Some("zeta")), true),
        (person(Role::Auditor, Some("other")), false),
        (person(Role::TenantAdmin, Some("acme")), true),
        (person(Role::TenantViewer, Some("acme")), false),
        (Standing::Service(&bot), false),
    ] {
        assert_eq!(who.sees_change(&moved), seen, "{who:?}");
    }
}
