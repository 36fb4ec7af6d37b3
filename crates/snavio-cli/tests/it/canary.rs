//! Secrets do not leak (REG-13, QUA-6): the test uses a node with full logging in right and wrong ways, and
//! then searches its files, its store, its log and its answers for every secret in every usual encoding.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use snavio_sdk::Credentials;

use crate::engine::read_files;
use crate::node::{Draft, Launch, Node, new_id, post};
use crate::patience::eventually;
use crate::people;
use crate::wire::{Answered, http, metrics, post_json};
use crate::workloads::{ISSUER, JWT_BEARER, Signer, claims};

/// A secret to search for.
struct Canary {
    label: String,
    /// The secret in every usual encoding.
    encodings: Vec<Vec<u8>>,
}

impl Canary {
    fn from_bytes(label: &str, bytes: &[u8]) -> Self {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let listed = bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        let texts = [
            STANDARD.encode(bytes),
            STANDARD_NO_PAD.encode(bytes),
            URL_SAFE.encode(bytes),
            URL_SAFE_NO_PAD.encode(bytes),
            hex.to_uppercase(),
            hex,
            listed,
        ];
        let encodings = texts.into_iter().map(String::into_bytes).chain([bytes.to_vec()]).collect();
        Self { label: label.to_owned(), encodings }
    }

    fn from_text(label: &str, text: &str) -> Self {
        // A token's secret part follows its prefix `snav…_`. A JWT has no prefix, but may contain `_`
        // anywhere.
        let prefixed = text.split_once('_').filter(|(prefix, _)| prefix.starts_with("snav"));
        let inner = prefixed.map_or(text, |(_, inner)| inner);
        let mut canary = Self::from_bytes(label, text.as_bytes());
        canary.encodings.push(inner.as_bytes().to_vec());
        canary.encodings.extend(Self::from_bytes(label, inner.as_bytes()).encodings);
        canary
    }

    fn is_in(&self, text: &[u8]) -> bool {
        self.encodings.iter().any(|encoding| memchr::memmem::find(text, encoding).is_some())
    }
}

fn add_credentials(credentials: &Credentials, canaries: &mut Vec<Canary>) {
    let (source, version) = (&credentials.source, &credentials.hmac_version);
    canaries.push(Canary::from_text(&format!("client secret of {source}"), &credentials.client_secret));
    let secret = credentials.secret().unwrap();
    canaries.push(Canary::from_bytes(&format!("{version} of {source}"), secret.expose_bytes()));
}

/// Every output of the node, by name. Answers that return secrets on purpose are not in it.
#[derive(Default)]
struct Outputs(Vec<(String, Vec<u8>)>);

impl Outputs {
    /// Sends a request and keeps its answer.
    async fn send(&mut self, name: &str, request: RequestBuilder) -> u16 {
        let answer = Answered::to(request).await;
        self.0.push((name.to_owned(), answer.text.into_bytes()));
        answer.status
    }
}

const KEYS: &str = "/v1/tenants/acme/services/billing/keys";

/// REG-13, QUA-6
#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_absent_from_files_logs_and_responses() {
    let objects = tempfile::tempdir().unwrap();
    let launch = Launch::default()
        .set("LOG_FILTER", "debug")
        .set("SNAPSHOT_URL", format!("file://{}", objects.path().display()))
        .set("SNAPSHOT_ENVIRONMENT", "test")
        .set("SNAPSHOT_INTERVAL_SECONDS", 1);
    let mut node = Node::launch(&launch);
    let cast = node.cast().await;
    let operator = node.operator_token();
    let key = std::fs::read_to_string(node.secret("platform.key")).unwrap();
    let mut canaries = vec![
        Canary::from_text("the operator's token", &operator),
        Canary::from_bytes("the platform key", &STANDARD.decode(key.trim()).unwrap()),
    ];
    let (first, bot) = (&cast.billing, &cast.bot);
    let second = make_key(&node, first, &format!("{KEYS}/rotate"), "").await;
    let third = make_key(&node, first, &format!("{KEYS}/hmac-v2/revoke"), "replacement").await;
    for credentials in [first, bot, &second, &third] {
        add_credentials(credentials, &mut canaries);
    }
    let token = node.token(first).await;
    canaries.push(Canary::from_text("a token", &token));
    let person = people::issue(&node, "anna@example.com", "auditor", None).await.token;
    canaries.push(Canary::from_text("a person's token", &person));
    let (jwt, workload_token) = exchange_workload_token(&node, &mut canaries).await;

    let mut outputs = Outputs::default();
    use_correctly(&node, first, &third).await;
    let misplaced =
        [&first.hmac_secret, &first.client_secret, &jwt, &token, &operator, &person, &workload_token];
    misplace_secrets(&node, first, &token, &misplaced, &mut outputs).await;
    let callers = [("an operator", &operator), ("a service", &token), ("a person", &person)];
    read_everything(&node, &callers, &mut outputs).await;
    let snapshot = snapshot_files(&node, objects.path()).await;
    node.stop();
    outputs.0.extend(snapshot);
    outputs.0.push(("standard output".to_owned(), node.printed().into_bytes()));
    let logged = node.said();
    assert!(logged.contains("DEBUG"), "everything is logged");
    outputs.0.push(("the log".to_owned(), logged.into_bytes()));
    let kept = node.engine().kept(node.folder());
    assert!(
        kept.iter().any(|(_, text)| memchr::memmem::find(text, b"hmac-v3").is_some()),
        "the store's content includes keys"
    );
    outputs.0.extend(kept);
    for (name, text) in &outputs.0 {
        for canary in &canaries {
            assert!(!canary.is_in(text), "{} is in {name}", canary.label);
        }
    }
}

