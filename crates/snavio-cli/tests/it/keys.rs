//! A service's keys over HTTP: list, rotate, revoke, fetch, and follow rotations (REG-10 to REG-12).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use snavio_model::id::Serial;
use snavio_model::signature::webhook;
use snavio_sdk::{ApiError, Client, Command, Credentials};

use crate::node::{Draft, Node, new_id, post, seconds_from_now};
use crate::patience::eventually;
use crate::shell::Shell;
use crate::wire::{Answered, http, metric};

const BILLING: &str = "/v1/tenants/acme/services/billing/keys";

async fn ask(node: &Node, method: Method, path: &str, body: Option<Value>) -> Value {
    node.operator().call(method, path, body.as_ref()).await.expect("the node does it")
}

async fn rotate(node: &Node) -> RotatedKey {
    let made = ask(node, Method::POST, &format!("{BILLING}/rotate"), Some(json!({ "why": "a test" }))).await;
    RotatedKey { version: text(&made, "hmac_version"), secret: text(&made, "hmac_secret") }
}

/// The answer to a rotation.
struct RotatedKey {
    version: String,
    secret: String,
}

impl RotatedKey {
    fn apply_to(&self, before: &Credentials) -> Credentials {
        before.with_key(self.version.parse().unwrap(), self.secret.clone())
    }
}

fn text(document: &Value, name: &str) -> String {
    document[name].as_str().unwrap_or_else(|| panic!("{name} is missing: {document}")).to_owned()
}

/// The states of all keys, oldest first: `hmac-v1 previous, hmac-v2 current`.
async fn key_states(node: &Node) -> String {
    let listed = ask(node, Method::GET, BILLING, None).await;
    assert!(!listed.to_string().contains("whsec_"), "no secret is listed");
    let keys = listed["keys"].as_array().unwrap().iter();
    keys.map(|key| format!("{} {}", text(key, "version"), text(key, "state"))).collect::<Vec<_>>().join(", ")
}

async fn send_notify(client: &Client, credentials: &Credentials) -> (u16, String) {
    let (status, answer) = post(client, Draft::new("notify", &new_id()).sign(credentials)).await;
    (status, answer["reason"].as_str().unwrap_or_default().to_owned())
}

fn expired() -> (u16, String) {
    (401, "key_expired".to_owned())
}

/// REG-10
#[tokio::test]
async fn current_and_previous_key_are_accepted_and_older_refused() {
    let node = Node::start();
    let first = node.cast().await.billing;
    let client = node.client(&first);
    assert_eq!(key_states(&node).await, "hmac-v1 current");
    let second = rotate(&node).await.apply_to(&first);
    assert_eq!(key_states(&node).await, "hmac-v1 previous, hmac-v2 current");
    assert_eq!((send_notify(&client, &first).await.0, send_notify(&client, &second).await.0), (202, 202));
    let third = rotate(&node).await.apply_to(&first);
    assert_eq!(key_states(&node).await, "hmac-v1 ended, hmac-v2 previous, hmac-v3 current");
    assert_eq!(send_notify(&client, &first).await, expired());
    assert_eq!((send_notify(&client, &second).await.0, send_notify(&client, &third).await.0), (202, 202));
    let listed = ask(&node, Method::GET, BILLING, None).await;
    assert!(listed["keys"][1]["ends_at"].is_string() && listed["keys"][2]["ends_at"].is_null(), "{listed}");
    assert!(listed["rotates_at"].is_string() && listed["polled_at"].is_null(), "{listed}");
}

/// REG-10: the schedule skips the keys of a suspended tenant; an operator can still rotate them.
#[tokio::test]
async fn operator_rotates_keys_of_suspended_tenant() {
    let node = Node::start();
    node.cast().await;
    ask(&node, Method::PUT, "/v1/tenants/acme", Some(json!({ "suspended": true }))).await;
    assert_eq!(rotate(&node).await.version, "hmac-v2");
    assert_eq!(key_states(&node).await, "hmac-v1 previous, hmac-v2 current");
}

