//! A node that learns of a revocation only by its refresh. The test sets the clock (REG-12, REG-14 to
//! REG-17).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use snavio_gate::{Answer, Arrival, Form, Gate, Settings, Wait};
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::MessageKind;
use snavio_model::message::command::NewCommand;
use snavio_model::name::{GrantedName, ServiceName};
use snavio_model::refusal::{Reason, Refused};
use snavio_model::registry::{
    Acl, Author, Ban, Entry, Grant, Key, Profile, Registry, Sealed, Service, Tenant, Unseal, Wish, plan,
};
use snavio_model::signature::signing::Secret;
use snavio_model::time::{Clock, Timestamp};
use snavio_store::Store;
use snavio_store::engine::postgres::{Options, PostgresStore};
use snavio_testbed::Postgres;

const NOON: Timestamp = Timestamp(1_800_000_000_000);

struct ManualClock(AtomicI64);

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

impl ManualClock {
    fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

struct OneSecret;

impl Unseal for OneSecret {
    fn unseal(&self, _: &Sealed) -> Option<Secret> {
        Some(Secret::from_bytes([7; 32]))
    }
}

/// Two nodes over one database: the first makes changes, the second reads them only when it must.
struct Fleet {
    clock: Arc<ManualClock>,
    one: Arc<Gate>,
    other: Arc<Gate>,
}

impl Fleet {
    async fn start(profile: Profile, acl: Acl) -> Self {
        let url = Postgres::shared().database().unwrap();
        let clock = Arc::new(ManualClock(AtomicI64::new(NOON.0)));
        let gate = async |node: &str| {
            let store: Arc<dyn Store> = Arc::new(PostgresStore::open(&Options::new(&url)).await.unwrap());
            let (node, follow_every) = (node.to_owned(), Duration::from_secs(3600));
            let settings = Settings { node, follow_every, ..Settings::default() };
            Gate::start(settings, store, Arc::clone(&clock) as Arc<dyn Clock>, Arc::new(OneSecret))
                .await
                .unwrap()
        };
        let one = gate("one").await;
        let fleet = Self { other: Arc::clone(&one), one, clock: Arc::clone(&clock) };
        let route = serde_json::json!({
            "target": "zeta/bot", "name": "erase", "queue": "q", "dead_letter_queue": "d", "profile": profile, "acl": acl,
        });
        let key = Key {
            service: billing(),
            version: "hmac-v1".parse().unwrap(),
            secret: Sealed(String::new()),
            created_at: NOON,
            expires_at: None,
            revoked_at: None,
        };
        for entry in [
            tenant("acme"),
            tenant("zeta"),
            Entry::Service(Service::new(billing())),
            Entry::Service(Service::new("zeta/bot".parse().unwrap())),
            Entry::Key(key),
            Entry::Route(serde_json::from_value(route).unwrap()),
            grant(),
        ] {
            fleet.change(Wish::Put(entry)).await;
        }
        Self { other: gate("other").await, ..fleet }
    }

    async fn change(&self, wish: Wish) {
        let author = Author { who: "operator".into(), why: String::new(), at: self.clock.now() };
        let registry: Arc<Registry> = self.one.registry();
        let changes = plan(&registry, vec![wish], &author, Duration::from_secs(60)).unwrap();
        self.one.change_registry(changes).await.unwrap();
    }

    /// Sends a message to the second node, which knows only the registry that it last read.
    async fn send(&self) -> Result<Answer, Refused> {
        let id = MessageId::uuid(&uuid::Uuid::now_v7().to_string()).unwrap();
        let now = self.clock.now();
        let command = NewCommand {
            id: &id,
            timestamp: &now.to_string(),
            version_id: &"hmac-v1".parse().unwrap(),
            source: &billing(),
            target: &"zeta/bot".parse().unwrap(),
            name: &"erase".parse().unwrap(),
            payload: b"{}",
            correlation_id: None,
        };
        let arrival = Arrival {
            kind: MessageKind::Command,
            form: Form::Native,
            source: billing(),
            body: command.sign(&Secret::from_bytes([7; 32])).unwrap().into(),
            webhook: None,
            vouched: None,
            correlation: None,
            traceparent: None,
            received_at: now,
            random: [3; 40],
        };
        self.other.accept(arrival, Wait::Usual, ()).await
    }

    /// Returns the records of messages that were sent after their revocation: the kind of the revocation, and
    /// the delay in seconds.
    async fn reports(&self, tenant: &str) -> Vec<(String, f64)> {
        let records = self.one.store().telemetry(tenant, Serial(0), 1000).await.unwrap();
        let late = records.iter().filter(|record| record.kind == "snavio.command.executed_after_acl_revoked");
        let fields = late.map(|record| (&record.body["revoked"], &record.body["stale_duration_seconds"]));
        fields.map(|(kind, delay)| (kind.as_str().unwrap().to_owned(), delay.as_f64().unwrap())).collect()
    }

