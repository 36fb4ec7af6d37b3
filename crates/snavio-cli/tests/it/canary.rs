//! Secrets stay where they belong (REG-13, QUA-6): a node that logs everything is used well and badly, and then all that
//! it wrote, keeps and answers is searched for them, in every way they are usually written.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use snavio_sdk::Credentials;

use crate::node::{Draft, Launch, Node, new_id, post};
use crate::wire::{Answered, http, post_json};

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
        let inner = text.split_once('_').map_or(text, |(_, inner)| inner);
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
    let mut node = Node::launch(&Launch::default().set("LOG_FILTER", "debug"));
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

    let mut heard = Heard::default();
    used_well(&node, first, &third).await;
    used_badly(&node, first, &token, &mut heard).await;
    looked_at(&node, &operator, &token, &mut heard).await;
    node.stop();
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

/// With every secret where it does not belong.
async fn used_badly(node: &Node, it: &Credentials, token: &str, heard: &mut Heard) {
    let client = node.client(it);
    let forged = Draft { payload: r#"{"forged":true}"#.into(), ..Draft::new("pay", &new_id()) }.sign(it);
    let forged = String::from_utf8(forged).unwrap().replace("true", "false");
    assert_eq!(post(&client, forged.into_bytes()).await.0, 401);
    let operator = node.operator_token();
    let secrets = [it.hmac_secret.as_str(), &it.client_secret, token, &operator];
    for (n, secret) in secrets.into_iter().enumerate() {
        let url = |path: &str| format!("{}{path}", node.url());
        let get = |path: String| http(node).get(url(&path));
        let say = |what: &str| format!("secret {n} as {what}");
        let unknown = json!({ "dry_run": true, "hmac_secret": secret, "tenants": [{ "name": secret }] });
        heard.ask(&say("a tenant"), get(format!("/v1/tenants/{secret}")).bearer_auth(token)).await;
        heard.ask(&say("a query"), get(format!("/v1/registry?access_token={secret}"))).await;
        heard.ask(&say("a kind"), get(format!("/v1/registry?kind={secret}")).bearer_auth(token)).await;
        heard.ask(&say("basic"), get("/v1/registry".into()).basic_auth(secret, Some(secret))).await;
        if n < 2 {
            heard.ask(&say("a bearer"), get("/v1/registry".into()).bearer_auth(secret)).await;
        }
        heard
            .ask(&say("a member"), post_json(node, "/v1/registry/apply", &operator, unknown.to_string()))
            .await;
        heard.ask(&say("a message"), post_json(node, "/v1/commands", token, secret.to_owned())).await;
        let form = format!("grant_type=client_credentials&client_id={secret}&client_secret={secret}");
        let form_type = "application/x-www-form-urlencoded";
        heard
            .ask(
                &say("a client"),
                http(node).post(url("/v1/token")).header("content-type", form_type).body(form),
            )
            .await;
        let signed = get("/v1/tenant-config".into()).bearer_auth(token).header("webhook-id", secret);
        let signed = signed.header("webhook-timestamp", "1").header("webhook-signature", secret);
        heard.ask(&say("a signature"), signed).await;
    }
}

async fn looked_at(node: &Node, operator: &str, token: &str, heard: &mut Heard) {
    for path in [
        "/v1/registry?limit=1000",
        "/v1/registry/changes?limit=1000",
        "/v1/tenants/acme/services/billing",
        KEYS,
        "/v1/telemetry?tenant=acme",
        "/v1/status",
        "/metrics",
        "/v1/tenant-config",
        "/openapi.json",
        "/",
    ] {
        for (who, bearer) in [("an operator", operator), ("a service", token)] {
            let request = http(node).get(format!("{}{path}", node.url())).bearer_auth(bearer);
            heard.ask(&format!("{path} as {who}"), request).await;
        }
    }
    let again =
        http(node).put(format!("{}/v1/tenants/acme/services/billing", node.url())).bearer_auth(operator);
    let again =
        again.header("content-type", "application/json").body(Value::Object(Default::default()).to_string());
    assert_eq!(heard.ask("the service registered again", again).await, 200);
}