/// REG-12
#[tokio::test]
async fn revoked_key_is_refused_at_once_and_replaced_by_default() {
    let node = Node::start();
    let first = node.cast().await.billing;
    let client = node.client(&first);
    let revoke = async |version: &str, body: Value| {
        ask(&node, Method::POST, &format!("{BILLING}/{version}/revoke"), Some(body)).await
    };
    let revoked = revoke("hmac-v1", json!({ "why": "was in a log" })).await;
    assert_eq!(revoked["revoked"], "hmac-v1");
    let secret = text(&revoked["replacement"], "hmac_secret");
    let second = first.with_key("hmac-v2".parse().unwrap(), secret);
    assert_eq!(send_notify(&client, &first).await, expired());
    assert_eq!(send_notify(&client, &second).await.0, 202);
    assert_eq!(revoke("hmac-v1", json!({})).await, json!({ "revoked": "hmac-v1" }), "once is enough");
    let last = revoke("hmac-v2", json!({ "replace": false })).await;
    assert_eq!(last, json!({ "revoked": "hmac-v2" }));
    assert_eq!(send_notify(&client, &second).await, expired());
    assert_eq!(key_states(&node).await, "hmac-v1 revoked, hmac-v2 revoked");
    let third = rotate(&node).await.apply_to(&first);
    assert_eq!(send_notify(&client, &third).await.0, 202);
    let changes = node.get("/v1/registry/changes?limit=1000").await;
    let why =
        changes["items"].as_array().unwrap().iter().filter(|change| change["why"] == "was in a log").count();
    assert_eq!(why, 2, "the revocation and its replacement are one change of two entries");
    for path in ["hmac-v9/revoke", "HMAC/revoke"] {
        let unknown =
            node.operator().call(Method::POST, &format!("{BILLING}/{path}"), Some(&json!({}))).await;
        assert!(matches!(unknown, Err(ApiError::Refused { status: 400 | 404, .. })), "{unknown:?}");
    }
}

pub(crate) struct Asked {
    pub(crate) status: u16,
    pub(crate) document: Value,
    cache: Option<String>,
}

impl Asked {
    /// `given` if the answer has the key to sign with, the reason if it was refused, `withheld` otherwise.
    pub(crate) fn verdict(&self) -> &str {
        match (&self.document["current"], self.document["reason"].as_str()) {
            (Value::Object(_), None) => "given",
            (_, Some(reason)) => reason,
            _ => "withheld",
        }
    }
}

/// Fetches the configuration with a service's token, with or without a signature.
async fn fetch_config(node: &Node, token: &str, signed: Option<(&Credentials, i64, &str)>) -> Asked {
    fetch_config_with(http(node).get(format!("{}/v1/tenant-config", node.url())), token, signed).await
}

async fn fetch_config_with(
    request: reqwest::RequestBuilder,
    token: &str,
    signed: Option<(&Credentials, i64, &str)>,
) -> Asked {
    let headers =
        signed.map(|(credentials, offset, signed_text)| signature(credentials, offset, signed_text));
    asked(request, token, headers.as_ref()).await
}

/// The headers of a request that is signed under a new id, `offset` seconds from now.
pub(crate) fn signature(credentials: &Credentials, offset: i64, signed_text: &str) -> HeaderMap {
    let (id, text) = (new_id(), seconds_from_now(offset));
    let at = snavio_model::time::Timestamp::parse(&text).unwrap().0 / 1000;
    let signature = webhook::sign(&credentials.secret().unwrap(), &id, at, signed_text.as_bytes());
    let mut headers = HeaderMap::new();
    headers.insert("webhook-id", id.parse().unwrap());
    headers.insert("webhook-timestamp", at.into());
    headers.insert("webhook-signature", signature.parse().unwrap());
    headers
}

