//! Workload identity over HTTP (REG-7): the gateway exchanges only valid JWTs of a trusted issuer for a
//! service's token.

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

/// A signing key of an issuer.
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
        let [header, claims] = [&header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let text = format!("{header}.{claims}");
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

struct WorkloadTest {
    node: Node,
    cast: Cast,
    keys: PathBuf,
    signer: Signer,
}

impl WorkloadTest {
    /// Registers the subject `repo:acme/shop` as `acme/billing`, with the issuer's keys in a file.
    async fn start() -> Self {
        let node = Node::start();
        let cast = node.cast().await;
        let test = Self { keys: node.folder().join("jwks.json"), node, cast, signer: Signer::ed25519() };
        test.publish(&[test.signer.jwk("k1")]);
        test.trust(&json!({ "file": test.keys })).await;
        let workload = json!({ "issuer": ISSUER, "subject": "repo:acme/shop", "service": "acme/billing" });
        test.node.operator().call(Method::PUT, "/v1/workloads", Some(&workload)).await.unwrap();
        test
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

    /// Status and OAuth error of an exchange.
    async fn status_and_error(&self, assertion: &str) -> (u16, String) {
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
async fn workload_token_works_until_binding_or_issuer_is_removed() {
    let test = WorkloadTest::start().await;
    let token = test.token().await;
    assert_eq!(test.send(&token).await, 202);
    let jwt = test.signer.sign("k1", &claims());
    let exchanged = [
        ("grant_type", TOKEN_EXCHANGE),
        ("subject_token", jwt.as_str()),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
    ];
    let (status, document) = test.ask(&exchanged).await;
    assert_eq!((status, document["expires_in"].as_u64()), (200, Some(600)), "{document}");
    assert_eq!(document["issued_token_type"], "urn:ietf:params:oauth:token-type:access_token");
    assert_eq!(test.send(document["access_token"].as_str().unwrap()).await, 202);
    assert_eq!(test.ask(&exchanged[..2]).await.0, 400, "the type of the subject token is required");

    // Each use of the token checks that the workload is still registered and its issuer trusted.
    let operator = test.node.operator();
    let workload = "/v1/workloads?issuer=https://ci.example&subject=repo:acme/shop";
    operator.call(Method::DELETE, workload, None).await.unwrap();
    assert_eq!(test.send(&token).await, 401);
    assert_eq!(test.status_and_error(&jwt).await, (400, "invalid_grant".into()));
    let body = json!({ "issuer": ISSUER, "subject": "repo:acme/shop", "service": "acme/bot" });
    operator.call(Method::PUT, "/v1/workloads", Some(&body)).await.unwrap();
    assert_eq!(test.send(&token).await, 401, "it is another service now");
    let body = json!({ "issuer": ISSUER, "subject": "repo:acme/shop", "service": "acme/billing" });
    operator.call(Method::PUT, "/v1/workloads", Some(&body)).await.unwrap();
    assert_eq!(test.send(&token).await, 202);
    operator.call(Method::DELETE, "/v1/issuers?issuer=https://ci.example", None).await.unwrap();
    assert_eq!(test.send(&token).await, 401);
    assert_eq!(test.status_and_error(&jwt).await, (400, "invalid_grant".into()));
    assert!(test.node.get("/v1/workloads").await["items"].as_array().unwrap().is_empty());
}

/// REG-7
#[tokio::test]
async fn invalid_assertion_is_not_exchanged() {
    let test = WorkloadTest::start().await;
    let with = |member: &str, value: Value| {
        let mut claims = claims();
        claims[member] = value;
        test.signer.sign("k1", &claims)
    };
    let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    let payload = URL_SAFE_NO_PAD.encode(claims().to_string());
    let right = test.signer.sign("k1", &claims());
    for (case, assertion) in [
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
        ("an unknown key", test.signer.sign("k2", &claims())),
        ("no signature", format!("{none}.{payload}.")),
        ("cut off", right[..right.len() - 2].to_owned()),
        ("nonsense", "nonsense".to_owned()),
        ("nothing", String::new()),
    ] {
        assert_eq!(test.status_and_error(&assertion).await, (400, "invalid_grant".into()), "{case}");
    }
    let (status, document) = test.ask(&[("grant_type", JWT_BEARER)]).await;
    assert_eq!((status, &document["error"]), (400, &json!("invalid_request")));
    let both = [("grant_type", JWT_BEARER), ("assertion", right.as_str()), ("client_secret", "x")];
    assert_eq!(test.ask(&both).await.0, 400);
    assert_eq!(test.exchange(&right).await.0, 200, "the valid token is still exchanged");
}

/// REG-7, PIP-1
#[tokio::test]
async fn assertion_guessing_is_throttled() {
    let test = WorkloadTest::start().await;
    for _ in 0..bounds::AUTH_FAILURES_MAX {
        assert_eq!(test.status_and_error("guess").await.0, 400);
    }
    let (status, document) = test.exchange("guess").await;
    assert_eq!((status, &document["reason"]), (429, &json!("auth_throttled")));
    assert_eq!(test.exchange(&test.signer.sign("k1", &claims())).await.0, 200);
}

/// REG-7: an issuer rotates its keys without notice, so the gateway reads a changed file again.
#[tokio::test]
async fn changed_key_file_is_read_again() {
    let test = WorkloadTest::start().await;
    test.token().await;
    let next = Signer::p256();
    let by_next = next.sign("k2", &claims());
    assert_eq!(test.status_and_error(&by_next).await.0, 400);
    test.publish(&[test.signer.jwk("k1"), next.jwk("k2")]);
    assert_eq!(test.exchange(&by_next).await.0, 200);
    test.token().await;
    test.publish(&[next.jwk("k2")]);
    assert_eq!(
        test.status_and_error(&test.signer.sign("k1", &claims())).await.0,
        400,
        "tokens of a withdrawn key are refused"
    );
    for content in ["not json".to_owned(), " ".repeat(70_000)] {
        std::fs::write(&test.keys, content).unwrap();
        let (status, document) = test.exchange(&by_next).await;
        assert_eq!((status, &document["reason"]), (503, &json!("unavailable")));
    }
    std::fs::remove_file(&test.keys).unwrap();
    assert_eq!(test.exchange(&by_next).await.0, 503);
}

/// An HTTP server of keys for one request per connection. It counts the requests.
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
        let (current, counted) = (Arc::clone(&answer), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut reader = BufReader::new(&stream);
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|length| length > 2) {
                    line.clear();
                }
                counted.fetch_add(1, Ordering::SeqCst);
                let answer = current.lock().unwrap().clone();
                let _ = (&stream).write_all(answer.as_bytes());
            }
        });
        Self { url, answer, asked }
    }

    fn answer_with(&self, status: &str, headers: &str, body: &str) {
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
async fn key_url_is_fetched_once_despite_unknown_key_ids() {
    let server = KeyServer::start();
    let node = Node::launch(&Launch::default().set("OUTGOING_ALLOWED", "127.0.0.0/8"));
    let cast = node.cast().await;
    let test = WorkloadTest { keys: PathBuf::new(), node, cast, signer: Signer::p256() };
    test.trust(&json!({ "url": server.url })).await;
    let workload = json!({ "issuer": ISSUER, "subject": "repo:acme/shop", "service": "acme/billing" });
    test.node.operator().call(Method::PUT, "/v1/workloads", Some(&workload)).await.unwrap();
    let right = test.signer.sign("k1", &claims());

    let set = json!({ "keys": [test.signer.jwk("k1")] }).to_string();
    server.answer_with("200 OK", "", &set);
    for _ in 0..3 {
        let token = test.token().await;
        assert_eq!(test.send(&token).await, 202);
    }
    assert_eq!(server.asked(), 1);
    for n in 0..5 {
        assert_eq!(test.status_and_error(&test.signer.sign(&format!("unknown-{n}"), &claims())).await.0, 400);
    }
    assert_eq!(server.asked(), 1, "the keys were fetched within this minute");

    // A server that redirects, fails, or sends too much: the gateway cannot fetch the keys.
    for (status, headers, body) in [
        ("302 Found", format!("Location: {}\r\n", server.url), String::new()),
        ("500 Oops", String::new(), set.clone()),
        ("200 OK", String::new(), " ".repeat(70_000)),
        ("200 OK", String::new(), "not json".to_owned()),
    ] {
        let other = KeyServer::start();
        other.answer_with(status, &headers, &body);
        test.trust(&json!({ "url": other.url })).await;
        let before = server.asked();
        assert_eq!(test.exchange(&right).await.0, 503, "{status}");
        assert_eq!(test.exchange(&right).await.0, 503, "{status}");
        assert_eq!((other.asked(), server.asked()), (1, before), "{status}: not again at once");
    }
}

/// QUA-6
#[tokio::test]
async fn keys_are_not_fetched_from_private_addresses() {
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
    // The registry accepts a name; the call to a name that resolves to a private address is refused.
    let cast = node.cast().await;
    let test = WorkloadTest { keys: PathBuf::new(), node, cast, signer: Signer::p256() };
    test.trust(&json!({ "url": "https://localhost:1/jwks" })).await;
    assert_eq!(test.exchange(&test.signer.sign("k1", &claims())).await.0, 503);
    assert!(test.node.said().contains("which may not be called"), "{}", test.node.said());
}
