//! QUA-4: bad input gets exactly the answer of the table, and does nothing else.

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

/// What must never come back: it stands wherever a producer's own values stand.
const CANARY: &str = "c4n4ry";

/// QUA-4, MSG-10, MSG-12, PIP-1
#[tokio::test]
async fn bad_input_gets_the_answer_of_the_table_and_does_nothing_else() {
    let stage = Stage::set().await;
    let mut grown = Vec::new();
    for _ in 0..3 {
        for row in stage.rows() {
            row.check(&stage).await;
        }
        grown.push(stage.resident_bytes());
    }
    // The first round fills caches and pools; what comes after must level off.
    assert!(grown[2] < grown[0] + (16 << 20), "the process grows: {grown:?}");

    let alive = stage.node.api().send(Method::GET, "/livez", None, "").await.expect("the node is alive");
    assert_eq!(alive.0, 200);
    let bot = stage.node.client(&stage.cast.bot);
    for queue in ["notify-inbox", "pay-inbox"] {
        assert!(drain(&bot, queue).await.is_empty(), "something was delivered to {queue}");
    }
}

/// QUA-4
#[tokio::test]
async fn tenant_filters_refuse_text_that_is_no_name() {
    let node = Node::start();
    for path in ["/v1/conflicts?tenant=a%00b", "/v1/holds?tenant=a%00b", "/v1/holds?tenant=A"] {
        let answer = node.operator().call(Method::GET, path, None).await;
        assert!(matches!(answer, Err(ApiError::Refused { status: 400, .. })), "{path}: {answer:?}");
    }
}