/// Sends the request with the given headers. The headers may be used before, so that the request is a replay.
pub(crate) async fn asked(
    request: reqwest::RequestBuilder,
    token: &str,
    headers: Option<&HeaderMap>,
) -> Asked {
    let request = request.bearer_auth(token).headers(headers.cloned().unwrap_or_default());
    let answer = request.send().await.unwrap();
    let cache = answer.headers().get("cache-control").map(|value| value.to_str().unwrap().to_owned());
    Asked { status: answer.status().as_u16(), cache, document: answer.json().await.unwrap() }
}

pub(crate) const SIGNED: &str = "GET /v1/tenant-config";

/// REG-11
#[tokio::test(flavor = "multi_thread")]
async fn stolen_token_alone_yields_no_secret() {
    let mut node = Node::start();
    let cast = node.cast().await;
    let first = cast.billing;
    let token = node.token(&first).await;
    let unsigned = fetch_config(&node, &token, None).await;
    assert_eq!((unsigned.status, &unsigned.document["current"]), (200, &Value::Null));
    assert!(!unsigned.document.to_string().contains("whsec_"));
    assert_eq!(unsigned.document["withheld"], "the request is not signed");
    let answer = fetch_config(&node, &token, Some((&first, 0, SIGNED))).await;
    assert_eq!((answer.status, answer.cache.as_deref()), (200, Some("no-store")));
    assert_eq!(
        answer.document["current"],
        json!({ "hmac_version": "hmac-v1", "hmac_secret": first.hmac_secret })
    );
    let second = rotate(&node).await.apply_to(&first);
    let answer = fetch_config(&node, &token, Some((&first, 0, SIGNED))).await.document;
    assert_eq!(
        answer["current"]["hmac_secret"], second.hmac_secret,
        "the previous key fetches the current one"
    );
    assert_eq!(answer.to_string().matches("whsec_").count(), 1, "and nothing but that: {answer}");
    rotate(&node).await;
    for (credentials, offset, signed_text, reason) in [
        (&first, 0, SIGNED, "key_expired"),
        (&cast.bot, 0, SIGNED, "hmac_invalid"),
        (&second, 0, "", "hmac_invalid"),
        (&second, 0, "POST /v1/tenant-config", "hmac_invalid"),
        (&second, -62, SIGNED, "timestamp_out_of_window"),
        (&second, 62, SIGNED, "timestamp_out_of_window"),
    ] {
        let refused = fetch_config(&node, &token, Some((credentials, offset, signed_text))).await;
        assert_eq!(
            (refused.status, text(&refused.document, "reason")),
            (401, reason.to_owned()),
            "{signed_text}"
        );
    }
    let revoke = format!("{BILLING}/hmac-v2/revoke");
    ask(&node, Method::POST, &revoke, Some(json!({}))).await;
    let refused = fetch_config(&node, &token, Some((&second, 0, SIGNED))).await;
    assert_eq!(text(&refused.document, "reason"), "key_expired");
    let operator = fetch_config(&node, &node.operator_token(), None).await;
    assert_eq!(operator.status, 403, "a configuration is a service's own");
    assert_polls_audited(&mut node).await;
}

async fn assert_polls_audited(node: &mut Node) {
    node.stop();
    let store = node.engine().open(node.folder()).await;
    let audit = store.audit(Serial(0), 100).await.unwrap();
    let polls = audit.iter().filter(|record| record.action == "tenant_config.poll");
    let answer: Vec<_> = polls.clone().map(|record| record.outcome.as_str()).collect();
    let expected =
        ["no secret was given", "the secret of hmac-v1 was given", "the secret of hmac-v2 was given"];
    assert_eq!(answer, expected);
    assert!(
        polls
            .clone()
            .all(|record| record.object == "acme/billing"
                && record.act.who.starts_with("acme/billing (snavcl_"))
    );
    store.close().await;
}

/// REG-11
#[tokio::test]
async fn unencrypted_network_request_gets_no_secret() {
    let node = Node::start();
    let billing = node.cast().await.billing;
    // The request comes from this machine's network address, as if another machine had sent it.
    let from = reqwest::Client::builder().local_address(own_address()).build().unwrap();
    let request = from.get(format!("{}/v1/tenant-config", node.url()));
    let answer = fetch_config_with(request, &node.token(&billing).await, Some((&billing, 0, SIGNED))).await;
    assert_eq!((answer.status, &answer.document["current"]), (200, &Value::Null));
    assert!(text(&answer.document, "withheld").contains("over TLS"));
}

