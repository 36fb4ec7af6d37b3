//! The changelog as an auditor sees it (REG-5): `audit verify` names tampering in the store, and an untouched
//! chain of seals stays whole over restarts and kills.

use std::process::Command;

use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::registry::{Evidence, PublicKey, Seal, SealingKey, Signer};
use snavio_model::time::Timestamp;

use crate::engine::Engine;
use crate::node::{Launch, Node};
use crate::patience::eventually;
use crate::shell::{Ended, Shell};
use crate::wire::metric;

/// Waits until every change is sealed, and returns the `chain` of `/v1/status`.
pub(crate) async fn sealed(node: &Node) -> Value {
    eventually("everything is sealed", async || {
        let chain = node.get("/v1/status").await["chain"].take();
        (chain["unsealed"] == 0 && chain["seals"] != 0).then_some(chain)
    })
    .await
}

/// Asserts that the changelog of a restored store is whole once it is sealed, and that it reports the skipped
/// versions.
pub(crate) async fn whole_after_a_restore(node: &Node, skipped: &Value) {
    sealed(node).await;
    let found = Shell::at(node).run("audit verify --output json");
    assert_eq!(found.code, Some(0), "{found:?}");
    let found = found.json();
    assert_eq!((&found["result"], &found["skipped"]), (&json!("whole"), &json!([skipped])), "{found}");
    assert_eq!(found["sealed_version"], found["version"], "{found}");
    let last = skipped["last"].as_i64().unwrap();
    let page = node.get(&format!("/v1/registry/compare?from=0&to={last}")).await;
    assert!(!page["changes"].as_array().unwrap().is_empty(), "earlier versions can be compared: {page}");
}

/// Changes a tenant, so that the node has a change to seal.
async fn touch(node: &Node, contact: &str) {
    let body = json!({ "contact": contact });
    let path = format!("/v1/tenants/acme?why={contact}");
    node.operator().call(Method::PUT, &path, Some(&body)).await.expect("the tenant is changed");
}