/// MSG-10, MSG-1, MSG-13
#[tokio::test]
async fn what_is_just_within_the_rules_passes() {
    let stage = Stage::set().await;
    let body_at_the_limit = {
        let mut draft = stage.draft();
        let room = bounds::BODY_BYTES_DEFAULT - draft.sign(&stage.cast.billing).len();
        draft.payload = format!(r#"{{"user":"{CANARY}{}"}}"#, "x".repeat(room));
        draft.sign(&stage.cast.billing)
    };
    assert_eq!(body_at_the_limit.len(), bounds::BODY_BYTES_DEFAULT);
    let with = |change: &dyn Fn(&mut Draft)| {
        let mut draft = stage.draft();
        change(&mut draft);
        draft.sign(&stage.cast.billing)
    };
    let passing = [
        ("a body at the limit", body_at_the_limit),
        ("signed 58 s ago", with(&|draft| draft.timestamp = seconds_from_now(-58))),
        ("signed 58 s ahead", with(&|draft| draft.timestamp = seconds_from_now(58))),
        ("a target alone", with(&|draft| draft.target = "bot".into())),
        ("an id in upper case", with(&|draft| draft.id = draft.id.to_uppercase())),
        ("depth 64", with(&|draft| draft.payload = nested(62))),
        ("34 digits", with(&|draft| draft.payload = "9".repeat(34))),
    ];
    let mut sent = HashSet::new();
    for (what, body) in passing {
        let answer = Answered::to(post_json(&stage.node, "/v1/commands", &stage.token, body)).await;
        assert_eq!(answer.status, 202, "{what}: {}", answer.text);
        sent.insert(answer.document()["id"].clone());
    }
    let delivered = drain(&stage.node.client(&stage.cast.bot), "notify-inbox").await;
    let delivered: HashSet<_> =
        delivered.into_iter().map(|it| it.message.as_command().unwrap().metadata["id"].clone()).collect();
    assert_eq!(delivered, sent);
}

/// A node with the usual cast, a suspended tenant, a stranger, and a client that is gone.
struct Stage {
    node: Node,
    cast: Cast,
    dark: Credentials,
    token: String,
    dark_token: String,
    removed_token: String,
    expired_token: String,
}

impl Stage {
    async fn set() -> Self {
        let node = Node::start();
        let cast = node.cast().await;
        let more = json!({
            "tenants": [{ "name": "dark" }],
            "services": [{ "name": "acme/gone" }, { "name": "dark/lamp" }],
            "grants": [{ "source": "dark/lamp", "target": "acme/bot", "name": "notify" }],
        });
        let [gone, dark] = <[_; 2]>::try_from(node.apply(&more).await).expect("two services were made");
        let removed_token = node.token(&gone).await;
        let path = "/v1/tenants/acme/services/gone";
        node.operator().call(Method::DELETE, path, None).await.expect("the service can be removed");
        let (token, dark_token) = (node.token(&cast.billing).await, node.token(&dark).await);
        let suspended = json!({ "tenants": [{ "name": "dark", "suspended": true }] });
        node.apply(&suspended).await;
        let expired_token = expired(&node, &cast.billing);
        Self { node, cast, dark, token, dark_token, removed_token, expired_token }
    }

    fn draft(&self) -> Draft {
        let payload = format!(r#"{{"user":"{CANARY}"}}"#);
        Draft { payload, ..Draft::new("notify", &new_id()) }
    }

    fn resident_bytes(&self) -> u64 {
        let path = format!("/proc/{}/statm", self.node.pid());
        let pages = std::fs::read_to_string(path).expect("the process is there");
        pages.split(' ').nth(1).and_then(|it| it.parse::<u64>().ok()).expect("a number of pages") * 4096
    }

    fn post(&self, token: &str, body: impl Into<reqwest::Body>) -> RequestBuilder {
        post_json(&self.node, "/v1/commands", token, body)
    }
}

/// A token that this very platform issued, ten minutes and a second ago.
fn expired(node: &Node, credentials: &Credentials) -> String {
    let key = std::fs::read_to_string(node.secret("platform.key")).expect("the key was made");
    let key = base64::engine::general_purpose::STANDARD.decode(key.trim()).expect("base64");
    let tokens = TokenKey::new(&TokenKey::new(&key).digest(&[b"snavio", b"tokens"]));
    let at = |seconds| {
        let at = snavio_model::time::Timestamp::parse(&seconds_from_now(seconds)).expect("a time");
        at.0 / 1000
    };
    let claims = |iat, exp| TokenClaims {
        sub: credentials.client_id.clone(),
        service: credentials.source.clone(),
        iat,
        exp,
    };
    issue(&tokens, &claims(at(-601), at(-1)))
}

struct Row {
    what: &'static str,
    request: RequestBuilder,
    answer: (u16, &'static str),
    id: Option<String>,
}

impl Row {
    async fn check(self, stage: &Stage) {
        let Self { what, request, answer: (status, reason), id } = self;
        let answer = Answered::to(request).await;
        assert_eq!(answer.refusal(), (status, reason.to_owned()), "{what}: {}", answer.text);
        assert_eq!(answer.content_type, "application/problem+json", "{what}");
        let document = answer.document();
        assert_eq!(document["accepted"], false, "{what}");
        assert_eq!(document["status"], status, "{what}");
        assert_eq!(document["type"], format!("urn:snavio:problem:{reason}"), "{what}");
        for member in ["title", "detail"] {
            assert!(document[member].as_str().is_some_and(|it| !it.is_empty()), "{what}: {member}");
        }
        assert_eq!(document["id"].as_str(), id.as_deref(), "{what}");
        let billing = &stage.cast.billing;
        for secret in [CANARY, &stage.token, &billing.client_secret, &billing.hmac_secret] {
            assert!(!answer.text.contains(secret), "{what} echoes: {}", answer.text);
        }
    }
}

/// A message in the making, and what the gateway can know of it.
struct Message {
    draft: Draft,
    text: Vec<u8>,
}

impl Stage {
    fn signed(&self, change: impl FnOnce(&mut Draft)) -> Message {
        let mut draft = self.draft();
        change(&mut draft);
        let text = draft.sign(&self.cast.billing);
        Message { draft, text }
    }

    /// A signed message, changed as a document.
    fn edited(&self, change: impl FnOnce(&mut Value)) -> Message {
        let Message { draft, text } = self.signed(|_| {});
        let mut value = serde_json::from_slice(&text).expect("a message is JSON");
        change(&mut value);
        Message { draft, text: value.to_string().into_bytes() }
    }

    /// A signed message with other bytes in one place.
    fn spliced(&self, from: &str, to: &[u8]) -> Message {
        let Message { draft, text } = self.signed(|_| {});
        let at = text.windows(from.len()).position(|it| it == from.as_bytes()).expect("it is there");
        let text = [&text[..at], to, &text[at + from.len()..]].concat();
        Message { draft, text }
    }

    fn rows(&self) -> Vec<Row> {
        [self.signature_rows(), self.form_rows(), self.json_rows(), self.request_rows(), self.caller_rows()]
            .into_iter()
            .flatten()
            .collect()
    }

    fn row(&self, what: &'static str, message: Message, status: u16, reason: &'static str) -> Row {
        let request = self.post(&self.token, message.text);
        Row { what, request, answer: (status, reason), id: Some(message.draft.id) }
    }

    fn signature_rows(&self) -> Vec<Row> {
        let hmac = |text: &str| self.edited(|it| it["metadata"]["hmac"] = text.into());
        let other = |member: &str, value: &str| self.edited(|it| it["command"][member] = value.into());
        let missing = self.edited(|it| drop(it["metadata"].as_object_mut().map(|it| it.remove("hmac"))));
        let upper = self.edited(|it| {
            let text = it["metadata"]["hmac"].as_str().map(str::to_uppercase);
            it["metadata"]["hmac"] = text.into();
        });
        let no_version =
            self.edited(|it| drop(it["metadata"].as_object_mut().map(|it| it.remove("version_id"))));
        let of_bot = {
            let draft = self.draft();
            let text = draft.sign(&self.cast.bot);
            Message { draft, text }
        };
        let late = |seconds| self.signed(|draft| draft.timestamp = seconds_from_now(seconds));
        let late_and_forged = {
            let mut message = late(-61);
            message.text = String::from_utf8_lossy(&message.text).replace(CANARY, "other").into_bytes();
            message
        };
        let renewed = self.edited(|it| it["metadata"]["timestamp"] = seconds_from_now(1).into());
        let renamed = self.edited(|it| it["metadata"]["version_id"] = "hmac-v9".into());
        vec![
            self.row("no signature", missing, 401, "hmac_missing"),
            self.row("bad hex", hmac(&"zz".repeat(32)), 401, "hmac_invalid"),
            self.row("too short", hmac(&"ab".repeat(31)), 401, "hmac_invalid"),
            self.row("too long", hmac(&"ab".repeat(33)), 401, "hmac_invalid"),
            self.row("empty", hmac(""), 401, "hmac_invalid"),
            self.row("upper-case hex", upper, 401, "hmac_invalid"),
            self.row("another signature", hmac(&"ab".repeat(32)), 401, "hmac_invalid"),
            self.row("another payload", other("payload", "changed"), 401, "hmac_invalid"),
            self.row("re-aimed at another name", other("name", "pay"), 401, "hmac_invalid"),
            self.row("re-aimed at another target", other("target", "acme/billing"), 401, "hmac_invalid"),
            self.row("the same target by another name", other("target", "bot"), 401, "hmac_invalid"),
            self.row("timestamp renewed without signing", renewed, 401, "hmac_invalid"),
            self.row("signed with another service's key", of_bot, 401, "hmac_invalid"),
            self.row("61 s old", late(-61), 401, "timestamp_out_of_window"),
            self.row("far ahead", late(90), 401, "timestamp_out_of_window"),
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
        let metadata = |member: &str, value: Value| self.edited(|it| it["metadata"][member] = value);
        let command = |member: &str, value: Value| self.edited(|it| it["command"][member] = value);
        let top = self.edited(|it| it["extra"] = CANARY.into());
        let without = |part: &str, member: &str| {
            self.edited(|it| drop(it[part].as_object_mut().map(|it| it.remove(member))))
        };
        let mut rows = vec![
            self.row(
                "23:59:60",
                metadata("timestamp", "2026-12-31T23:59:60Z".into()),
                400,
                "invalid_timestamp",
            ),
            self.row(
                "a number as timestamp",
                metadata("timestamp", 1_794_731_400.into()),
                400,
                "invalid_timestamp",
            ),
            self.row(
                "a timestamp without offset",
                metadata("timestamp", "2026-11-15T08:30:00".into()),
                400,
                "invalid_timestamp",
            ),
            self.row("command.source", command("source", "acme/billing".into()), 400, "source_present"),
            self.row("an unknown member of all", top, 400, "unknown_field"),
            self.row("an unknown member of metadata", metadata("hmac2", CANARY.into()), 400, "unknown_field"),
            self.row(
                "an unknown member that is no name",
                metadata(&format!("<{CANARY}>"), 1.into()),
                400,
                "unknown_field",
            ),
            self.row("an unknown member of command", command("note", CANARY.into()), 400, "unknown_field"),
            self.row("another type", metadata("type", "snavio.event".into()), 400, "malformed"),
            self.row("no type", without("metadata", "type"), 400, "malformed"),
            self.row("no timestamp", without("metadata", "timestamp"), 400, "malformed"),
            self.row("no payload", without("command", "payload"), 400, "malformed"),
            self.row("no target", without("command", "target"), 400, "malformed"),
            self.row(
                "a correlation id with a line break",
                metadata("correlation_id", "a\nb".into()),
                400,
                "malformed",
            ),
            self.row(
                "a name with a control character",
                command("name", "no\u{7}tify".into()),
                400,
                "invalid_name",
            ),
            self.row(
                "a target with a line break",
                command("target", "acme/bot\n".into()),
                400,
                "invalid_name",
            ),
            self.row("a target in three parts", command("target", "a/b/c".into()), 400, "invalid_name"),
            self.row(
                "a key with a line break",
                metadata("version_id", "hmac-v1\n".into()),
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
            rows.push(self.row("a reserved member", metadata(member, CANARY.into()), 400, "reserved_field"));
            rows.push(self.row("a reserved member", command(member, CANARY.into()), 400, "reserved_field"));
        }
        for id in ["00000000-0000-0000-0000-000000000000", "0192f0a07c3e7b608c1d1b2a3c4d5e6f", "7"] {
            let mut row = self.row("not an id", metadata("id", id.into()), 400, "invalid_id");
            row.id = None;
            rows.push(row);
        }
        rows
    }

    fn json_rows(&self) -> Vec<Row> {
        let value = |text: &str| self.spliced(&format!(r#""{CANARY}""#), text.as_bytes());
        let nameless = |what, text: &[u8], reason| Row {
            what,
            request: self.post(&self.token, text.to_vec()),
            answer: (400, reason),
            id: None,
        };
        let whole = self.signed(|_| {});
        let trailing = Message { text: [&whole.text[..], b" x"].concat(), draft: whole.draft.clone() };
        let cut = Message { text: whole.text[..whole.text.len() - 1].to_vec(), draft: whole.draft.clone() };
        let broken_utf8 = self.spliced(CANARY, b"c4n\xff");
        let many = self.signed(|draft| draft.payload = format!("[{}]", vec![r#"{"a":1}"#; 9_991].join(",")));
        let deep = self.signed(|draft| draft.payload = nested(63));
        let bom = [b"\xef\xbb\xbf", &whole.text[..]].concat();
        vec![
            nameless("{", b"{", "malformed"),
            nameless("nothing", b"", "malformed"),
            nameless("a byte-order mark", &bom, "malformed"),
            nameless("an array", b"[]", "malformed"),
            nameless("a bomb of brackets", &[b'['; 200_000], "too_deep"),
            self.row("cut off", cut, 400, "malformed"),
            self.row("NaN", value("NaN"), 400, "malformed"),
            self.row("trailing text", trailing, 400, "malformed"),
            nameless("invalid UTF-8", &broken_utf8.text, "malformed"),
            self.row("a NUL", value(r#""a\u0000b""#), 400, "malformed"),
            self.row("a lone surrogate", value(r#""\ud800""#), 400, "malformed"),
            self.row("depth 65", deep, 400, "too_deep"),
            self.row("10,001 members", many, 400, "malformed"),
            self.row(
                "a repeated member",
                self.spliced(r#""user":"#, br#""user":1,"user":"#),
                400,
                "duplicate_member",
            ),
            self.row(
                "a repeated member, written otherwise",
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
            self.row("too large an exponent", value("1e6145"), 400, "number_range"),
            self.row("too many digits", value(&"1".repeat(35)), 400, "number_range"),
        ]
    }

    fn request_rows(&self) -> Vec<Row> {
        let over = || vec![b' '; bounds::BODY_BYTES_DEFAULT + 1];
        let chunks: Vec<_> = over().chunks(50_000).map(|it| Ok::<_, std::io::Error>(it.to_vec())).collect();
        let chunked = reqwest::Body::wrap_stream(stream::iter(chunks));
        let typed = |header: &str, value: &str| {
            let url = format!("{}/v1/commands", self.node.url());
            let request = crate::wire::http(&self.node).post(url).bearer_auth(&self.token);
            request.header(header, value).body(self.signed(|_| {}).text)
        };
        let row = |what, request, status, reason| Row { what, request, answer: (status, reason), id: None };
        let gzip = typed("content-encoding", "gzip").header("content-type", "application/json");
        vec![
            row("one byte over the limit", self.post(&self.token, over()), 413, "too_large"),
            row("one byte over the limit, chunked", self.post(&self.token, chunked), 413, "too_large"),
            row("text/xml", typed("content-type", "text/xml"), 415, "unsupported_media_type"),
            row(
                "another charset",
                typed("content-type", "application/json; charset=UTF-16"),
                415,
                "unsupported_media_type",
            ),
            row("no content type", typed("x-nothing", "1"), 415, "unsupported_media_type"),
            row(
                "a stream where one is wanted",
                typed("content-type", "application/x-ndjson"),
                415,
                "unsupported_media_type",
            ),
            row("gzip", gzip, 415, "unsupported_media_type"),
        ]
    }

    fn caller_rows(&self) -> Vec<Row> {
        let body = || self.signed(|_| {}).text;
        let row = |what, request, status, reason| Row { what, request, answer: (status, reason), id: None };
        let url = format!("{}/v1/commands", self.node.url());
        let bare = || {
            let request = crate::wire::http(&self.node).post(&url);
            request.header("content-type", "application/json").body(body())
        };
        let mut altered = self.token.clone();
        altered.pop();
        let no_algorithm = {
            let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
            let claims = self.token.split('.').nth(1).expect("a token has three parts");
            format!("{}.{claims}.", engine.encode(r#"{"alg":"none","typ":"JWT"}"#))
        };
        let operator = self.node.operator_token();
        let mut rows = vec![
            row("no token", bare(), 401, "unauthenticated"),
            row("another scheme", bare().basic_auth("a", Some("b")), 401, "unauthenticated"),
            row("a bad token", self.post("not-a-token", body()), 401, "unauthenticated"),
            row("an altered token", self.post(&altered, body()), 401, "unauthenticated"),
            row("a token without an algorithm", self.post(&no_algorithm, body()), 401, "unauthenticated"),
            row("an expired token", self.post(&self.expired_token, body()), 401, "unauthenticated"),
            row("a removed client's token", self.post(&self.removed_token, body()), 401, "unauthenticated"),
            row("no token is told before bad JSON", bare().body("{"), 401, "unauthenticated"),
            row("the operator is no service", self.post(&operator, body()), 403, "forbidden"),
        ];
        rows.extend(self.suspended_rows());
        rows
    }

    /// PIP-1: suspension comes after the form and before all else.
    fn suspended_rows(&self) -> Vec<Row> {
        let row = |what, change: &dyn Fn(&mut Value), timestamp: String, answer: (u16, &'static str)| {
            let draft = Draft { timestamp, ..self.draft() };
            let mut value = serde_json::from_slice(&draft.sign(&self.dark)).expect("a message is JSON");
            change(&mut value);
            let request = self.post(&self.dark_token, value.to_string());
            Row { what, request, answer, id: Some(draft.id) }
        };
        let suspended = (403, "suspended");
        let now = || seconds_from_now(0);
        vec![
            row("suspended", &|_| {}, now(), suspended),
            row("suspended before source", &|it| it["command"]["source"] = 1.into(), now(), suspended),
            row("suspended before the window", &|_| {}, seconds_from_now(-90), suspended),
            row("suspended before the signature", &|it| it["metadata"]["hmac"] = "".into(), now(), suspended),
            row("form before suspended", &|it| it["metadata"]["type"] = 1.into(), now(), (400, "malformed")),
            row(
                "names before suspended",
                &|it| it["command"]["name"] = "".into(),
                now(),
                (400, "invalid_name"),
            ),
        ]
    }
}

/// A payload that is so many levels deep by itself.
fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

/// MSG-12
#[tokio::test]
async fn calls_that_do_not_fit_are_told_what_does() {
    let node = Node::start();
    node.cast().await;
    let operator = node.operator();
    let inbox = |what: &str| format!("/v1/queues/notify-inbox/{what}?tenant=acme");
    let (receive, ack, apply) = (inbox("receive"), inbox("ack"), "/v1/registry/apply".to_owned());
    let receipt = |more: &str| format!(r#"{{"receipts":[{{"delivery_id":1,"fence":2{more}}}]}}"#);
    let typo = "/v1/queues/notify-inbx/purge?tenant=acme".to_owned();
    for (path, body, status, told) in [
        (&receive, "[1,2,3]", 400, "expected an object"),
        (&apply, "[]", 400, "expected an object"),
        (&ack, r#"{"receipts":[[1,2]]}"#, 400, "receipts[0]: expected an object"),
        (&apply, r#"{"tenants":[["x",null,false]]}"#, 400, "tenants[0]: expected an object"),
        (&ack, &receipt(r#","extra":1"#), 400, "unknown field `extra`"),
        (&receive, r#"{"max":"c4n4ry"}"#, 400, "max: expected a whole number"),
        (&receive, r#"{"max":1} x"#, 400, "trailing characters"),
        (&typo, "{}", 404, "did you mean notify-inbox"),
        (&inbox("purge").replace("acme", "acm"), "{}", 404, "no such tenant"),
    ] {
        let body = Some(body.as_bytes().to_vec());
        let (code, problem) = verdict(operator.send(Method::POST, path, body, "application/json").await);
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert_eq!(code, status, "{path}: {problem}");
        assert!(detail.contains(told) && !detail.contains(CANARY), "{told:?} is not said in {detail:?}");
    }
    for (path, status, told) in [
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
        assert!(detail.contains(told) && !detail.contains(CANARY), "{told:?} is not said in {detail:?}");
    }
}

/// MSG-12
#[tokio::test]
async fn advice_fits_what_was_sent() {
    let node = Node::start();
    let cast = node.cast().await;
    let form = node.api().send(Method::POST, "/v1/token", Some(b"{}".to_vec()), "application/json").await;
    let (status, problem) = verdict(form);
    assert_eq!(status, 415);
    let told = |problem: &Value| format!("{} {}", problem["detail"], problem["advice"]);
    assert!(told(&problem).contains("x-www-form-urlencoded"), "{problem}");
    assert!(!told(&problem).contains("application/json"), "{problem}");
    let many = format!("[{}]", ["{}"; bounds::BATCH_MESSAGES_MAX + 1].join(","));
    let token = node.token(&cast.billing).await;
    let answer = Answered::to(post_json(&node, "/v1/commands/batch", &token, many)).await;
    assert_eq!(answer.status, 413);
    assert!(told(&answer.document()).contains("split"), "{}", answer.text);
}