/// REG-11
#[tokio::test]
async fn signed_request_is_accepted_once() {
    let node = Node::start();
    let billing = node.cast().await.billing;
    let token = node.token(&billing).await;
    let request = || http(&node).get(format!("{}/v1/tenant-config", node.url()));
    let captured = signature(&billing, 0, SIGNED);
    assert_eq!(asked(request(), &token, Some(&captured)).await.verdict(), "given");
    for _ in 0..2 {
        let again = asked(request(), &token, Some(&captured)).await;
        assert_eq!((again.status, again.verdict()), (401, "replayed"), "{}", again.document);
        assert!(text(&again.document, "detail").contains("was used before"));
    }
    assert_eq!(metric(&node, "snavio_signed_requests_replayed_total").await, Some(2.0));
    assert!(node.said().contains("a signed request for the configuration was sent again"));
    // The signature covers the id, so it does not fit another one.
    let mut other = captured.clone();
    other.insert("webhook-id", new_id().parse().unwrap());
    assert_eq!(asked(request(), &token, Some(&other)).await.verdict(), "hmac_invalid");
    let next = signature(&billing, 0, SIGNED);
    assert_eq!(asked(request(), &token, Some(&next)).await.verdict(), "given");
    // A signed request that was seen on an open network is refused on this machine, though it got no secret
    // there.
    let seen = signature(&billing, 0, SIGNED);
    let from = reqwest::Client::builder().local_address(own_address()).build().unwrap();
    let open = from.get(format!("{}/v1/tenant-config", node.url()));
    assert_eq!(asked(open, &token, Some(&seen)).await.verdict(), "withheld");
    assert_eq!(asked(request(), &token, Some(&seen)).await.verdict(), "replayed");
}

/// REG-11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_instances_fetch_config_within_one_second() {
    let node = Arc::new(Node::start());
    let billing = Arc::new(node.cast().await.billing);
    let asking: Vec<_> = (0..40)
        .map(|_| {
            let (node, billing) = (Arc::clone(&node), Arc::clone(&billing));
            tokio::spawn(async move { node.client(&billing).tenant_config().await.unwrap() })
        })
        .collect();
    for answer in asking {
        assert_eq!(answer.await.unwrap()["current"]["hmac_version"], "hmac-v1");
    }
}