/// Runs statements in the store, as an attacker who has the store but not its keys.
fn tamper(node: &Node, statements: &str) {
    match node.engine() {
        Engine::Embedded => {
            let file = node.data().join("snavio.db");
            let done =
                Command::new("sqlite3").args(["-cmd", ".timeout 10000"]).arg(file).arg(statements).output();
            let done = done.expect("this test needs sqlite3: run ./test, which installs it");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        Engine::Postgres(database) => drop(database.ask(statements)),
    }
}

/// The engine's SQL literal of some bytes.
fn bytes_literal(node: &Node, bytes: &[u8]) -> String {
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    match node.engine() {
        Engine::Embedded => format!("x'{text}'"),
        Engine::Postgres(_) => format!("'\\x{text}'::bytea"),
    }
}

/// Replaces the chain in the store.
fn put_seals(node: &Node, seals: &[Seal]) {
    let mut statements = "DELETE FROM seal;".to_owned();
    for Seal { number, first_version, last_version, at, head, signature } in seals {
        statements += &format!(
            "INSERT INTO seal VALUES ({number}, {first_version}, {last_version}, {}, {}, {});",
            at.0,
            bytes_literal(node, head),
            bytes_literal(node, signature)
        );
    }
    tamper(node, &statements);
}

/// Verifies the store directly, which works whether a node runs or not.
fn verify_store(node: &Node, flags: &str) -> Ended {
    let (location, shell) = match node.engine() {
        Engine::Embedded => (format!("--data {}", node.data().display()), Shell::new()),
        Engine::Postgres(database) => {
            let key = node.secret("platform.key").display().to_string();
            (format!("--store {}", database.url), Shell::new().with("SNAVIO_PLATFORM_KEY_FILE", &key))
        }
    };
    shell.run(&format!("audit verify {location} {flags} --output json"))
}

/// A stopped node with a chain of several seals; the seals, and the changes in the form that they cover.
async fn stopped_node_with_chain() -> (Node, Vec<Seal>, Vec<Evidence>) {
    let mut node = Node::start();
    node.cast().await;
    sealed(&node).await;
    for contact in ["one", "two"] {
        touch(&node, contact).await;
        sealed(&node).await;
    }
    let seals = serde_json::from_value(node.get("/v1/registry/seals").await["items"].take()).unwrap();
    let changes = serde_json::from_value(node.get("/v1/registry/evidence").await["items"].take()).unwrap();
    node.stop();
    (node, seals, changes)
}

/// REG-5
#[tokio::test]
async fn untouched_chain_is_whole_over_restarts_and_kills() {
    let mut node = Node::start();
    node.cast().await;
    let first = sealed(&node).await;
    let flags = format!(
        "--head {} --public-key {}",
        first["head"].as_str().unwrap(),
        first["public_key"].as_str().unwrap()
    );
    for round in 0..3 {
        touch(&node, &format!("kill-{round}")).await;
        // The last change may be sealed by now or not: the chain is whole either way.
        node.kill();
        let found = verify_store(&node, &flags);
        assert_eq!(found.code, Some(0), "{found:?}");
        node.restart(&Launch::default());
        sealed(&node).await;
    }
    let online = Shell::at(&node).run(&format!("audit verify {flags} --output json"));
    assert_eq!(online.code, Some(0), "{online:?}");
    let (verified, chain) = (online.json(), sealed(&node).await);
    assert_eq!((&verified["result"], &verified["unsealed"]), (&json!("whole"), &Value::Null));
    assert_eq!((&verified["head"], &verified["version"]), (&chain["head"], &chain["sealed_version"]));
    let metric = metric(&node, "snavio_registry_sealed_version").await;
    assert_eq!(metric, chain["sealed_version"].as_f64());
    touch(&node, "sealed-at-stop").await;
    node.stop();
    let after = verify_store(&node, &flags).json();
    assert_eq!(after["unsealed"], Value::Null, "a node that stops seals first: {after}");
    assert_eq!(after["version"].as_i64(), verified["version"].as_i64().map(|version| version + 1));
}

/// REG-5
#[tokio::test]
async fn tampering_with_the_changelog_is_named() {
    let (mut node, seals, _) = stopped_node_with_chain().await;
    let swap = "UPDATE registry_change SET version = -1 WHERE version = 2; \
         UPDATE registry_change SET version = 2 WHERE version = 3; \
         UPDATE registry_change SET version = 3 WHERE version = -1";
    let remove = |versions: &str| {
        format!(
            "CREATE TABLE aside AS SELECT * FROM registry_change WHERE version = {versions}; \
             DELETE FROM registry_change WHERE version = {versions}"
        )
    };
    let put_back = "INSERT INTO registry_change SELECT * FROM aside; DROP TABLE aside";
    let replace = |kind: &str, from: &str, to: &str| {
        format!("UPDATE registry_change SET after = replace(after, '{from}', '{to}') WHERE kind = '{kind}'")
    };
    for (fault, tampering, repair) in [
        (
            "change_altered",
            "UPDATE registry_change SET why = 'another' WHERE version = 2".to_owned(),
            "UPDATE registry_change SET why = '' WHERE version = 2".to_owned(),
        ),
        (
            "change_altered",
            "UPDATE registry_change SET at = at + 1 WHERE version = 1".to_owned(),
            "UPDATE registry_change SET at = at - 1 WHERE version = 1".to_owned(),
        ),
        (
            "change_altered",
            replace("route", "pay-inbox", "spy-inbox"),
            replace("route", "spy-inbox", "pay-inbox"),
        ),
        ("change_altered", replace("key", "v2.", "v2.A"), replace("key", "v2.A", "v2.")),
        ("change_altered", replace("grant", "}", "]"), replace("grant", "]", "}")),
        ("change_missing", remove("3"), put_back.to_owned()),
        ("change_missing", remove("(SELECT max(version) FROM registry_change)"), put_back.to_owned()),
        ("change_moved", swap.to_owned(), swap.to_owned()),
        (
            "seal_altered",
            "UPDATE seal SET at = at + 1 WHERE number = 2".to_owned(),
            "UPDATE seal SET at = at - 1 WHERE number = 2".to_owned(),
        ),
        (
            "seal_altered",
            "UPDATE seal SET last_version = last_version + 1 WHERE number = 1".to_owned(),
            "UPDATE seal SET last_version = last_version - 1 WHERE number = 1".to_owned(),
        ),
    ] {
        tamper(&node, &tampering);
        let found = verify_store(&node, "");
        assert_eq!(
            (found.code, found.json()["fault"].as_str()),
            (Some(1), Some(fault)),
            "{tampering}: {found:?}"
        );
        tamper(&node, &repair);
        let whole = verify_store(&node, "");
        assert_eq!(whole.code, Some(0), "{repair}: {whole:?}");
    }
    put_seals(&node, &[seals[0].clone(), seals[2].clone()]);
    assert_eq!(verify_store(&node, "").json()["fault"], "seal_missing");
    put_seals(&node, &seals);
    tamper(&node, "UPDATE registry_change SET who = 'nobody' WHERE version = 2");
    node.restart(&Launch::default());
    let online = Shell::at(&node).run("audit verify");
    assert_eq!(online.code, Some(1), "{online:?}");
    assert!(online.err.contains("change 2 is not as it was sealed: it was altered"), "{online:?}");
}

/// A signer with the right public key and another private key.
struct Impostor(PublicKey);

impl Signer for Impostor {
    fn public_key(&self) -> PublicKey {
        self.0
    }

    fn sign(&self, text: &[u8]) -> [u8; 64] {
        SealingKey::from_bytes(&[8; 32]).sign(text)
    }
}

fn make_chain(changes: &[Evidence], signer: &dyn Signer) -> Vec<Seal> {
    let mut seals: Vec<Seal> = Vec::new();
    for part in changes.chunks(4) {
        seals.push(Seal::next(seals.last(), part, Timestamp(1), signer).unwrap());
    }
    seals
}

/// REG-5: the node does not sign versions as skipped unless an operator restored the store.
#[tokio::test]
async fn forged_restore_is_found_and_not_sealed() {
    let (mut node, _, changes) = stopped_node_with_chain().await;
    let version = changes.last().unwrap().version;
    let first = version + 1;
    let raise_version = match node.engine() {
        Engine::Embedded => "UPDATE meta SET value = value + 1 WHERE key = 'registry_version'",
        Engine::Postgres(_) => "UPDATE registry_version SET version = version + 1",
    };
    tamper(
        &node,
        &format!(
            "INSERT INTO note (name, value) VALUES ('registry/skipped/{first}', '999999999'); {raise_version};"
        ),
    );
    let found = verify_store(&node, "");
    assert_eq!((found.code, &found.json()["fault"]), (Some(1), &json!("skipped_too_far")), "{found:?}");
    node.restart(&Launch::default());
    let problem = eventually("the node reports it", async || {
        let chain = node.get("/v1/status").await["chain"].take();
        chain["problem"].as_str().map(str::to_owned)
    })
    .await;
    assert!(problem.contains("up to 999999999 are said to have been skipped"), "{problem}");
    node.stop();
    // The skipped range is now plausible, but it contains a change that the attacker would like to hide.
    let skipped_to = version + 2;
    let hide = format!(
        "UPDATE note SET value = '{skipped_to}' WHERE name = 'registry/skipped/{first}'; {raise_version};"
    );
    let copied = format!(
        "INSERT INTO registry_change SELECT {skipped_to}, at, who, why, kind, name, before, after FROM registry_change WHERE version = {version}"
    );
    tamper(&node, &format!("{hide} {copied};"));
    let found = verify_store(&node, "");
    assert_eq!((found.code, &found.json()["fault"]), (Some(1), &json!("change_skipped")), "{found:?}");
}

/// REG-5
#[tokio::test]
async fn rewritten_or_truncated_chain_is_found() {
    let (mut node, seals, mut changes) = stopped_node_with_chain().await;
    let head = seals[2].head_digest().unwrap();
    let whole = verify_store(&node, &format!("--head {head}"));
    assert_eq!(whole.code, Some(0), "{whole:?}");
    let own: PublicKey = whole.json()["public_key"][0].as_str().unwrap().parse().unwrap();

    put_seals(&node, &seals[..1]);
    let cut = verify_store(&node, "");
    let last = changes.len() as i64;
    assert_eq!((cut.code, &cut.json()["unsealed"]), (Some(0), &json!([last - 1, last])), "{cut:?}");
    let found = verify_store(&node, &format!("--head {head}"));
    assert_eq!((found.code, &found.json()["fault"]), (Some(1), &json!("head_missing")), "{found:?}");
    // The node cannot notice the loss, and seals the remaining changes again. A person who noted the head
    // can.
    node.restart(&Launch::default());
    sealed(&node).await;
    let found = Shell::at(&node).run(&format!("audit verify --head {head}"));
    assert_eq!(found.code, Some(1), "{found:?}");
    assert!(found.err.contains("cut off or rewritten"), "{found:?}");
    node.stop();

    tamper(&node, "UPDATE registry_change SET who = 'nobody' WHERE version = 1");
    changes[0].who = "nobody".into();
    let forger = SealingKey::from_bytes(&[8; 32]);
    put_seals(&node, &make_chain(&changes, &forger));
    let flags = format!("--public-key {own}");
    assert_eq!(verify_store(&node, &flags).json()["fault"], "key_unknown");
    put_seals(&node, &make_chain(&changes, &Impostor(own)));
    assert_eq!(verify_store(&node, &flags).json()["fault"], "signature_wrong");
    put_seals(&node, &[]);
    let empty = verify_store(&node, &flags).json();
    assert_eq!(empty["unsealed"], json!([1, last]), "all changes are reported as unsealed");
}

/// REG-5
#[tokio::test]
async fn node_reports_a_vanished_seal_and_stops_sealing() {
    let node = Node::start();
    node.cast().await;
    sealed(&node).await;
    touch(&node, "more").await;
    sealed(&node).await;
    let seals: Vec<Seal> =
        serde_json::from_value(node.get("/v1/registry/seals").await["items"].take()).unwrap();
    put_seals(&node, &seals[..1]);
    let problem = eventually("the node notices", async || {
        node.get("/v1/status").await["chain"]["problem"].as_str().map(str::to_owned)
    })
    .await;
    assert!(problem.contains("seal 2 is missing"), "{problem}");
    assert_eq!(metric(&node, "snavio_registry_chain_broken").await, Some(1.0));
    assert!(node.said().contains("run snavio audit verify"), "{}", node.said());
    touch(&node, "later").await;
    assert_eq!(node.get("/v1/status").await["chain"]["seals"], 1);
    put_seals(&node, &seals);
    sealed(&node).await;
}

/// REG-5
#[tokio::test]
async fn changelog_shows_author_time_change_and_note() {
    let node = Node::start();
    node.cast().await;
    touch(&node, "ops@example.com").await;
    let shell = Shell::at(&node);
    let version = node.get("/v1/registry").await["version"].as_i64().unwrap();
    let shown = shell.run("audit show --kind tenant --name acme --output json").json();
    let items = shown["items"].as_array().unwrap();
    assert_eq!(items.len(), 2, "{shown}");
    assert_eq!((&items[1]["who"], &items[1]["why"]), (&json!("operator"), &json!("ops@example.com")));
    assert_eq!(items[1]["after"]["contact"], "ops@example.com");
    let table = shell.run(&format!("audit show --since {}", version - 1)).out;
    assert!(table.contains(r#"contact: null → "ops@example.com""#), "{table}");
    let diff = shell.run(&format!("audit diff {} {version} --output json", version - 1)).json();
    let contact = json!({ "before": null, "after": "ops@example.com" });
    let changes = diff["changes"].as_array().unwrap();
    assert_eq!((changes.len(), &changes[0]["members"]["contact"]), (1, &contact));
    let at = shell.run("audit at 1 --output json").json();
    assert_eq!(at["items"].as_array().map(Vec::len), Some(1), "{at}");
    let now = node.get("/v1/registry?limit=1000").await["items"].take();
    assert_eq!(node.get(&format!("/v1/registry/at/{version}?limit=1000")).await["items"], now);
    for line in ["audit at 1000000", "audit diff 5 2", "audit at -1"] {
        assert_ne!(shell.run(line).code, Some(0), "{line}");
    }
    node.operator().call(Method::POST, "/v1/queues/pay-inbox/purge?tenant=acme", None).await.unwrap();
    let deeds = shell.run("audit deeds --output json").json();
    assert_eq!(deeds["items"][0]["action"], "queue.purge", "{deeds}");
    for line in ["audit show", "audit at 1", "audit diff 0", "audit verify", "audit deeds"] {
        let ended = shell.run(line);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let documents =
        format!("{}{}", node.get("/v1/registry/evidence").await, node.get("/v1/registry/at/9").await);
    assert!(!documents.contains("v1.") && !documents.contains("secret_hash"), "REG-13: {documents}");
}

/// The entries of the registry, without those that hold a secret.
fn without_secrets(entries: &Value) -> Vec<Value> {
    let entries = entries.as_array().unwrap().iter();
    entries.filter(|entry| entry["kind"] != "key" && entry["kind"] != "client").cloned().collect()
}

/// REG-5, REG-24
#[tokio::test]
async fn rollback_is_an_ordinary_change_and_restores_no_secret() {
    let node = Node::start();
    let cast = node.cast().await;
    let shell = Shell::at(&node);
    let good = node.get("/v1/registry").await["version"].as_i64().unwrap();
    let before = node.get("/v1/registry?limit=1000").await["items"].take();
    node.apply(&json!({ "services": [{ "name": "acme/new" }] })).await;
    for name in ["notify", "pay", "lost"] {
        let grant = format!("/v1/grants?source=acme/billing&target=acme/bot&name={name}");
        node.operator().call(Method::DELETE, &grant, None).await.unwrap();
    }
    node.operator().call(Method::DELETE, "/v1/tenants/acme/services/billing", None).await.unwrap();
    touch(&node, "wrong").await;

    let plan = shell.run(&format!("audit rollback {good} --why oops"));
    assert_eq!(plan.code, Some(0), "{plan:?}");
    assert!(plan.out.contains("add --yes") && plan.out.contains("acme/billing"), "{plan:?}");
    let now = node.get("/v1/registry").await["version"].as_i64().unwrap();
    let done = shell.run(&format!("audit rollback {good} --why oops --yes --output json")).json();
    assert!(done["version"].as_i64().unwrap() > now, "{done}");

    let after = node.get("/v1/registry?limit=1000").await["items"].take();
    assert_eq!(without_secrets(&after), without_secrets(&before));
    assert_eq!(done["credentials"][0]["source"], "acme/billing", "{done}");
    assert_ne!(done["credentials"][0]["client_id"], cast.billing.client_id, "{done}");
    assert!(node.client(&cast.billing).authorized().await.is_err(), "the old client stays gone");
    let left = done["left_alone"].to_string();
    assert!(left.contains(&cast.billing.client_id) && !left.contains("acme/new"), "{left}");
    let shown = shell.run(&format!("audit show --since {now} --output json")).json();
    assert_eq!(shown["items"][0]["why"], format!("back to version {good}: oops"));
    let again = shell.run(&format!("audit rollback {good} --why oops --yes"));
    assert!(again.out.contains("nothing to change"), "{again:?}");
    sealed(&node).await;
    assert_eq!(shell.run("audit verify").code, Some(0));
}
