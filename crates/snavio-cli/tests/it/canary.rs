//! Secrets stay where they belong (REG-13, QUA-6): a node that logs everything is used well and badly, and then all that
//! it wrote, keeps and answers is searched for them, in every way they are usually written.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use snavio_sdk::Credentials;

use crate::engine::files;
use crate::node::{Draft, Launch, Node, new_id, post};
use crate::patience::eventually;
use crate::people;
use crate::wire::{Answered, http, metrics, post_json};
use crate::workloads::{ISSUER, JWT_BEARER, Signer, claims};

/// Something that nobody but its owner may see.
struct Canary {
    what: String,
    /// As text and as bytes, in every usual spelling.
    spellings: Vec<Vec<u8>>,
}

impl Canary {
    /// A secret that is some bytes.
    fn of_bytes(what: &str, bytes: &[u8]) -> Self {
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
        let spellings = texts.into_iter().map(String::into_bytes).chain([bytes.to_vec()]).collect();
        Self { what: what.to_owned(), spellings }
    }

    /// A secret that is a text.
    fn of_text(what: &str, text: &str) -> Self {
        // Behind what says of which kind it is. A JWT may have the character anywhere.
        let kind = text.split_once('_').filter(|(kind, _)| kind.starts_with("snav"));
        let inner = kind.map_or(text, |(_, inner)| inner);
        let mut canary = Self::of_bytes(what, text.as_bytes());
        canary.spellings.push(inner.as_bytes().to_vec());
        canary.spellings.extend(Self::of_bytes(what, inner.as_bytes()).spellings);
        canary
    }

    fn is_in(&self, text: &[u8]) -> bool {
        self.spellings.iter().any(|spelling| memchr::memmem::find(text, spelling).is_some())
    }
}

fn of_credentials(credentials: &Credentials, canaries: &mut Vec<Canary>) {
    let (source, version) = (&credentials.source, &credentials.hmac_version);
    canaries.push(Canary::of_text(&format!("client secret of {source}"), &credentials.client_secret));
    let secret = credentials.secret().unwrap();
    canaries.push(Canary::of_bytes(&format!("{version} of {source}"), secret.expose_bytes()));
}

/// Everything that was answered, but for what gives secrets out on purpose.
#[derive(Default)]
struct Heard(Vec<(String, Vec<u8>)>);

impl Heard {
    async fn ask(&mut self, what: &str, request: RequestBuilder) -> u16 {
        let answer = Answered::to(request).await;
        self.0.push((what.to_owned(), answer.text.into_bytes()));
        answer.status
    }
}

const KEYS: &str = "/v1/tenants/acme/services/billing/keys";

/// REG-13, QUA-6
#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_anything_that_a_node_writes_keeps_or_answers() {
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
        Canary::of_text("the operator's token", &operator),
        Canary::of_bytes("the platform key", &STANDARD.decode(key.trim()).unwrap()),
    ];
    let (first, bot) = (&cast.billing, &cast.bot);
    let second = made(&node, first, &format!("{KEYS}/rotate"), "").await;
    let third = made(&node, first, &format!("{KEYS}/hmac-v2/revoke"), "replacement").await;
    [first, bot, &second, &third].iter().for_each(|it| of_credentials(it, &mut canaries));
    let token = node.token(first).await;
    canaries.push(Canary::of_text("a token", &token));
    let person = people::issue(&node, "anna@example.com", "auditor", None).await.token;
    canaries.push(Canary::of_text("a person's token", &person));
    let (jwt, of_workload) = workload(&node, &mut canaries).await;

    let mut heard = Heard::default();
    used_well(&node, first, &third).await;
    let misplaced =
        [&first.hmac_secret, &first.client_secret, &jwt, &token, &operator, &person, &of_workload];
    used_badly(&node, first, &token, &misplaced, &mut heard).await;
    looked_at(&node, &[("an operator", &operator), ("a service", &token), ("a person", &person)], &mut heard)
        .await;
    let written = written(&node, objects.path()).await;
    node.stop();
    heard.0.extend(written);
    heard.0.push(("what it prints".to_owned(), node.printed().into_bytes()));
    let logged = node.said();
    assert!(logged.contains("DEBUG"), "everything is logged");
    heard.0.push(("what it logs".to_owned(), logged.into_bytes()));
    let kept = node.engine().kept(node.folder());
    assert!(
        kept.iter().any(|(_, text)| memchr::memmem::find(text, b"hmac-v3").is_some()),
        "keys are in there"
    );
    heard.0.extend(kept);
    for (name, text) in &heard.0 {
        for canary in &canaries {
            assert!(!canary.is_in(text), "{} is in {name}", canary.what);
        }
    }
}

/// A key that was made by this call.
async fn made(node: &Node, before: &Credentials, path: &str, within: &str) -> Credentials {
    let answer = node.operator().call(Method::POST, path, Some(&json!({ "why": "a canary" }))).await.unwrap();
    let key = if within.is_empty() { &answer } else { &answer[within] };
    let text = |name: &str| key[name].as_str().unwrap();
    before.with_key(text("hmac_version").parse().unwrap(), text("hmac_secret").to_owned())
}