/// REG-11: a request that a proxy on the same machine forwards does not count as local.
#[tokio::test]
async fn forwarded_request_is_not_treated_as_local() {
    let node = Node::start();
    let billing = node.cast().await.billing;
    let token = node.token(&billing).await;
    for (name, value) in [
        ("Forwarded", "for=192.0.2.1"),
        ("X-Forwarded-For", "192.0.2.1"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Forwarded-Proto", "https"),
        ("Via", "1.1 proxy"),
        ("X-Real-IP", ""),
    ] {
        let request = http(&node).get(format!("{}/v1/tenant-config", node.url())).header(name, value);
        let answer = fetch_config_with(request, &token, Some((&billing, 0, SIGNED))).await;
        assert_eq!(answer.verdict(), "withheld", "{name}: {value}");
        assert!(text(&answer.document, "withheld").contains("over TLS"));
    }
}

/// This machine's address in the network, not the loopback address.
pub(crate) fn own_address() -> std::net::IpAddr {
    // `connect` of a UDP socket sends nothing: the system only chooses the address that it would send from.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").expect("this machine has an address besides the loopback's");
    socket.local_addr().unwrap().ip()
}

/// REG-11
#[tokio::test]
async fn service_fetches_its_keys_limits_routes_and_grants() {
    let node = Node::start();
    let cast = node.cast().await;
    let billing = node.client(&cast.billing).tenant_config().await.unwrap();
    assert_eq!(billing["service"], "acme/billing");
    assert_eq!(billing["keys"][0]["state"], "current");
    assert_eq!(
        (&billing["limits"]["body_bytes_max"], &billing["limits"]["poll_seconds"]),
        (&json!(262_144), &json!(43_200))
    );
    assert_eq!(route_and_grant_names(&billing), ["", "", "lost notify pay"]);
    let bot = node.client(&cast.bot).tenant_config().await.unwrap();
    assert_eq!(route_and_grant_names(&bot), ["notify pay", "lost notify pay", ""]);
    let listed = ask(&node, Method::GET, BILLING, None).await;
    assert!(listed["polled_at"].is_string(), "the poll was noted: {listed}");
}

/// The names of the routes, the given grants and the held grants in a service's configuration.
fn route_and_grant_names(config: &Value) -> [String; 3] {
    [&config["routes"], &config["grants_given"], &config["grants_held"]].map(|list| {
        let items = list["items"].as_array().unwrap().iter().map(|item| text(item, "name"));
        items.collect::<Vec<_>>().join(" ")
    })
}

fn command() -> Command {
    Command::new("acme/bot".parse().unwrap(), "notify".parse().unwrap(), b"{}".to_vec())
}

/// REG-10, REG-11
#[tokio::test(flavor = "multi_thread")]
async fn polling_client_is_never_refused_during_rotations_under_load() {
    let node = Node::start();
    let cast = node.cast().await;
    let kept_keys = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&kept_keys);
    let client = node.client(&cast.billing).polling_every(Duration::from_millis(50));
    let client = Arc::new(client.keeping(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    let idle = node.client(&cast.billing).without_following();
    assert_eq!(idle.send(&command()).await.unwrap().status, 202);
    let stop = Arc::new(AtomicBool::new(false));
    let senders: Vec<_> = (0..8)
        .map(|_| {
            let (client, stop) = (Arc::clone(&client), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut sent = 0;
                while !stop.load(Ordering::Relaxed) {
                    let answer = client.send_once(&command()).await;
                    assert_eq!(answer.expect("no message is refused").status, 202);
                    sent += 1;
                }
                sent
            })
        })
        .collect();
    for rotation in 1..=8 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        rotate(&node).await;
        eventually("the client has the new key", async || {
            (kept_keys.load(Ordering::Relaxed) == rotation).then_some(())
        })
        .await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut sent = 0;
    for sender in senders {
        sent += sender.await.unwrap();
    }
    assert_eq!(
        (kept_keys.load(Ordering::Relaxed), client.credentials().hmac_version.as_str()),
        (8, "hmac-v9")
    );
    assert!(sent > 100, "{sent} messages were sent");
    for reason in ["key_expired", "key_unknown", "hmac_invalid"] {
        let series = format!(r#"snavio_commands_total{{verdict="refused",path="",reason="{reason}"}}"#);
        assert_eq!(metric(&node, &series).await, Some(0.0), "{reason}: nothing was even refused once");
    }
    let refused = idle.send(&command()).await.expect_err("its key has ended");
    assert!(refused.is_of_the_key(), "{refused}");
}

/// REG-11
#[tokio::test]
async fn client_with_refused_key_fetches_new_one_and_resends() {
    let node = Node::start();
    let first = node.cast().await.billing;
    let client = node.client(&first).polling_every(Duration::from_secs(3600));
    assert_eq!(client.send_once(&command()).await.unwrap().status, 202);
    let second = rotate(&node).await.apply_to(&first);
    assert!(client.fetch_key().await.unwrap());
    assert!(!client.fetch_key().await.unwrap(), "it has it already");
    assert_eq!(client.credentials().hmac_secret, second.hmac_secret);
    let revoke = format!("{BILLING}/hmac-v2/revoke");
    ask(&node, Method::POST, &revoke, Some(json!({ "replace": false }))).await;
    assert_eq!(client.send_once(&command()).await.unwrap().status, 202, "the key before is still good");
    let third = rotate(&node).await.apply_to(&first);
    assert!(client.fetch_key().await.unwrap(), "and fetches the next");
    assert_eq!(client.credentials().hmac_secret, third.hmac_secret);
    let late = node.client(&first).polling_every(Duration::from_secs(3600));
    assert_eq!(late.send_once(&command()).await.unwrap().status, 202);
    assert_eq!(late.credentials().hmac_version.as_str(), "hmac-v3", "the first command asks");
}

/// REG-12
#[tokio::test]
async fn previous_key_use_is_reported_once_and_counted() {
    let node = Node::start();
    let first = node.cast().await.billing;
    let client = node.client(&first);
    let second = rotate(&node).await.apply_to(&first);
    client.tenant_config().await.unwrap();
    for credentials in [&first, &second, &first] {
        assert_eq!(send_notify(&client, credentials).await.0, 202);
    }
    let answer = eventually("the use has a telemetry record", async || {
        let page = client.call(Method::GET, "/v1/telemetry", None).await.unwrap();
        let items = page["items"].as_array().unwrap().clone();
        let legacy = items.into_iter().filter(|record| record["type"] == "snavio.secret.legacy_key_used");
        let legacy: Vec<_> = legacy.collect();
        (!legacy.is_empty()).then_some(legacy)
    })
    .await;
    assert_eq!(answer.len(), 1, "{answer:?}");
    let answer = answer[0].to_string();
    for member in [r#""version_id":"hmac-v1""#, "time_of_last_config_poll", "command_id", "acme/billing"] {
        assert!(answer.contains(member), "{member} is missing: {answer}");
    }
    assert_eq!(metric(&node, "snavio_legacy_key_uses_total").await, Some(2.0));
}

/// Command line (10-interfaces), REG-11
#[tokio::test]
async fn command_line_lists_rotates_revokes_and_fetches_keys() {
    let node = Node::start();
    let first = node.cast().await.billing;
    let shell = Shell::at(&node);
    let file = shell.write("billing.json", &serde_json::to_string(&first).unwrap());
    let emit = format!("emit -c {file} --target acme/bot --name notify {{}}");
    let listed = shell.run("keys list acme/billing --output json").json();
    assert_eq!(listed["keys"][0]["version"], "hmac-v1");
    let made = shell.run("keys rotate acme/billing --why exercise --output json").json();
    assert_eq!(made["hmac_version"], "hmac-v2");
    assert!(text(&made, "hmac_secret").starts_with("whsec_"));
    let fetched = shell.run(&format!("keys fetch -c {file} --output json")).json();
    assert_eq!((&fetched["hmac_version"], &fetched["changed"]), (&json!("hmac-v2"), &json!(true)));
    let kept_keys: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(
        (&kept_keys["hmac_secret"], &kept_keys["client_secret"]),
        (&made["hmac_secret"], &json!(first.client_secret))
    );
    assert_eq!(shell.run(&emit).code, Some(0));
    for _ in 0..2 {
        assert_eq!(shell.run("keys rotate acme/billing").code, Some(0));
    }
    for line in [emit.clone(), format!("keys fetch -c {file}")] {
        let ended = shell.run(&line);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(
            ended.err.contains("key_expired") && ended.err.contains("snavio keys rotate acme/billing --save"),
            "{ended:?}"
        );
    }
    let saved = shell.run(&format!("keys rotate acme/billing --save {file}"));
    assert_eq!((saved.code, saved.out.contains("whsec_")), (Some(0), false), "{saved:?}");
    assert_eq!(shell.run(&emit).code, Some(0));
    let revoked = shell.run(&format!("keys revoke acme/billing hmac-v5 --why leaked --save {file}"));
    assert_eq!((revoked.code, revoked.out.contains("whsec_")), (Some(0), false), "{revoked:?}");
    assert_eq!(shell.run(&emit).code, Some(0));
    let other = shell.run(&format!("keys rotate acme/bot --save {file}"));
    assert_eq!(other.code, Some(2), "not another service's file: {other:?}");
    let answered = Answered::to(http(&node).get(format!("{}{BILLING}", node.url()))).await;
    assert_eq!(answered.status, 401);
}