    /// Returns those records once the audit has reached the newest version.
    async fn audited_reports(&self, tenant: &str) -> Vec<(String, f64)> {
        self.clock.advance(Duration::from_secs(40));
        self.wait_for_audit(self.one.registry().version()).await;
        self.reports(tenant).await
    }

    /// Waits until the audit has reached this version, and no later one.
    async fn wait_for_audit(&self, version: i64) {
        let version = version.to_string();
        let audited = async {
            while self.one.store().note("revocations/audited").await.unwrap().as_ref() != Some(&version) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), audited).await.expect("it is audited");
    }

    async fn stop(self) {
        self.other.stop().await;
        self.one.stop().await;
    }
}

fn billing() -> ServiceName {
    "acme/billing".parse().unwrap()
}

fn tenant(name: &str) -> Entry {
    Entry::Tenant(Tenant { name: name.parse().unwrap(), contact: None, suspended: false })
}

fn grant() -> Entry {
    let name: GrantedName = "erase".parse().unwrap();
    Entry::Grant(Grant::new(billing(), "zeta/bot".parse().unwrap(), name))
}

fn reason(sent: Result<Answer, Refused>) -> Option<Reason> {
    sent.err().map(|refused| refused.refusal.reason)
}

/// Applies a change that revokes a permission, and expects this reason of the second node and one record for
/// the tenant.
async fn expect_stop_within_five_seconds(
    wish: impl Fn(&Registry) -> Wish,
    then: Reason,
    kind: &str,
    tenant: &str,
) {
    let fleet = Fleet::start(Profile::Critical, Acl::Cached).await;
    assert_eq!(reason(fleet.send().await), None);
    fleet.clock.advance(Duration::from_millis(500));
    fleet.change(wish(&fleet.one.registry())).await;
    fleet.clock.advance(Duration::from_millis(1_000));
    assert_eq!(reason(fleet.send().await), None, "it is fresh, and cannot know yet");
    // The store is not asked in between. The node refuses rather than use expired data.
    fleet.clock.advance(Duration::from_millis(3_499));
    assert_eq!(
        reason(fleet.send().await),
        Some(then),
        "before five seconds are over the store is asked first"
    );
    assert_eq!(fleet.reports(tenant).await, [], "not before it is sure that nothing more comes");
    assert_eq!(fleet.audited_reports(tenant).await, [(kind.to_owned(), 1.0)], "once, with how late it was");
    fleet.stop().await;
}

/// REG-12, REG-15, REG-17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_grant_stops_within_five_seconds() {
    expect_stop_within_five_seconds(|_| Wish::Remove(grant().key()), Reason::AclDeny, "grant", "zeta").await;
}

fn revoked_key(registry: &Registry) -> Wish {
    let key = registry.entries().find_map(|entry| match entry {
        Entry::Key(key) => Some(key.clone()),
        _ => None,
    });
    Wish::Put(Entry::Key(Key { revoked_at: Some(NOON), ..key.unwrap() }))
}

/// REG-12, REG-17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_key_stops_within_five_seconds() {
    expect_stop_within_five_seconds(revoked_key, Reason::KeyExpired, "key", "acme").await;
}

/// REG-12, LIM-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ban_stops_within_five_seconds() {
    let ban =
        |_: &Registry| Wish::Put(Entry::Ban(Ban { source: billing(), reason: String::new(), until: None }));
    expect_stop_within_five_seconds(ban, Reason::Banned, "ban", "zeta").await;
}

/// REG-17: a grant that was revoked and granted again does not hide the messages in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_grant_hides_no_late_message() {
    let fleet = Fleet::start(Profile::Critical, Acl::Cached).await;
    fleet.change(Wish::Remove(grant().key())).await;
    fleet.clock.advance(Duration::from_secs(1));
    assert_eq!(reason(fleet.send().await), None, "it cannot know yet");
    fleet.clock.advance(Duration::from_millis(500));
    fleet.change(Wish::Put(grant())).await;
    assert_eq!(fleet.audited_reports("zeta").await, [("grant".to_owned(), 1.0)]);
    fleet.stop().await;
}

/// REG-17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_permitted_by_another_grant_is_not_reported() {
    let fleet = Fleet::start(Profile::Low, Acl::Cached).await;
    let name: GrantedName = "*".parse().unwrap();
    fleet.change(Wish::Put(Entry::Grant(Grant::new(billing(), "zeta/bot".parse().unwrap(), name)))).await;
    fleet.change(Wish::Remove(grant().key())).await;
    fleet.clock.advance(Duration::from_secs(1));
    assert_eq!(reason(fleet.send().await), None);
    assert_eq!(fleet.audited_reports("zeta").await, []);
    fleet.stop().await;
}

