//! Workload identity from outside (REG-7): a JWT of a trusted issuer becomes a service's token, and nothing else does.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Method;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use snavio_model::bounds;

use crate::node::{Cast, Draft, Launch, Node, new_id, verdict};
use crate::wire::http;

pub(crate) const ISSUER: &str = "https://ci.example";
pub(crate) const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// A key of an issuer.
pub(crate) enum Signer {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
}

impl Signer {
    pub(crate) fn ed25519() -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed25519(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
    }

    fn p256() -> Self {
        let (kind, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let key = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        Self::P256(EcdsaKeyPair::from_pkcs8(kind, key.as_ref(), &random).unwrap())
    }

    pub(crate) fn jwk(&self, id: &str) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Self::Ed25519(key) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": text(key.public_key().as_ref()) })
            }
            Self::P256(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "kid": id, "x": text(x), "y": text(y) })
            }
        }
    }

    pub(crate) fn sign(&self, id: &str, claims: &Value) -> String {
        let algorithm = if matches!(self, Self::Ed25519(_)) { "EdDSA" } else { "ES256" };
        let header = json!({ "alg": algorithm, "kid": id });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(&header), part(claims));
        let signature = match self {
            Self::Ed25519(key) => key.sign(text.as_bytes()).as_ref().to_vec(),
            Self::P256(key) => key.sign(&SystemRandom::new(), text.as_bytes()).unwrap().as_ref().to_vec(),
        };
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

#[expect(clippy::disallowed_methods, reason = "an issuer goes by the machine's clock")]
fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

pub(crate) fn claims() -> Value {
    json!({ "iss": ISSUER, "sub": "repo:acme/shop", "aud": "snavio", "iat": now(), "exp": now() + 300 })
}

struct Desk {
    node: Node,
    cast: Cast,
    keys: PathBuf,
    signer: Signer,
}

impl Desk {
    /// `repo:acme/shop` of the issuer is `acme/billing`; the issuer's keys are in a file.
    async fn set() -> Self {
        let node = Node::start();
        let cast = node.cast().await;
        let desk = Self { keys: node.folder().join("jwks.json"), node, cast, signer: Signer::ed25519() };
        desk.publish(&[desk.signer.jwk("k1")]);
        desk.trust(&json!({ "file": desk.keys })).await;
        let workload = json!({ "issuer": ISSUER, "subject": "repo:acme/shop", "service": "acme/billing" });
        desk.node.operator().call(Method::PUT, "/v1/workloads", Some(&workload)).await.unwrap();
        desk
    }

    fn publish(&self, keys: &[Value]) {
        std::fs::write(&self.keys, json!({ "keys": keys }).to_string()).unwrap();
    }

    async fn trust(&self, keys: &Value) {
        let issuer = json!({ "issuer": ISSUER, "audience": "snavio", "keys": keys });
        self.node.operator().call(Method::PUT, "/v1/issuers", Some(&issuer)).await.unwrap();
    }