async fn used_well(node: &Node, first: &Credentials, third: &Credentials) {
    let client = node.client(third);
    let told = client.tenant_config().await.unwrap();
    assert_eq!(told["current"]["hmac_secret"], third.hmac_secret);
    for name in ["notify", "pay"] {
        assert_eq!(post(&client, Draft::new(name, &new_id()).sign(third)).await.0, 202);
    }
    assert_eq!(post(&client, Draft::new("notify", &new_id()).sign(first)).await.0, 202);
}

/// A workload's JWT, and the token that it was exchanged for. The issuer's keys hold more than they should: whoever
/// publishes a private key by mistake must not find it in the node's log as well.
async fn workload(node: &Node, canaries: &mut Vec<Canary>) -> (String, String) {
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
    canaries.push(Canary::of_bytes("an issuer's private key", &private));
    canaries.push(Canary::of_text("a workload's JWT", &jwt));
    let signature = jwt.rsplit('.').next().unwrap();
    canaries.push(Canary::of_text("the signature of a workload's JWT", signature));
    canaries.push(Canary::of_text("a workload's token", &token));
    (jwt, token)
}

/// The snapshot of the registry as it is, each object as it is kept and as it is read.
async fn written(node: &Node, folder: &Path) -> Vec<(String, Vec<u8>)> {
    let version = metrics(node).await["snavio_registry_version"] as i64;
    let latest = folder.join("registry/latest.json");
    eventually("the snapshot is written", async || {
        let manifest: Value = serde_json::from_slice(&std::fs::read(&latest).ok()?).ok()?;
        (manifest["manifest"]["version_id"] == version).then_some(())
    })
    .await;
    let mut all = files(&folder.join("registry"));
    for (name, bytes) in files(&folder.join(format!("registry/{version}"))) {
        let header = bytes.iter().position(|byte| *byte == b'\n').unwrap();
        let lines = zstd::bulk::decompress(&bytes[header + 1..], 1 << 20).unwrap();
        all.extend([(format!("the lines of {name}"), lines), (name, bytes)]);
    }
    for kind in ["personal_token", "issuer", "workload", "key"] {
        let kind = format!("\"kind\":\"{kind}\"");
        let is_there = all.iter().any(|(_, text)| memchr::memmem::find(text, kind.as_bytes()).is_some());
        assert!(is_there, "{kind} is in there");
    }
    all
}

/// With every secret where it does not belong.
async fn used_badly(node: &Node, it: &Credentials, token: &str, misplaced: &[&String], heard: &mut Heard) {
    let client = node.client(it);
    let forged = Draft { payload: r#"{"forged":true}"#.into(), ..Draft::new("pay", &new_id()) }.sign(it);
    let forged = String::from_utf8(forged).unwrap().replace("true", "false");
    assert_eq!(post(&client, forged.into_bytes()).await.0, 401);
    let operator = node.operator_token();
    for (n, secret) in misplaced.iter().copied().enumerate() {
        let url = |path: &str| format!("{}{path}", node.url());
        let get = |path: String| http(node).get(url(&path));
        let say = |what: &str| format!("secret {n} as {what}");
        let unknown = json!({ "dry_run": true, "hmac_secret": secret, "tenants": [{ "name": secret }] });
        heard.ask(&say("a tenant"), get(format!("/v1/tenants/{secret}")).bearer_auth(token)).await;
        heard.ask(&say("a query"), get(format!("/v1/registry?access_token={secret}"))).await;
        heard.ask(&say("a kind"), get(format!("/v1/registry?kind={secret}")).bearer_auth(token)).await;
        heard.ask(&say("basic"), get("/v1/registry".into()).basic_auth(secret, Some(secret))).await;
        if n < 3 {
            heard.ask(&say("a bearer"), get("/v1/registry".into()).bearer_auth(secret)).await;
        }
        heard
            .ask(&say("a member"), post_json(node, "/v1/registry/apply", &operator, unknown.to_string()))
            .await;
        heard.ask(&say("a message"), post_json(node, "/v1/commands", token, secret.clone())).await;
        let form = format!("grant_type=client_credentials&client_id={secret}&client_secret={secret}");
        let form_type = "application/x-www-form-urlencoded";
        heard
            .ask(
                &say("a client"),
                http(node).post(url("/v1/token")).header("content-type", form_type).body(form),
            )
            .await;
        let assertion = [("grant_type", JWT_BEARER), ("assertion", &format!("{secret}x"))];
        heard.ask(&say("an assertion"), http(node).post(url("/v1/token")).form(&assertion)).await;
        let signed = get("/v1/tenant-config".into()).bearer_auth(token).header("webhook-id", secret);
        let signed = signed.header("webhook-timestamp", "1").header("webhook-signature", secret);
        heard.ask(&say("a signature"), signed).await;
    }
}

async fn looked_at(node: &Node, people: &[(&str, &String)], heard: &mut Heard) {
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
        for (who, bearer) in people {
            let request = http(node).get(format!("{}{path}", node.url())).bearer_auth(bearer);
            let status = heard.ask(&format!("{path} as {who}"), request).await;
            assert!(
                *who != "an operator" || status == 200 || path == "/v1/tenant-config",
                "{path}: {status}"
            );
        }
    }
    let operator = people[0].1;
    let again =
        http(node).put(format!("{}/v1/tenants/acme/services/billing", node.url())).bearer_auth(operator);
    let again =
        again.header("content-type", "application/json").body(Value::Object(Default::default()).to_string());
    assert_eq!(heard.ask("the service registered again", again).await, 200);
}