/// REG-17: if a grant's expiry is moved to an earlier time, the grant counts as revoked from that time on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shortened_grant_is_reported_like_a_revocation() {
    let fleet = Fleet::start(Profile::Critical, Acl::Cached).await;
    let Entry::Grant(ending) = grant() else { unreachable!() };
    let expires_at = Some(fleet.clock.now().plus(Duration::from_secs(1)));
    fleet.change(Wish::Put(Entry::Grant(Grant { expires_at, ..ending }))).await;
    for _ in 0..2 {
        fleet.clock.advance(Duration::from_millis(750));
        assert_eq!(reason(fleet.send().await), None, "it cannot know yet");
    }
    assert_eq!(
        fleet.audited_reports("zeta").await,
        [("grant".to_owned(), 0.5)],
        "only the message after the end"
    );
    fleet.stop().await;
}

/// REG-17: the two revocations are audited together, and one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_after_several_revocations_is_reported_once() {
    for apart in [false, true] {
        let fleet = Fleet::start(Profile::Critical, Acl::Cached).await;
        let ban = Ban { source: billing(), reason: String::new(), until: None };
        fleet.change(Wish::Put(Entry::Ban(ban))).await;
        let banned = fleet.one.registry().version();
        fleet.clock.advance(Duration::from_millis(900));
        fleet.change(Wish::Remove(grant().key())).await;
        fleet.clock.advance(Duration::from_millis(100));
        assert_eq!(reason(fleet.send().await), None, "it cannot know yet");
        if apart {
            fleet.clock.advance(Duration::from_millis(14_500));
            fleet.wait_for_audit(banned).await;
            assert_eq!(fleet.reports("zeta").await.len(), 1);
        }
        assert_eq!(fleet.audited_reports("zeta").await, [("ban".to_owned(), 1.0)], "by the first of them");
        fleet.stop().await;
    }
}

/// REG-17: a message under a stolen key concerns the owner of the key and the owner of the target.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_concerned_tenant_gets_a_report() {
    let fleet = Fleet::start(Profile::Critical, Acl::Cached).await;
    fleet.change(revoked_key(&fleet.one.registry())).await;
    fleet.change(Wish::Remove(grant().key())).await;
    fleet.clock.advance(Duration::from_secs(1));
    assert_eq!(reason(fleet.send().await), None, "it cannot know yet");
    assert_eq!(fleet.audited_reports("zeta").await, [("grant".to_owned(), 1.0)]);
    assert_eq!(fleet.reports("acme").await, [("key".to_owned(), 1.0)]);
    fleet.stop().await;
}

/// REG-17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_after_a_renewed_grant_is_not_reported() {
    let fleet = Fleet::start(Profile::Critical, Acl::Cached).await;
    fleet.change(Wish::Remove(grant().key())).await;
    fleet.clock.advance(Duration::from_millis(500));
    fleet.change(Wish::Put(grant())).await;
    fleet.clock.advance(Duration::from_millis(500));
    assert_eq!(reason(fleet.send().await), None);
    assert_eq!(fleet.audited_reports("zeta").await, []);
    fleet.stop().await;
}

/// REG-15: on a route with `acl: always` the gate reads the store at every dispatch, so no message slips
/// through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn route_with_acl_always_stops_at_once() {
    let fleet = Fleet::start(Profile::Low, Acl::Always).await;
    assert_eq!(reason(fleet.send().await), None);
    fleet.change(Wish::Remove(grant().key())).await;
    assert_eq!(
        reason(fleet.send().await),
        Some(Reason::AclDeny),
        "it is judged anew by the store's registry"
    );
    fleet.stop().await;
}

/// REG-14: while the registry is stale, the gate uses it and refreshes it afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_registry_is_refreshed_in_the_background() {
    let fleet = Fleet::start(Profile::Low, Acl::Cached).await;
    fleet.change(Wish::Remove(grant().key())).await;
    fleet.clock.advance(Duration::from_secs(3));
    let is_renewed = || fleet.other.registry().version() >= fleet.one.registry().version();
    assert!(!is_renewed());
    // No message waits for the refresh. It may still come before the gate judges this message.
    let first = reason(fleet.send().await);
    assert!(first.is_none() || is_renewed(), "it is used as it is: {first:?}");
    let renewed = async {
        while !is_renewed() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), renewed)
        .await
        .expect("it is renewed without a further message");
    assert_eq!(reason(fleet.send().await), Some(Reason::AclDeny));
    fleet.stop().await;
}