    async fn ask(&self, form: &[(&str, &str)]) -> (u16, Value) {
        let request = http(&self.node).post(format!("{}/v1/token", self.node.url())).form(form);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    async fn exchange(&self, assertion: &str) -> (u16, Value) {
        self.ask(&[("grant_type", JWT_BEARER), ("assertion", assertion)]).await
    }

    /// Status and OAuth's word for what is wrong.
    async fn told(&self, assertion: &str) -> (u16, String) {
        let (status, document) = self.exchange(assertion).await;
        (status, document["error"].as_str().unwrap_or_default().to_owned())
    }

    async fn token(&self) -> String {
        let (status, document) = self.exchange(&self.signer.sign("k1", &claims())).await;
        assert_eq!(status, 200, "{document}");
        document["access_token"].as_str().unwrap().to_owned()
    }

    /// Sends a message of `acme/billing` with a token.
    async fn send(&self, token: &str) -> u16 {
        let body = Draft::new("notify", &new_id()).sign(&self.cast.billing);
        let api = self.node.api().with_token(token);
        verdict(api.send(Method::POST, "/v1/commands", Some(body), "application/json").await).0
    }
}

/// REG-7
#[tokio::test]
async fn a_workloads_jwt_becomes_its_services_token_until_anything_of_it_is_gone() {
    let desk = Desk::set().await;
    let token = desk.token().await;
    assert_eq!(desk.send(&token).await, 202);
    let jwt = desk.signer.sign("k1", &claims());
    let exchanged = [
        ("grant_type", TOKEN_EXCHANGE),
        ("subject_token", jwt.as_str()),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
    ];
    let (status, document) = desk.ask(&exchanged).await;
    assert_eq!((status, document["expires_in"].as_u64()), (200, Some(600)), "{document}");
    assert_eq!(document["issued_token_type"], "urn:ietf:params:oauth:token-type:access_token");
    assert_eq!(desk.send(document["access_token"].as_str().unwrap()).await, 202);
    assert_eq!(desk.ask(&exchanged[..2]).await.0, 400, "of which type it is must be said");

    // Each use asks whether the workload is still bound, and its issuer trusted.
    let operator = desk.node.operator();
    let workload = "/v1/workloads?issuer=https://ci.example&subject=repo:acme/shop";
    operator.call(Method::DELETE, workload, None).await.unwrap();
    assert_eq!(desk.send(&token).await, 401);
    assert_eq!(desk.told(&jwt).await, (400, "invalid_grant".into()));
    let body = json!({ "issuer": ISSUER, "subject": "repo:acme/shop", "service": "acme/bot" });
    operator.call(Method::PUT, "/v1/workloads", Some(&body)).await.unwrap();
    assert_eq!(desk.send(&token).await, 401, "it is another service now");
    let body = json!({ "issuer": ISSUER, "subject": "repo:acme/shop", "service": "acme/billing" });
    operator.call(Method::PUT, "/v1/workloads", Some(&body)).await.unwrap();
    assert_eq!(desk.send(&token).await, 202);
    operator.call(Method::DELETE, "/v1/issuers?issuer=https://ci.example", None).await.unwrap();
    assert_eq!(desk.send(&token).await, 401);
    assert_eq!(desk.told(&jwt).await, (400, "invalid_grant".into()));
    assert!(desk.node.get("/v1/workloads").await["items"].as_array().unwrap().is_empty());
}

/// REG-7
#[tokio::test]
async fn what_is_not_wholly_right_is_not_exchanged() {
    let desk = Desk::set().await;
    let with = |member: &str, value: Value| {
        let mut claims = claims();
        claims[member] = value;
        desk.signer.sign("k1", &claims)
    };
    let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    let payload = URL_SAFE_NO_PAD.encode(claims().to_string());
    let right = desk.signer.sign("k1", &claims());
    for (what, assertion) in [
        ("another audience", with("aud", json!("other"))),
        ("no audience", with("aud", Value::Null)),
        ("ended", with("exp", json!(now() - 60))),
        ("no end", with("exp", Value::Null)),
        ("an end in words", with("exp", json!((now() + 60).to_string()))),
        ("too long", with("exp", json!(now() + 7200))),
        ("from the future", with("iat", json!(now() + 120))),
        ("not yet", with("nbf", json!(now() + 120))),
        ("an unknown workload", with("sub", json!("repo:acme/other"))),
        ("another issuer", with("iss", json!("https://evil.example"))),
        ("another key", Signer::ed25519().sign("k1", &claims())),
        ("another kind of key", Signer::p256().sign("k1", &claims())),
        ("an unknown key", desk.signer.sign("k2", &claims())),
        ("no signature", format!("{none}.{payload}.")),
        ("cut off", right[..right.len() - 2].to_owned()),
        ("nonsense", "nonsense".to_owned()),
        ("nothing", String::new()),
    ] {
        assert_eq!(desk.told(&assertion).await, (400, "invalid_grant".into()), "{what}");
    }
    let (status, document) = desk.ask(&[("grant_type", JWT_BEARER)]).await;
    assert_eq!((status, &document["error"]), (400, &json!("invalid_request")));
    let both = [("grant_type", JWT_BEARER), ("assertion", right.as_str()), ("client_secret", "x")];
    assert_eq!(desk.ask(&both).await.0, 400);
    assert_eq!(desk.exchange(&right).await.0, 200, "the right one still is");
}

/// REG-7, PIP-1
#[tokio::test]
async fn guessing_at_assertions_is_throttled() {
    let desk = Desk::set().await;
    for _ in 0..bounds::AUTH_FAILURES_MAX {
        assert_eq!(desk.told("guess").await.0, 400);
    }
    let (status, document) = desk.exchange("guess").await;
    assert_eq!((status, &document["reason"]), (429, &json!("auth_throttled")));
    assert_eq!(desk.exchange(&desk.signer.sign("k1", &claims())).await.0, 200);
}

/// REG-7: keys are rotated by their issuer, without a word to anybody.
#[tokio::test]
async fn a_file_of_keys_is_read_again_when_it_changes() {
    let desk = Desk::set().await;
    desk.token().await;
    let next = Signer::p256();
    let by_next = next.sign("k2", &claims());
    assert_eq!(desk.told(&by_next).await.0, 400);
    desk.publish(&[desk.signer.jwk("k1"), next.jwk("k2")]);
    assert_eq!(desk.exchange(&by_next).await.0, 200);
    desk.token().await;
    desk.publish(&[next.jwk("k2")]);
    assert_eq!(
        desk.told(&desk.signer.sign("k1", &claims())).await.0,
        400,
        "a withdrawn key is good for nothing"
    );
    for content in ["not json".to_owned(), " ".repeat(70_000)] {
        std::fs::write(&desk.keys, content).unwrap();
        let (status, document) = desk.exchange(&by_next).await;
        assert_eq!((status, &document["reason"]), (503, &json!("unavailable")));
    }
    std::fs::remove_file(&desk.keys).unwrap();
    assert_eq!(desk.exchange(&by_next).await.0, 503);
}

/// Serves whatever answer it is given, one request a connection, and counts.
struct KeyServer {
    url: String,
    answer: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
}

impl KeyServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/jwks", listener.local_addr().unwrap());
        let (answer, asked) = (Arc::new(Mutex::new(String::new())), Arc::new(AtomicUsize::new(0)));
        let (told, counted) = (Arc::clone(&answer), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut reader = BufReader::new(&stream);
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|length| length > 2) {
                    line.clear();
                }
                counted.fetch_add(1, Ordering::SeqCst);
                let answer = told.lock().unwrap().clone();
                let _ = (&stream).write_all(answer.as_bytes());
            }
        });
        Self { url, answer, asked }
    }

    fn say(&self, status: &str, headers: &str, body: &str) {
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        *self.answer.lock().unwrap() = answer;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// REG-7, QUA-6
#[tokio::test]
async fn keys_under_a_url_are_fetched_once_and_unknown_ones_do_not_make_it_a_flood() {
    let server = KeyServer::start();
    let node = Node::launch(&Launch::default().set("OUTGOING_ALLOWED", "127.0.0.0/8"));
    let cast = node.cast().await;
    let desk = Desk { keys: PathBuf::new(), node, cast, signer: Signer::p256() };
    desk.trust(&json!({ "url": server.url })).await;
    let workload = json!({ "issuer": ISSUER, "subject": "repo:acme/shop", "service": "acme/billing" });
    desk.node.operator().call(Method::PUT, "/v1/workloads", Some(&workload)).await.unwrap();
    let right = desk.signer.sign("k1", &claims());

    let set = json!({ "keys": [desk.signer.jwk("k1")] }).to_string();
    server.say("200 OK", "", &set);
    for _ in 0..3 {
        let token = desk.token().await;
        assert_eq!(desk.send(&token).await, 202);
    }
    assert_eq!(server.asked(), 1);
    for n in 0..5 {
        assert_eq!(desk.told(&desk.signer.sign(&format!("unknown-{n}"), &claims())).await.0, 400);
    }
    assert_eq!(server.asked(), 1, "it was asked within this minute");

    // Another place, which redirects, fails, or says too much: the keys cannot be had.
    for (status, headers, body) in [
        ("302 Found", format!("Location: {}\r\n", server.url), String::new()),
        ("500 Oops", String::new(), set.clone()),
        ("200 OK", String::new(), " ".repeat(70_000)),
        ("200 OK", String::new(), "not json".to_owned()),
    ] {
        let other = KeyServer::start();
        other.say(status, &headers, &body);
        desk.trust(&json!({ "url": other.url })).await;
        let before = server.asked();
        assert_eq!(desk.exchange(&right).await.0, 503, "{status}");
        assert_eq!(desk.exchange(&right).await.0, 503, "{status}");
        assert_eq!((other.asked(), server.asked()), (1, before), "{status}: not again at once");
    }
}

/// QUA-6
#[tokio::test]
async fn keys_are_not_fetched_from_where_nobody_outside_could() {
    let node = Node::start();
    for url in [
        "http://keys.example/jwks",
        "https://127.0.0.1/jwks",
        "https://2130706433/jwks",
        "https://0x7f.1/jwks",
        "https://[::1]/jwks",
        "https://[::ffff:10.0.0.1]/jwks",
        "https://169.254.169.254/latest/meta-data",
        "https://user:secret@keys.example/jwks",
        "ftp://keys.example/jwks",
        "nonsense",
    ] {
        let issuer = json!({ "issuer": ISSUER, "audience": "snavio", "keys": { "url": url } });
        let body = Some(issuer.to_string().into_bytes());
        let (status, problem) =
            verdict(node.operator().send(Method::PUT, "/v1/issuers", body, "application/json").await);
        assert_eq!((status, &problem["reason"]), (400, &json!("invalid_request")), "{url}");
        assert!(!problem.to_string().contains("secret"));
    }
    // A name passes, and what it stands for does not.
    let cast = node.cast().await;
    let desk = Desk { keys: PathBuf::new(), node, cast, signer: Signer::p256() };
    desk.trust(&json!({ "url": "https://localhost:1/jwks" })).await;
    assert_eq!(desk.exchange(&desk.signer.sign("k1", &claims())).await.0, 503);
    assert!(desk.node.said().contains("which may not be called"), "{}", desk.node.said());
}