/// Makes a key by this call, and returns the credentials with it.
async fn make_key(node: &Node, before: &Credentials, path: &str, within: &str) -> Credentials {
    let answer = node.operator().call(Method::POST, path, Some(&json!({ "why": "a canary" }))).await.unwrap();
    let key = if within.is_empty() { &answer } else { &answer[within] };
    let [version, secret] = ["hmac_version", "hmac_secret"].map(|name| key[name].as_str().unwrap());
    before.with_key(version.parse().unwrap(), secret.to_owned())
}

async fn use_correctly(node: &Node, first: &Credentials, third: &Credentials) {
    let client = node.client(third);
    let config = client.tenant_config().await.unwrap();
    assert_eq!(config["current"]["hmac_secret"], third.hmac_secret);
    for name in ["notify", "pay"] {
        assert_eq!(post(&client, Draft::new(name, &new_id()).sign(third)).await.0, 202);
    }
    assert_eq!(post(&client, Draft::new("notify", &new_id()).sign(first)).await.0, 202);
}

/// Exchanges a workload's JWT for a token, and returns both. The issuer publishes its private key by mistake,
/// which must not appear in the node's log as well.
async fn exchange_workload_token(node: &Node, canaries: &mut Vec<Canary>) -> (String, String) {
    let (signer, private) = (Signer::ed25519(), [0xc4; 32]);
    let (mut published, mut spare) = (signer.jwk("k1"), Signer::ed25519().jwk("k2"));
    published["d"] = json!(URL_SAFE_NO_PAD.encode(private));
    spare["k"] = json!(URL_SAFE_NO_PAD.encode(private));
    let keys = node.folder().join("jwks.json");
    std::fs::write(&keys, json!({ "keys": [published, spare] }).to_string()).unwrap();
    let issuer = json!({ "issuer": ISSUER, "audience": "snavio", "keys": { "file": keys } });
    node.operator().call(Method::PUT, "/v1/issuers", Some(&issuer)).await.unwrap();
    let bound = json!({ "issuer": ISSUER, "subject": "repo:acme/shop", "service": "acme/billing" });
    node.operator().call(Method::PUT, "/v1/workloads", Some(&bound)).await.unwrap();
    let jwt = signer.sign("k1", &claims());
    let form = [("grant_type", JWT_BEARER), ("assertion", jwt.as_str())];
    let answer = Answered::to(http(node).post(format!("{}/v1/token", node.url())).form(&form)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let token = answer.document()["access_token"].as_str().unwrap().to_owned();
    canaries.push(Canary::from_bytes("an issuer's private key", &private));
    canaries.push(Canary::from_text("a workload's JWT", &jwt));
    let signature = jwt.rsplit('.').next().unwrap();
    canaries.push(Canary::from_text("the signature of a workload's JWT", signature));
    canaries.push(Canary::from_text("a workload's token", &token));
    (jwt, token)
}

/// The objects of the registry's current snapshot, each as stored and decompressed.
async fn snapshot_files(node: &Node, folder: &Path) -> Vec<(String, Vec<u8>)> {
    let version = metrics(node).await["snavio_registry_version"] as i64;
    let latest = folder.join("registry/latest.json");
    eventually("the snapshot is written", async || {
        let manifest: Value = serde_json::from_slice(&std::fs::read(&latest).ok()?).ok()?;
        (manifest["manifest"]["version_id"] == version).then_some(())
    })
    .await;
    let mut all = read_files(&folder.join("registry"));
    for (name, bytes) in read_files(&folder.join(format!("registry/{version}"))) {
        let header = bytes.iter().position(|byte| *byte == b'\n').unwrap();
        let lines = zstd::bulk::decompress(&bytes[header + 1..], 1 << 20).unwrap();
        all.extend([(format!("the lines of {name}"), lines), (name, bytes)]);
    }
    for kind in ["personal_token", "issuer", "workload", "key"] {
        let kind = format!("\"kind\":\"{kind}\"");
        let is_there = all.iter().any(|(_, text)| memchr::memmem::find(text, kind.as_bytes()).is_some());
        assert!(is_there, "the snapshot has {kind}");
    }
    all
}

/// Sends every secret in every place of a request where it does not belong.
async fn misplace_secrets(
    node: &Node,
    service: &Credentials,
    token: &str,
    misplaced: &[&String],
    outputs: &mut Outputs,
) {
    let client = node.client(service);
    let forged = Draft { payload: r#"{"forged":true}"#.into(), ..Draft::new("pay", &new_id()) }.sign(service);
    let forged = String::from_utf8(forged).unwrap().replace("true", "false");
    assert_eq!(post(&client, forged.into_bytes()).await.0, 401);
    let operator = node.operator_token();
    for (n, secret) in misplaced.iter().copied().enumerate() {
        let get = |path: String| http(node).get(format!("{}{path}", node.url()));
        let token_url = format!("{}/v1/token", node.url());
        let unknown = json!({ "dry_run": true, "hmac_secret": secret, "tenants": [{ "name": secret }] });
        let form = format!("grant_type=client_credentials&client_id={secret}&client_secret={secret}");
        let client = http(node).post(&token_url).header("content-type", "application/x-www-form-urlencoded");
        let assertion = [("grant_type", JWT_BEARER), ("assertion", &format!("{secret}x"))];
        let signed = get("/v1/tenant-config".into()).bearer_auth(token).header("webhook-id", secret);
        let mut requests = vec![
            ("a tenant", get(format!("/v1/tenants/{secret}")).bearer_auth(token)),
            ("a query", get(format!("/v1/registry?access_token={secret}"))),
            ("a kind", get(format!("/v1/registry?kind={secret}")).bearer_auth(token)),
            ("basic", get("/v1/registry".into()).basic_auth(secret, Some(secret))),
        ];
        if n < 3 {
            requests.push(("a bearer", get("/v1/registry".into()).bearer_auth(secret)));
        }
        requests.extend([
            ("a member", post_json(node, "/v1/registry/apply", &operator, unknown.to_string())),
            ("a message", post_json(node, "/v1/commands", token, secret.clone())),
            ("a client", client.body(form)),
            ("an assertion", http(node).post(&token_url).form(&assertion)),
            ("a signature", signed.header("webhook-timestamp", "1").header("webhook-signature", secret)),
        ]);
        for (place, request) in requests {
            outputs.send(&format!("secret {n} as {place}"), request).await;
        }
    }
}

/// Reads every page that may show a secret, as each of the callers.
async fn read_everything(node: &Node, callers: &[(&str, &String)], outputs: &mut Outputs) {
    let version = metrics(node).await["snavio_registry_version"];
    for path in [
        "/v1/registry?limit=1000",
        "/v1/registry/changes?limit=1000",
        "/v1/registry/evidence?limit=1000",
        "/v1/registry/seals",
        &format!("/v1/registry/at/{version}?limit=1000"),
        "/v1/registry/compare?from=0",
        "/v1/audit?limit=1000",
        "/v1/tokens",
        "/v1/issuers",
        "/v1/workloads",
        "/v1/tenants/acme/services/billing",
        KEYS,
        "/v1/telemetry?tenant=acme",
        "/v1/status",
        "/metrics",
        "/v1/tenant-config",
        "/openapi.json",
        "/",
    ] {
        for (caller, bearer) in callers {
            let request = http(node).get(format!("{}{path}", node.url())).bearer_auth(bearer);
            let status = outputs.send(&format!("{path} as {caller}"), request).await;
            assert!(
                *caller != "an operator" || status == 200 || path == "/v1/tenant-config",
                "{path}: {status}"
            );
        }
    }
    let operator = callers[0].1;
    let again =
        http(node).put(format!("{}/v1/tenants/acme/services/billing", node.url())).bearer_auth(operator);
    let again =
        again.header("content-type", "application/json").body(Value::Object(Default::default()).to_string());
    assert_eq!(outputs.send("the service registered again", again).await, 200);
}
