//! QUA-4: each bad input in a table gets exactly its listed refusal, and has no other effect.

use std::collections::HashSet;

use base64::Engine as _;
use futures_util::stream;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use snavio_model::bounds;
use snavio_model::identity::token::{TokenClaims, TokenKey, issue};
use snavio_sdk::{ApiError, Credentials};

use crate::node::{Cast, Draft, Node, drain, new_id, seconds_from_now, verdict};
use crate::wire::{Answered, post_json};

/// Stands in place of a producer's own values. No answer may contain it.
const CANARY: &str = "c4n4ry";

/// QUA-4, MSG-10, MSG-12, PIP-1
#[tokio::test]
async fn bad_input_gets_its_listed_refusal_and_no_effect() {
    let fixture = Fixture::start().await;
    let mut resident = Vec::new();
    for _ in 0..3 {
        for row in fixture.rows() {
            row.check(&fixture).await;
        }
        resident.push(fixture.resident_bytes());
    }
    // The first round fills caches and pools. Memory must level off after it.
    assert!(resident[2] < resident[0] + (16 << 20), "the process grows: {resident:?}");

    let alive = fixture.node.api().send(Method::GET, "/livez", None, "").await.expect("the node is alive");
    assert_eq!(alive.0, 200);
    let bot = fixture.node.client(&fixture.cast.bot);
    for queue in ["notify-inbox", "pay-inbox"] {
        assert!(drain(&bot, queue).await.is_empty(), "something was delivered to {queue}");
    }
}

/// QUA-4
#[tokio::test]
async fn tenant_filters_refuse_invalid_names() {
    let node = Node::start();
    for path in ["/v1/conflicts?tenant=a%00b", "/v1/holds?tenant=a%00b", "/v1/holds?tenant=A"] {
        let answer = node.operator().call(Method::GET, path, None).await;
        assert!(matches!(answer, Err(ApiError::Refused { status: 400, .. })), "{path}: {answer:?}");
    }
}

/// MSG-10, MSG-1, MSG-13
#[tokio::test]
async fn messages_just_within_the_limits_pass() {
    let fixture = Fixture::start().await;
    let body_at_the_limit = {
        let mut draft = fixture.draft();
        let room = bounds::BODY_BYTES_DEFAULT - draft.sign(&fixture.cast.billing).len();
        draft.payload = format!(r#"{{"user":"{CANARY}{}"}}"#, "x".repeat(room));
        draft.sign(&fixture.cast.billing)
    };
    assert_eq!(body_at_the_limit.len(), bounds::BODY_BYTES_DEFAULT);
    let passing = [
        ("a body at the limit", body_at_the_limit),
        ("signed 58 s ago", fixture.signed(|draft| draft.timestamp = seconds_from_now(-58)).text),
        ("signed 58 s ahead", fixture.signed(|draft| draft.timestamp = seconds_from_now(58)).text),
        ("a target without its tenant", fixture.signed(|draft| draft.target = "bot".into()).text),
        ("an id in upper case", fixture.signed(|draft| draft.id = draft.id.to_uppercase()).text),
        ("depth 64", fixture.signed(|draft| draft.payload = nested_array(62)).text),
        ("34 digits", fixture.signed(|draft| draft.payload = "9".repeat(34)).text),
    ];
    let mut sent = HashSet::new();
    for (case, body) in passing {
        let answer = Answered::to(post_json(&fixture.node, "/v1/commands", &fixture.token, body)).await;
        assert_eq!(answer.status, 202, "{case}: {}", answer.text);
        sent.insert(answer.document()["id"].clone());
    }
    let delivered = drain(&fixture.node.client(&fixture.cast.bot), "notify-inbox").await;
    let delivered: HashSet<_> = delivered
        .into_iter()
        .map(|delivery| delivery.message.as_command().unwrap().metadata["id"].clone())
        .collect();
    assert_eq!(delivered, sent);
}

/// A node with the usual cast, a suspended tenant `dark`, and tokens of a service, of the suspended one, of a
/// removed one, and an expired one.
struct Fixture {
    node: Node,
    cast: Cast,
    suspended: Credentials,
    token: String,
    suspended_token: String,
    removed_token: String,
    expired_token: String,
}

impl Fixture {
    async fn start() -> Self {
        let node = Node::start();
        let cast = node.cast().await;
        let more = json!({
            "tenants": [{ "name": "dark" }],
            "services": [{ "name": "acme/gone" }, { "name": "dark/lamp" }],
            "grants": [{ "source": "dark/lamp", "target": "acme/bot", "name": "notify" }],
        });
        let [removed, suspended] =
            <[_; 2]>::try_from(node.apply(&more).await).expect("two services were made");
        let removed_token = node.token(&removed).await;
        let path = "/v1/tenants/acme/services/gone";
        node.operator().call(Method::DELETE, path, None).await.expect("the service can be removed");
        let (token, suspended_token) = (node.token(&cast.billing).await, node.token(&suspended).await);
        node.apply(&json!({ "tenants": [{ "name": "dark", "suspended": true }] })).await;
        let expired_token = make_expired_token(&node, &cast.billing);
        Self { node, cast, suspended, token, suspended_token, removed_token, expired_token }
    }

    fn draft(&self) -> Draft {
        let payload = format!(r#"{{"user":"{CANARY}"}}"#);
        Draft { payload, ..Draft::new("notify", &new_id()) }
    }

    fn resident_bytes(&self) -> u64 {
        let path = format!("/proc/{}/statm", self.node.pid());
        let pages = std::fs::read_to_string(path).expect("the process is there");
        pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number of pages") * 4096
    }

    fn post(&self, token: &str, body: impl Into<reqwest::Body>) -> RequestBuilder {
        post_json(&self.node, "/v1/commands", token, body)
    }
}

/// A token under the node's own platform key, issued 601 seconds ago and expired one second ago.
fn make_expired_token(node: &Node, credentials: &Credentials) -> String {
    let key = std::fs::read_to_string(node.secret("platform.key")).expect("the key was made");
    let key = base64::engine::general_purpose::STANDARD.decode(key.trim()).expect("base64");
    let tokens = TokenKey::new(&TokenKey::new(&key).digest(&[b"snavio", b"tokens"]));
    let [issued, expired] = [-601, -1].map(|seconds| {
        let at = snavio_model::time::Timestamp::parse(&seconds_from_now(seconds)).expect("a time");
        at.0 / 1000
    });
    let claims = TokenClaims {
        sub: credentials.client_id.clone(),
        service: credentials.source.clone(),
        iat: issued,
        exp: expired,
    };
    issue(&tokens, &claims)
}

/// A request and the refusal that it must get.
struct Row {
    case: &'static str,
    request: RequestBuilder,
    answer: (u16, &'static str),
    id: Option<String>,
}

impl Row {
    fn without_id(case: &'static str, request: RequestBuilder, status: u16, reason: &'static str) -> Self {
        Self { case, request, answer: (status, reason), id: None }
    }

    async fn check(self, fixture: &Fixture) {
        let Self { case, request, answer: (status, reason), id } = self;
        let answer = Answered::to(request).await;
        assert_eq!(answer.refusal(), (status, reason.to_owned()), "{case}: {}", answer.text);
        assert_eq!(answer.content_type, "application/problem+json", "{case}");
        let document = answer.document();
        assert_eq!(document["accepted"], false, "{case}");
        assert_eq!(document["status"], status, "{case}");
        assert_eq!(document["type"], format!("urn:snavio:problem:{reason}"), "{case}");
        for member in ["title", "detail"] {
            assert!(document[member].as_str().is_some_and(|text| !text.is_empty()), "{case}: {member}");
        }
        assert_eq!(document["id"].as_str(), id.as_deref(), "{case}");
        let billing = &fixture.cast.billing;
        for secret in [CANARY, &fixture.token, &billing.client_secret, &billing.hmac_secret] {
            assert!(!answer.text.contains(secret), "{case} echoes: {}", answer.text);
        }
    }
}

/// A draft, and the text that is sent in its place.
struct Message {
    draft: Draft,
    text: Vec<u8>,
}

impl Fixture {
    fn signed(&self, change: impl FnOnce(&mut Draft)) -> Message {
        let mut draft = self.draft();
        change(&mut draft);
        let text = draft.sign(&self.cast.billing);
        Message { draft, text }
    }

    /// A signed message with its document changed after signing.
    fn edited(&self, change: impl FnOnce(&mut Value)) -> Message {
        let Message { draft, text } = self.signed(|_| {});
        let mut value = serde_json::from_slice(&text).expect("a message is JSON");
        change(&mut value);
        Message { draft, text: value.to_string().into_bytes() }
    }

    /// A signed message with the bytes `from` replaced after signing.
    fn spliced(&self, from: &str, to: &[u8]) -> Message {
        let Message { draft, text } = self.signed(|_| {});
        let at =
            text.windows(from.len()).position(|window| window == from.as_bytes()).expect("the text has it");
        let text = [&text[..at], to, &text[at + from.len()..]].concat();
        Message { draft, text }
    }

    fn rows(&self) -> Vec<Row> {
        [self.signature_rows(), self.form_rows(), self.json_rows(), self.request_rows(), self.caller_rows()]
            .into_iter()
            .flatten()
            .collect()
    }

    fn row(&self, case: &'static str, message: Message, status: u16, reason: &'static str) -> Row {
        let request = self.post(&self.token, message.text);
        Row { case, request, answer: (status, reason), id: Some(message.draft.id) }
    }

    fn with_metadata(&self, member: &str, value: impl Into<Value>) -> Message {
        let value = value.into();
        self.edited(|message| message["metadata"][member] = value)
    }

    fn with_command(&self, member: &str, value: impl Into<Value>) -> Message {
        let value = value.into();
        self.edited(|message| message["command"][member] = value)
    }

    fn without(&self, part: &str, member: &str) -> Message {
        self.edited(|message| drop(message[part].as_object_mut().map(|members| members.remove(member))))
    }

    fn signed_at(&self, seconds: i64) -> Message {
        self.signed(|draft| draft.timestamp = seconds_from_now(seconds))
    }

    fn signature_rows(&self) -> Vec<Row> {
        let missing = self.without("metadata", "hmac");
        let upper = self.edited(|message| {
            let text = message["metadata"]["hmac"].as_str().map(str::to_uppercase);
            message["metadata"]["hmac"] = text.into();
        });
        let no_version = self.without("metadata", "version_id");
        let of_bot = {
            let draft = self.draft();
            let text = draft.sign(&self.cast.bot);
            Message { draft, text }
        };
        let late_and_forged = {
            let mut message = self.signed_at(-61);
            message.text = String::from_utf8_lossy(&message.text).replace(CANARY, "other").into_bytes();
            message
        };
        let renewed = self.with_metadata("timestamp", seconds_from_now(1));
        let renamed = self.with_metadata("version_id", "hmac-v9");
        vec![
            self.row("no signature", missing, 401, "hmac_missing"),
            self.row("bad hex", self.with_metadata("hmac", "zz".repeat(32)), 401, "hmac_invalid"),
            self.row("too short", self.with_metadata("hmac", "ab".repeat(31)), 401, "hmac_invalid"),
            self.row("too long", self.with_metadata("hmac", "ab".repeat(33)), 401, "hmac_invalid"),
            self.row("empty", self.with_metadata("hmac", ""), 401, "hmac_invalid"),
            self.row("upper-case hex", upper, 401, "hmac_invalid"),
            self.row("another signature", self.with_metadata("hmac", "ab".repeat(32)), 401, "hmac_invalid"),
            self.row("another payload", self.with_command("payload", "changed"), 401, "hmac_invalid"),
            self.row("sent to another name", self.with_command("name", "pay"), 401, "hmac_invalid"),
            self.row(
                "sent to another target",
                self.with_command("target", "acme/billing"),
                401,
                "hmac_invalid",
            ),
            self.row(
                "the same target in short form",
                self.with_command("target", "bot"),
                401,
                "hmac_invalid",
            ),
            self.row("timestamp renewed without signing", renewed, 401, "hmac_invalid"),
            self.row("signed with another service's key", of_bot, 401, "hmac_invalid"),
            self.row("61 s old", self.signed_at(-61), 401, "timestamp_out_of_window"),
            self.row("far ahead", self.signed_at(90), 401, "timestamp_out_of_window"),
            self.row(
                "the window comes before the signature",
                late_and_forged,
                401,
                "timestamp_out_of_window",
            ),
            self.row("unknown key", renamed, 401, "key_unknown"),
            self.row("no key named", no_version, 401, "key_unknown"),
        ]
    }

    fn form_rows(&self) -> Vec<Row> {
        let extra = self.edited(|message| message["extra"] = CANARY.into());
        let mut rows = vec![
            self.row(
                "23:59:60",
                self.with_metadata("timestamp", "2026-12-31T23:59:60Z"),
                400,
                "invalid_timestamp",
            ),
            self.row(
                "a number as timestamp",
                self.with_metadata("timestamp", 1_794_731_400),
                400,
                "invalid_timestamp",
            ),
            self.row(
                "a timestamp without offset",
                self.with_metadata("timestamp", "2026-11-15T08:30:00"),
                400,
                "invalid_timestamp",
            ),
            self.row("command.source", self.with_command("source", "acme/billing"), 400, "source_present"),
            self.row("an unknown member of the message", extra, 400, "unknown_field"),
            self.row(
                "an unknown member of metadata",
                self.with_metadata("hmac2", CANARY),
                400,
                "unknown_field",
            ),
            self.row(
                "an unknown member that is not a name",
                self.with_metadata(&format!("<{CANARY}>"), 1),
                400,
                "unknown_field",
            ),
            self.row("an unknown member of command", self.with_command("note", CANARY), 400, "unknown_field"),
            self.row("another type", self.with_metadata("type", "snavio.event"), 400, "malformed"),
            self.row("no type", self.without("metadata", "type"), 400, "malformed"),
            self.row("no timestamp", self.without("metadata", "timestamp"), 400, "malformed"),
            self.row("no payload", self.without("command", "payload"), 400, "malformed"),
            self.row("no target", self.without("command", "target"), 400, "malformed"),
            self.row(
                "a correlation id with a line break",
                self.with_metadata("correlation_id", "a\nb"),
                400,
                "malformed",
            ),
            self.row(
                "a name with a control character",
                self.with_command("name", "no\u{7}tify"),
                400,
                "invalid_name",
            ),
            self.row(
                "a target with a line break",
                self.with_command("target", "acme/bot\n"),
                400,
                "invalid_name",
            ),
            self.row("a target in three parts", self.with_command("target", "a/b/c"), 400, "invalid_name"),
            self.row(
                "a key with a line break",
                self.with_metadata("version_id", "hmac-v1\n"),
                400,
                "invalid_name",
            ),
            self.row("no grant", self.signed(|draft| draft.name = "delete-user".into()), 403, "acl-deny"),
            self.row(
                "no such target",
                self.signed(|draft| draft.target = "acme/nobody".into()),
                403,
                "acl-deny",
            ),
            self.row(
                "grant but no route",
                self.signed(|draft| draft.name = "lost".into()),
                404,
                "route-missing",
            ),
        ];
        for member in ["replayed", "replay_id", "replay_reason"] {
            rows.push(self.row(
                "a reserved member",
                self.with_metadata(member, CANARY),
                400,
                "reserved_field",
            ));
            rows.push(self.row(
                "a reserved member",
                self.with_command(member, CANARY),
                400,
                "reserved_field",
            ));
        }
        for id in ["00000000-0000-0000-0000-000000000000", "0192f0a07c3e7b608c1d1b2a3c4d5e6f", "7"] {
            let mut row = self.row("not an id", self.with_metadata("id", id), 400, "invalid_id");
            row.id = None;
            rows.push(row);
        }
        rows
    }

    /// A signed message with another JSON text as its payload's `user`.
    fn with_user(&self, text: &str) -> Message {
        self.spliced(&format!(r#""{CANARY}""#), text.as_bytes())
    }

    /// A body from which the gateway can read no id.
    fn unreadable_row(&self, case: &'static str, text: &[u8], reason: &'static str) -> Row {
        Row { case, request: self.post(&self.token, text.to_vec()), answer: (400, reason), id: None }
    }

    fn json_rows(&self) -> Vec<Row> {
        let whole = self.signed(|_| {});
        let trailing = Message { text: [&whole.text[..], b" x"].concat(), draft: whole.draft.clone() };
        let cut = Message { text: whole.text[..whole.text.len() - 1].to_vec(), draft: whole.draft.clone() };
        let broken_utf8 = self.spliced(CANARY, b"c4n\xff");
        let many = self.signed(|draft| draft.payload = format!("[{}]", vec![r#"{"a":1}"#; 9_991].join(",")));
        let deep = self.signed(|draft| draft.payload = nested_array(63));
        let bom = [b"\xef\xbb\xbf", &whole.text[..]].concat();
        vec![
            self.unreadable_row("{", b"{", "malformed"),
            self.unreadable_row("an empty body", b"", "malformed"),
            self.unreadable_row("a byte-order mark", &bom, "malformed"),
            self.unreadable_row("an array", b"[]", "malformed"),
            self.unreadable_row("a bomb of brackets", &[b'['; 200_000], "too_deep"),
            self.row("cut off", cut, 400, "malformed"),
            self.row("NaN", self.with_user("NaN"), 400, "malformed"),
            self.row("trailing text", trailing, 400, "malformed"),
            self.unreadable_row("invalid UTF-8", &broken_utf8.text, "malformed"),
            self.row("a NUL", self.with_user(r#""a\u0000b""#), 400, "malformed"),
            self.row("a lone surrogate", self.with_user(r#""\ud800""#), 400, "malformed"),
            self.row("depth 65", deep, 400, "too_deep"),
            self.row("10,001 members", many, 400, "malformed"),
            self.row(
                "a repeated member",
                self.spliced(r#""user":"#, br#""user":1,"user":"#),
                400,
                "duplicate_member",
            ),
            self.row(
                "a repeated member in another spelling",
                self.spliced(r#""user":"#, br#""\u0075ser":1,"user":"#),
                400,
                "duplicate_member",
            ),
            self.row(
                "a repeated target",
                self.spliced(r#""target":"#, br#""target":"acme/bot","target":"#),
                400,
                "duplicate_member",
            ),
            self.row("too large an exponent", self.with_user("1e6145"), 400, "number_range"),
            self.row("too many digits", self.with_user(&"1".repeat(35)), 400, "number_range"),
        ]
    }

    /// A good message in a request with this header and no content type.
    fn post_with_header(&self, header: &str, value: &str) -> RequestBuilder {
        let url = format!("{}/v1/commands", self.node.url());
        let request = crate::wire::http(&self.node).post(url).bearer_auth(&self.token);
        request.header(header, value).body(self.signed(|_| {}).text)
    }

    fn request_rows(&self) -> Vec<Row> {
        let oversized = vec![b' '; bounds::BODY_BYTES_DEFAULT + 1];
        let chunks: Vec<_> =
            oversized.chunks(50_000).map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec())).collect();
        let chunked = reqwest::Body::wrap_stream(stream::iter(chunks));
        let gzip =
            self.post_with_header("content-encoding", "gzip").header("content-type", "application/json");
        let mut rows = vec![
            Row::without_id("one byte over the limit", self.post(&self.token, oversized), 413, "too_large"),
            Row::without_id(
                "one byte over the limit, chunked",
                self.post(&self.token, chunked),
                413,
                "too_large",
            ),
            Row::without_id("gzip", gzip, 415, "unsupported_media_type"),
        ];
        for (case, header, value) in [
            ("text/xml", "content-type", "text/xml"),
            ("another charset", "content-type", "application/json; charset=UTF-16"),
            ("no content type", "x-nothing", "1"),
            ("a stream in place of one message", "content-type", "application/x-ndjson"),
        ] {
            let request = self.post_with_header(header, value);
            rows.push(Row::without_id(case, request, 415, "unsupported_media_type"));
        }
        rows
    }

    /// A good message in a request without a token.
    fn post_without_token(&self) -> RequestBuilder {
        let request = crate::wire::http(&self.node).post(format!("{}/v1/commands", self.node.url()));
        request.header("content-type", "application/json").body(self.signed(|_| {}).text)
    }

    fn caller_rows(&self) -> Vec<Row> {
        let mut altered = self.token.clone();
        altered.pop();
        let no_algorithm = {
            let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
            let claims = self.token.split('.').nth(1).expect("a token has three parts");
            format!("{}.{claims}.", engine.encode(r#"{"alg":"none","typ":"JWT"}"#))
        };
        let body = self.signed(|_| {}).text;
        let operator = self.node.operator_token();
        let bare = self.post_without_token();
        let basic = self.post_without_token().basic_auth("a", Some("b"));
        let bare_broken = self.post_without_token().body("{");
        let mut rows = vec![
            Row::without_id("no token", bare, 401, "unauthenticated"),
            Row::without_id("another scheme", basic, 401, "unauthenticated"),
            Row::without_id("no token comes before bad JSON", bare_broken, 401, "unauthenticated"),
            Row::without_id("the operator is not a service", self.post(&operator, body), 403, "forbidden"),
        ];
        for (case, token) in [
            ("a bad token", "not-a-token"),
            ("an altered token", &altered),
            ("a token without an algorithm", &no_algorithm),
            ("an expired token", &self.expired_token),
            ("a removed client's token", &self.removed_token),
        ] {
            let request = self.post(token, self.signed(|_| {}).text);
            rows.push(Row::without_id(case, request, 401, "unauthenticated"));
        }
        rows.extend(self.suspended_rows());
        rows
    }

    /// A message of the suspended tenant, with one member changed after signing.
    fn suspended_row(
        &self,
        case: &'static str,
        change: Option<(&str, &str, Value)>,
        seconds: i64,
        answer: (u16, &'static str),
    ) -> Row {
        let draft = Draft { timestamp: seconds_from_now(seconds), ..self.draft() };
        let text = draft.sign(&self.suspended);
        let mut message: Value = serde_json::from_slice(&text).expect("a message is JSON");
        if let Some((part, member, value)) = change {
            message[part][member] = value;
        }
        let request = self.post(&self.suspended_token, message.to_string());
        Row { case, request, answer, id: Some(draft.id) }
    }

    /// PIP-1: the gateway checks suspension after the form and before everything else.
    fn suspended_rows(&self) -> Vec<Row> {
        let suspended = (403, "suspended");
        let source = Some(("command", "source", json!(1)));
        let signature = Some(("metadata", "hmac", json!("")));
        let form = Some(("metadata", "type", json!(1)));
        let name = Some(("command", "name", json!("")));
        vec![
            self.suspended_row("suspended", None, 0, suspended),
            self.suspended_row("suspended before source", source, 0, suspended),
            self.suspended_row("suspended before the window", None, -90, suspended),
            self.suspended_row("suspended before the signature", signature, 0, suspended),
            self.suspended_row("form before suspended", form, 0, (400, "malformed")),
            self.suspended_row("names before suspended", name, 0, (400, "invalid_name")),
        ]
    }
}

/// A JSON array that is this many levels deep.
fn nested_array(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

/// MSG-12
#[tokio::test]
async fn invalid_calls_report_the_expected_input() {
    let node = Node::start();
    node.cast().await;
    let operator = node.operator();
    let [receive, ack, purge] =
        ["receive", "ack", "purge"].map(|action| format!("/v1/queues/notify-inbox/{action}?tenant=acme"));
    let apply = "/v1/registry/apply".to_owned();
    let extra_receipt_member = r#"{"receipts":[{"delivery_id":1,"fence":2,"extra":1}]}"#;
    let typo = "/v1/queues/notify-inbx/purge?tenant=acme".to_owned();
    for (path, body, status, expected) in [
        (&receive, "[1,2,3]", 400, "expected an object"),
        (&apply, "[]", 400, "expected an object"),
        (&ack, r#"{"receipts":[[1,2]]}"#, 400, "receipts[0]: expected an object"),
        (&apply, r#"{"tenants":[["x",null,false]]}"#, 400, "tenants[0]: expected an object"),
        (&ack, extra_receipt_member, 400, "unknown field `extra`"),
        (&receive, r#"{"max":"c4n4ry"}"#, 400, "max: expected a whole number"),
        (&receive, r#"{"max":1} x"#, 400, "trailing characters"),
        (&typo, "{}", 404, "did you mean notify-inbox"),
        (&purge.replace("acme", "acm"), "{}", 404, "no such tenant"),
    ] {
        let body = Some(body.as_bytes().to_vec());
        let (code, problem) = verdict(operator.send(Method::POST, path, body, "application/json").await);
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert_eq!(code, status, "{path}: {problem}");
        assert!(
            detail.contains(expected) && !detail.contains(CANARY),
            "{expected:?} is not said in {detail:?}"
        );
    }
    for (path, status, expected) in [
        ("/v1/telemetry?tenant=acme&limits=5", 400, "expected one of `tenant`, `after`, `limit`"),
        ("/v1/telemetry?tenant=acme&c4n4ry%20=5", 400, "a field is unknown, expected one of"),
        ("/v1/telemetry?tenant=acme&wait_seconds=21", 400, "wait_seconds must be 0 to 20"),
        ("/v1/telemetry?tenant=acme&wait_seconds=c4n4ry", 400, "wait_seconds"),
        ("/v1/registry?knid=route", 400, "unknown field `knid`"),
        ("/v1/telemetry?tenant=acm", 404, "no such tenant"),
        ("/v1/dead-letters?tenant=acm", 404, "no such tenant"),
        ("/v1/queues/notify-inbx?tenant=acme", 404, "did you mean notify-inbox"),
    ] {
        let (code, problem) = verdict(operator.send(Method::GET, path, None, "").await);
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert_eq!(code, status, "{path}: {problem}");
        assert!(
            detail.contains(expected) && !detail.contains(CANARY),
            "{expected:?} is not said in {detail:?}"
        );
    }
}

/// MSG-12
#[tokio::test]
async fn advice_fits_the_request() {
    let node = Node::start();
    let cast = node.cast().await;
    let form = node.api().send(Method::POST, "/v1/token", Some(b"{}".to_vec()), "application/json").await;
    let (status, problem) = verdict(form);
    assert_eq!(status, 415);
    let advice = |problem: &Value| format!("{} {}", problem["detail"], problem["advice"]);
    assert!(advice(&problem).contains("x-www-form-urlencoded"), "{problem}");
    assert!(!advice(&problem).contains("application/json"), "{problem}");
    let many = format!("[{}]", ["{}"; bounds::BATCH_MESSAGES_MAX + 1].join(","));
    let token = node.token(&cast.billing).await;
    let answer = Answered::to(post_json(&node, "/v1/commands/batch", &token, many)).await;
    assert_eq!(answer.status, 413);
    assert!(advice(&answer.document()).contains("split"), "{}", answer.text);
}
