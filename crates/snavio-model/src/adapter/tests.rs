//! Recorded webhooks of the known providers, and the events made from them.

use hmac::{KeyInit as _, Mac as _};
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::*;
use crate::message::event::NativeEvent;
use crate::name::{AdapterName, ServiceName};
use crate::refusal::{Reason, Refusal};
use crate::registry::Sealed;
use crate::signature::signing::HmacSha256;
use crate::time::Timestamp;

const NOW: Timestamp = Timestamp(1_794_731_400_000);

fn adapter(preset: Preset) -> Adapter {
    let (name, service) = (AdapterName::new("hook").unwrap(), ServiceName::new("acme/shop").unwrap());
    preset.adapter(name, service, vec![Sealed("sealed".to_owned())])
}

fn secret(text: &str) -> ForeignSecret {
    ForeignSecret::new(text).unwrap()
}

fn hmac_hex(secret: &str, parts: &[&[u8]]) -> String {
    let mut mac = HmacSha256::new_from_slice(secret.as_bytes()).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    hex::encode(mac.finalize().into_bytes())
}

fn header(name: &str) -> Origin {
    Origin::Header(name.to_owned())
}

fn pointer(text: &str) -> Origin {
    Origin::Pointer(text.to_owned().try_into().unwrap())
}

/// Converts a request without verifying it.
fn event(adapter: &Adapter, headers: &[(&str, &str)], body: &[u8]) -> Value {
    let written = adapter.event(&WebhookRequest { headers, body }).unwrap();
    assert!(NativeEvent::parse(&written).is_ok());
    serde_json::from_slice(&written).unwrap()
}

fn refusal_text(adapter: &Adapter, headers: &[(&str, &str)], body: &[u8]) -> String {
    adapter.event(&WebhookRequest { headers, body }).unwrap_err().to_string()
}

fn verify(
    verification: &Verification,
    headers: &[(&str, &str)],
    body: &[u8],
    secrets: &[ForeignSecret],
) -> Result<(), Refusal> {
    verification.verify(&WebhookRequest { headers, body }, secrets, NOW).map(drop)
}

const UPDATE: &[u8] = r#"{"update_id":901234567,"message":{"message_id":11,"from":{"id":42,"is_bot":false,"first_name":"Zoë"},"chat":{"id":42,"type":"private"},"date":1794731390,"text":"Bonjour 😀"}}"#.as_bytes();

/// MSG-7
#[test]
fn telegram_update_is_verified_and_has_the_reference_id() {
    let telegram = adapter(Preset::Telegram);
    let headers =
        [("content-type", "application/json"), ("x-telegram-bot-api-secret-token", "tg_secret-number-1")];
    let secrets = [secret("tg_secret-number-2"), secret("tg_secret-number-1")];
    assert_eq!(verify(&telegram.verification, &headers, UPDATE, &secrets), Ok(()));
    let one = event(&telegram, &headers, UPDATE);
    assert_eq!(one, event(&telegram, &headers, UPDATE), "sent twice, it is one event");
    // The output of Python's `json.dumps(update, sort_keys=True)`.
    let normalized = r#"{"message": {"chat": {"id": 42, "type": "private"}, "date": 1794731390, "from": {"first_name": "Zo\u00eb", "id": 42, "is_bot": false}, "message_id": 11, "text": "Bonjour \ud83d\ude00"}, "update_id": 901234567}"#;
    let id = hex::encode(Sha256::digest(format!("telegram:901234567:{normalized}")));
    assert_eq!((&one["eventId"], &one["eventType"]), (&json!(id), &json!("telegram.update")));
    assert_eq!(one["timestamp"], json!("2026-11-15T08:29:50.000Z"));
    assert_eq!(one["data"]["message"]["text"], json!("Bonjour 😀"));
    assert_eq!(one.get("metadata"), None);

    for (given, expected) in [
        (
            Some("tg_secret-number-3"),
            "unauthenticated: x-telegram-bot-api-secret-token is not the adapter's secret",
        ),
        (Some(""), "unauthenticated: x-telegram-bot-api-secret-token is not the adapter's secret"),
        (None, "unauthenticated: x-telegram-bot-api-secret-token is missing"),
    ] {
        let headers: Vec<_> =
            given.map(|token| ("X-Telegram-Bot-Api-Secret-Token", token)).into_iter().collect();
        let refusal = verify(&telegram.verification, &headers, UPDATE, &secrets).unwrap_err();
        assert_eq!(refusal.to_string(), expected);
    }
    assert!(
        verify(&telegram.verification, &headers, UPDATE, &[]).is_err(),
        "without a secret no caller is verified"
    );
}

/// MSG-7
#[test]
fn calendar_notification_is_read_from_its_headers() {
    let calendar = adapter(Preset::GoogleCalendar);
    let headers = [
        ("content-length", "0"),
        ("x-goog-channel-id", "4ba78bf0-6a47-11e2-bcfd-0800200c9a66"),
        ("x-goog-channel-token", "398348u3tu83ut8uu38"),
        ("x-goog-channel-expiration", "Sun, 15 Nov 2026 17:00:00 GMT"),
        ("x-goog-resource-id", "ret08u3rv24htgh289g"),
        (
            "x-goog-resource-uri",
            "https://www.googleapis.com/calendar/v3/calendars/my_calendar@gmail.com/events",
        ),
        ("x-goog-resource-state", "exists"),
        ("x-goog-message-number", "10"),
    ];
    assert_eq!(verify(&calendar.verification, &headers, b"", &[secret("398348u3tu83ut8uu38")]), Ok(()));
    assert!(verify(&calendar.verification, &headers, b"", &[secret("398348u3tu83ut8uu39")]).is_err());
    let one = event(&calendar, &headers, b"");
    assert_eq!(one, event(&calendar, &headers, b""));
    let data = json!({
        "channelId": "4ba78bf0-6a47-11e2-bcfd-0800200c9a66",
        "channelExpiration": "Sun, 15 Nov 2026 17:00:00 GMT",
        "messageNumber": "10",
        "resourceId": "ret08u3rv24htgh289g",
        "resourceState": "exists",
        "resourceUri": "https://www.googleapis.com/calendar/v3/calendars/my_calendar@gmail.com/events",
    });
    assert_eq!((&one["data"], &one["eventType"]), (&data, &json!("google-calendar.notification")));
    let external = "4ba78bf0-6a47-11e2-bcfd-0800200c9a66:10";
    let id = event_id("gcal", external, data.to_string().as_bytes()).unwrap();
    assert_eq!(one["eventId"], json!(id.as_str()));
    // The next notification of the channel is another event. No event contains the secret.
    let next: Vec<_> =
        headers.iter().map(|&(name, value)| (name, if value == "10" { "13" } else { value })).collect();
    assert_ne!(event(&calendar, &next, b"")["eventId"], one["eventId"]);
    assert!(!one.to_string().contains("398348u3tu83ut8uu38"));
    let without: Vec<_> =
        headers.iter().copied().filter(|(name, _)| *name != "x-goog-message-number").collect();
    assert_eq!(
        refusal_text(&calendar, &without, b""),
        "malformed: the external id is expected in the header x-goog-message-number, as text or a whole number"
    );
}

/// MSG-7
#[test]
fn github_event_is_verified_and_has_its_delivery_id() {
    let github = adapter(Preset::Github);
    // The example in GitHub's documentation.
    let example = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let secrets = [secret("another secret of it"), secret("It's a Secret to Everybody")];
    let signed = |signature: &str| {
        verify(&github.verification, &[("X-Hub-Signature-256", signature)], b"Hello, World!", &secrets)
    };
    assert_eq!(signed(example), Ok(()));
    assert_eq!(signed(&example.to_uppercase().replace("SHA256=", "sha256=")), Ok(()));
    let form = "unauthenticated: X-Hub-Signature-256 must be \"sha256=\" and 64 hexadecimal digits";
    let wrong =
        "unauthenticated: x-hub-signature-256 is not the signature of the body under the adapter's secret";
    for (signature, expected) in [
        (&example[7..], form),
        (&example[..example.len() - 1], form),
        (&example.replace("sha256=75", "sha256=0x"), form),
        (&example.replace("75", "76"), wrong),
        ("", form),
    ] {
        assert_eq!(signed(signature).unwrap_err().to_string(), expected, "{signature}");
    }

    let body =
        br#"{"ref":"refs/heads/main","repository":{"id":186853002,"full_name":"octo/hello"},"commits":[]}"#;
    let headers = [
        ("X-GitHub-Delivery", "72D3162E-cc78-11e3-81ab-4c9367dc0958"),
        ("X-GitHub-Event", "push"),
        ("X-GitHub-Hook-ID", "292430182"),
    ];
    let one = event(&github, &headers, body);
    assert_eq!(one, event(&github, &headers, body));
    assert_eq!(one["eventId"], json!("72d3162e-cc78-11e3-81ab-4c9367dc0958"));
    assert_eq!(one["metadata"], json!({"githubEvent": "push", "githubHook": "292430182"}));
    assert_eq!(one["data"]["ref"], json!("refs/heads/main"));
    // An adapter can give every kind of event a type of its own.
    let suffix = Some(Origin::Header("x-github-event".to_owned()));
    let by_kind = Adapter { event_type: "github".parse().unwrap(), event_type_suffix: suffix, ..github };
    assert_eq!(event(&by_kind, &headers, body)["eventType"], json!("github.push"));
    let odd = [headers[0], ("X-GitHub-Event", "a b")];
    assert!(
        refusal_text(&by_kind, &odd, body)
            .starts_with("invalid_name: the header x-github-event: an event type")
    );
    assert_eq!(
        refusal_text(&by_kind, &headers, b"payload=%7B%7D"),
        "malformed: the body: unexpected character at byte 0"
    );
}

fn stripe_signature(secret: &str, at: i64, body: &[u8]) -> String {
    let time = at.to_string();
    format!("t={time},v1={}", hmac_hex(secret, &[time.as_bytes(), b".", body]))
}

/// MSG-7
#[test]
fn stripe_event_is_verified_and_ignores_pending_webhooks() {
    let stripe = adapter(Preset::Stripe);
    let body = br#"{"id":"evt_1NG8Du2eZvKYlo2C","object":"event","created":1794731300,"data":{"object":{"id":"ch_3","amount":1099.0}},"livemode":false,"pending_webhooks":2,"type":"charge.succeeded"}"#;
    let (now, key) = (NOW.0 / 1000, "whsec_test_secret");
    let good = stripe_signature(key, now - 300, body);
    let old = stripe_signature("whsec_the_older_one", now, body);
    let check = |header: &str, body: &[u8]| {
        let secrets = [secret(key), secret("whsec_the_older_one")];
        verify(&stripe.verification, &[("Stripe-Signature", header)], body, &secrets)
    };
    let foreign = stripe_signature("whsec_of_another", now, body);
    for header in [
        good.clone(),
        old,
        format!("{good},v0=abc"),
        format!("{foreign},{}", &stripe_signature(key, now, body)[13..]),
        stripe_signature(key, now + 300, body),
    ] {
        assert_eq!(check(&header, body), Ok(()), "{header}");
    }
    let form = "unauthenticated: stripe-signature must be t=<seconds>,v1=<hex>, with 1 to 8 signatures";
    let wrong =
        "unauthenticated: stripe-signature is not the signature of the body under the adapter's secret";
    for (header, expected) in [
        (good.replace(&(now - 300).to_string(), &now.to_string()), wrong),
        (foreign, wrong),
        (format!("t={now}"), form),
        (good.replace("t=", "t=0"), form),
        (format!("{good},t={now}"), form),
        (good[13..].to_owned(), form),
        (good.replace("v1=", "v1"), form),
        ([good.as_str(), &[&good[13..]; 8].join("")].concat(), form),
    ] {
        assert_eq!(check(&header, body).unwrap_err().to_string(), expected, "{header}");
    }
    assert!(check(&good, b"{}").is_err());
    for at in [now - 301, now + 301] {
        let refusal = check(&stripe_signature(key, at, body), body).unwrap_err();
        assert_eq!(refusal.reason, Reason::TimestampOutOfWindow);
        assert_eq!(refusal.skew.map(|skew| skew.sent_at), Some(Timestamp(at * 1000)));
    }

    let one = event(&stripe, &[], body);
    assert_eq!(
        (&one["eventId"], &one["timestamp"]),
        (&json!("evt_1NG8Du2eZvKYlo2C"), &json!("2026-11-15T08:28:20.000Z"))
    );
    assert_eq!(one["metadata"], json!({"stripeType": "charge.succeeded"}));
    let again =
        String::from_utf8(body.to_vec()).unwrap().replace("\"pending_webhooks\":2", "\"pending_webhooks\":1");
    assert_eq!(one, event(&stripe, &[], again.as_bytes()), "sent again while one of two was delivered");
    let changed = again.replace("1099.0", "1098");
    assert_eq!(event(&stripe, &[], changed.as_bytes())["eventId"], one["eventId"], "and so it is a conflict");
}

fn at_seconds(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1000)
}

/// MSG-4, MSG-7
#[test]
fn standard_webhooks_are_verified_as_the_specification_says() {
    let scheme = Verification::StandardWebhooks { tolerance_seconds: 300 };
    let headers = [
        ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= v1,bad"),
    ];
    let body = br#"{"test": 2432232314}"#;
    let request = WebhookRequest { headers: &headers, body };
    let secrets = [secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")];
    let signature = headers[2].1.to_owned();
    let verified = Verified { signed_at: Some(at_seconds(1_614_265_330)), signature };
    assert_eq!(scheme.verify(&request, &secrets, at_seconds(1_614_265_330)).as_ref(), Ok(&verified));
    assert_eq!(scheme.verify(&request, &secrets, at_seconds(1_614_265_630)), Ok(verified));
    let late = scheme.verify(&request, &secrets, at_seconds(1_614_265_631)).unwrap_err();
    assert_eq!(late.reason, Reason::TimestampOutOfWindow);
    let others = [secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSv"), secret("not of this scheme")];
    let refusal = scheme.verify(&request, &others, at_seconds(1_614_265_330)).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "unauthenticated: webhook-signature is not the signature of the body under the adapter's secret"
    );
    let unfit =
        verify(&scheme, &[headers[0], headers[1], ("webhook-signature", "x")], body, &secrets).unwrap_err();
    assert_eq!(unfit.reason, Reason::Unauthenticated);
    assert!(scheme.check_secret(&secrets[0]).is_ok() && scheme.check_secret(&others[1]).is_err());
}

/// MSG-7
#[test]
fn hmac_may_be_base64() {
    let scheme: Verification =
        serde_json::from_value(json!({"scheme": "hmac", "header": "X-Sig", "encoding": "base64"})).unwrap();
    // HMAC-SHA256 of `{}` under `a secret of theirs`.
    let signature = {
        use base64::Engine as _;
        let bytes = hex::decode(hmac_hex("a secret of theirs", &[b"{}"])).unwrap();
        base64::engine::general_purpose::STANDARD.encode(bytes)
    };
    let secrets = [secret("a secret of theirs")];
    assert_eq!(verify(&scheme, &[("x-sig", signature.as_str())], b"{}", &secrets), Ok(()));
    assert!(verify(&scheme, &[("x-sig", signature.trim_end_matches('='))], b"{}", &secrets).is_err());
    let twice = [("x-sig", signature.as_str()), ("X-SIG", signature.as_str())];
    let refusal = verify(&scheme, &twice, b"{}", &secrets).unwrap_err();
    assert_eq!(refusal.to_string(), "duplicate_member: the header x-sig came twice");
}

/// The number of signatures that a verification computes.
fn count_signatures(verify: impl FnOnce()) -> usize {
    let before = super::secret::SIGNATURE_COUNT.get();
    verify();
    super::secret::SIGNATURE_COUNT.get() - before
}

fn standard_headers(signature: &str) -> Vec<(&str, &str)> {
    vec![("webhook-id", "e"), ("webhook-timestamp", "1794731400"), ("webhook-signature", signature)]
}

/// MSG-7, QUA-5: a refusal takes the same time for every cause, and if there is no adapter.
#[test]
fn every_refused_caller_costs_one_signature() {
    fn request<'a>(headers: &'a [(&'a str, &'a str)]) -> WebhookRequest<'a> {
        WebhookRequest { headers, body: b"{}" }
    }
    assert_eq!(count_signatures(|| pretend(&request(&[]))), 1);
    let secrets = [secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")];
    let zeros = "0".repeat(64);
    let many = format!("t={}{}", NOW.0 / 1000, format!(",v1={zeros}").repeat(8));
    let base64 = format!("v1,{}=", "A".repeat(43));
    let hub = format!("sha256={zeros}");
    let tolerance_seconds = 300;
    for (scheme, headers) in [
        (
            adapter(Preset::Telegram).verification,
            vec![("X-Telegram-Bot-Api-Secret-Token", "a wrong one of them")],
        ),
        (adapter(Preset::Github).verification, vec![("X-Hub-Signature-256", "sha256=")]),
        (adapter(Preset::Github).verification, vec![("X-Hub-Signature-256", hub.as_str())]),
        (adapter(Preset::Stripe).verification, vec![("Stripe-Signature", "t=")]),
        (adapter(Preset::Stripe).verification, vec![("Stripe-Signature", many.as_str())]),
        (Verification::StandardWebhooks { tolerance_seconds }, standard_headers("v1,")),
        (Verification::StandardWebhooks { tolerance_seconds }, standard_headers(&base64)),
    ] {
        for headers in [headers.clone(), Vec::new(), [headers.clone(), headers].concat()] {
            let count = count_signatures(|| {
                assert!(scheme.verify(&request(&headers), &secrets, NOW).is_err(), "{headers:?}");
            });
            assert_eq!(count, 1, "{scheme:?} {headers:?}");
        }
    }
}

/// MSG-7, QUA-4
#[test]
fn provider_secret_is_printable_and_hidden_in_debug_output() {
    for (text, fits) in [
        ("1234567890123456", true),
        ("123456789012345", false),
        ("", false),
        ("é234567890123456", false),
        ("123456789012345\n", false),
    ] {
        assert_eq!(ForeignSecret::new(text).is_ok(), fits, "{text:?}");
    }
    assert!(ForeignSecret::new(&"x".repeat(513)).is_err());
    assert_eq!(format!("{:?}", secret("1234567890123456")), "ForeignSecret(..)");
}

/// MSG-7
#[test]
fn ready_adapters_are_valid_and_serializable() {
    for preset in Preset::ALL {
        let adapter = adapter(preset);
        assert_eq!(adapter.problem(), None, "{preset:?}");
        let text = serde_json::to_string(&adapter).unwrap();
        assert_eq!(serde_json::from_str::<Adapter>(&text).unwrap(), adapter);
    }
    let data = serde_json::to_value(adapter(Preset::Stripe)).unwrap();
    assert_eq!(
        data,
        json!({
            "name": "hook",
            "service": "acme/shop",
            "source": "stripe",
            "event_type": "stripe.event",
            "external_id": [{"pointer": "/id"}],
            "id": "external",
            "data": "body",
            "members": {"stripeType": {"pointer": "/type"}},
            "left_out": ["/pending_webhooks"],
            "timestamp": {"pointer": "/created"},
            "verification": {"scheme": "stripe", "tolerance_seconds": 300},
            "secrets": ["sealed"],
        })
    );
}

/// MSG-7
#[test]
fn invalid_adapter_is_refused_with_the_reason() {
    for (wrong, expected) in [
        (
            Adapter { source: "a:b".to_owned(), ..adapter(Preset::Stripe) },
            "source: must be 1 to 64 printable ASCII characters without a colon, because a colon ends it in an id",
        ),
        (
            Adapter { external_id: Vec::new(), ..adapter(Preset::Stripe) },
            "external_id has 0 parts, not 1 to 4",
        ),
        (
            Adapter { external_id: vec![header("x"); 5], ..adapter(Preset::Stripe) },
            "external_id has 5 parts, not 1 to 4",
        ),
        (
            Adapter { external_id: vec![header("a b")], ..adapter(Preset::Stripe) },
            "\"a b\" is not a valid header name: 1 to 64 of A-Z a-z 0-9 - _",
        ),
        (
            Adapter { id: IdRule::Derived, ..adapter(Preset::Stripe) },
            "left_out needs id external and data body, because a derived id covers the whole body",
        ),
        (
            Adapter { data: DataRule::Members, members: [].into(), ..adapter(Preset::Stripe) },
            "data is members, but members is empty: name at least one",
        ),
        (
            Adapter { members: [("cloudevents".to_owned(), header("x"))].into(), ..adapter(Preset::Stripe) },
            "members: \"cloudevents\" is not a valid member name (1 to 64 bytes, not cloudevents)",
        ),
        (Adapter { secrets: Vec::new(), ..adapter(Preset::Stripe) }, "an adapter has 1 to 4 secrets"),
        (
            Adapter { id_prefix: Some("a b".to_owned()), ..adapter(Preset::Stripe) },
            "id_prefix must be 1 to 32 printable ASCII characters without spaces",
        ),
        (
            Adapter { id_prefix: Some("x".repeat(33)), ..adapter(Preset::Stripe) },
            "id_prefix must be 1 to 32 printable ASCII characters without spaces",
        ),
        (
            Adapter { id_prefix: Some("tg:".to_owned()), ..adapter(Preset::Telegram) },
            "id_prefix needs id external: a derived id already covers the source",
        ),
        (
            Adapter {
                verification: Verification::Stripe { tolerance_seconds: 0 },
                ..adapter(Preset::Stripe)
            },
            "verification.tolerance_seconds is 0, not 1 to 3600",
        ),
        (
            Adapter {
                verification: Verification::Stripe { tolerance_seconds: 3601 },
                ..adapter(Preset::Stripe)
            },
            "verification.tolerance_seconds is 3601, not 1 to 3600",
        ),
    ] {
        assert_eq!(wrong.problem().as_deref(), Some(expected));
    }
}

/// MSG-7
#[test]
fn external_id_is_text_or_a_whole_number() {
    let mut one = adapter(Preset::Stripe);
    for (body, id) in [
        (r#"{"id":"a b"}"#, Some("a b")),
        (r#"{"id":7}"#, Some("7")),
        (r#"{"id":-7}"#, Some("-7")),
        (r#"{"id":9007199254740993}"#, Some("9007199254740993")),
        (r#"{"id":7.5}"#, None),
        (r#"{"id":""}"#, None),
        (r#"{"id":null}"#, None),
        (r#"{"id":{}}"#, None),
        (r#"{"id":"é"}"#, None),
        ("{}", None),
        ("[]", None),
        ("", None),
    ] {
        let written = one.event(&WebhookRequest { headers: &[], body: body.as_bytes() }).ok();
        let read = written.map(|event| NativeEvent::parse(&event).unwrap().id.as_str().to_owned());
        assert_eq!(read.as_deref(), id, "{body}");
    }
    assert!(refusal_text(&one, &[], br#"{"id":"7 "}"#).starts_with("invalid_id: "), "no header can carry it");
    one.id_prefix = Some("eu:".to_owned());
    assert_eq!(event(&one, &[], br#"{"id":7}"#)["eventId"], json!("eu:7"));
    let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(126));
    assert!(
        refusal_text(&one, &[], long.as_bytes()).starts_with("invalid_id: "),
        "it must fit with its prefix"
    );
    one.id_prefix = None;
    one.external_id = vec![Origin::Pointer("/entry/0/id".to_owned().try_into().unwrap())];
    assert_eq!(event(&one, &[], br#"{"entry":[{"id":"x"}]}"#)["eventId"], json!("x"));
}

/// MSG-7, CLM-1
#[test]
fn external_ids_of_several_parts_never_collide() {
    let two =
        Adapter { external_id: vec![header("x-channel"), header("x-number")], ..adapter(Preset::Github) };
    assert_eq!(
        event(&two, &[("x-channel", "a"), ("x-number", "b:c")], b"{}")["eventId"],
        json!("a:b:c"),
        "the last part may contain a colon"
    );
    let headers = [("x-channel", "a:b"), ("x-number", "c")];
    assert_eq!(
        refusal_text(&two, &headers, b"{}"),
        "invalid_id: the header x-channel must not contain a colon: colons separate the parts of the external id"
    );
    let alone = Adapter { external_id: vec![header("x-channel")], ..two };
    assert_eq!(event(&alone, &headers, b"{}")["eventId"], json!("a:b"));
}

fn signed_parts(preset: Preset) -> (Option<String>, &'static str) {
    (adapter(preset).unsigned(), adapter(preset).evidence())
}

/// MSG-4, MSG-7
#[test]
fn unsigned_parts_of_an_event_are_reported() {
    let shown = "its provider sends a secret and signs nothing";
    assert_eq!(signed_parts(Preset::Telegram), (Some(shown.to_owned()), "adapter-secret"));
    assert_eq!(signed_parts(Preset::GoogleCalendar), (Some(shown.to_owned()), "adapter-secret"));
    let of_github =
        "external_id comes from the header x-github-delivery, which its provider's signature does not cover";
    assert_eq!(signed_parts(Preset::Github), (Some(of_github.to_owned()), "adapter-body"));
    assert_eq!(signed_parts(Preset::Stripe), (None, "adapter"), "its members are metadata from the body");

    let hmac = Adapter { external_id: vec![pointer("/id")], ..adapter(Preset::Github) };
    assert_eq!(hmac.unsigned(), None, "metadata from headers needs no signature");
    let suffix = Adapter { event_type_suffix: Some(header("X-GitHub-Event")), ..hmac.clone() };
    assert!(suffix.unsigned().unwrap().starts_with("event_type_suffix comes from the header x-github-event"));
    let members = Adapter { data: DataRule::Members, ..hmac.clone() };
    assert!(members.unsigned().unwrap().starts_with("data comes from the header x-github-event"));
    let verification = Verification::StandardWebhooks { tolerance_seconds: 300 };
    let standard = Adapter { external_id: vec![header("Webhook-Id")], verification, ..hmac };
    assert_eq!(standard.unsigned(), None, "its signature covers its id");
    assert!(Adapter { external_id: vec![header("x-id")], ..standard }.unsigned().is_some());
}

/// MSG-7, MSG-10
#[test]
fn body_with_looked_up_members_is_read_completely() {
    let members = [("amount".to_owned(), pointer("/amount"))].into();
    let one = Adapter {
        external_id: vec![Origin::Header("x-id".to_owned())],
        data: DataRule::Members,
        members,
        left_out: Vec::new(),
        timestamp: None,
        ..adapter(Preset::Stripe)
    };
    let headers = [("x-id", "e-1")];
    assert_eq!(event(&one, &headers, br#"{"amount": 1.0, "x": [2]}"#)["data"], json!({ "amount": 1.0 }));
    assert_eq!(event(&one, &headers, b"")["data"], json!({}), "an empty body has no members");
    for (body, expected) in [
        (r#"{"amount":1,"amount":100000}"#, "duplicate_member: the body: "),
        (r#"{"amount":1,"x":{"a":1,"a":2}}"#, "duplicate_member: the body: "),
        (r#"{"amount":1} {"amount":2}"#, "malformed: the body: "),
        (r#"{"amount":1,"#, "malformed: the body: "),
        ("amount=1", "malformed: the body: "),
    ] {
        let refusal = refusal_text(&one, &headers, body.as_bytes());
        assert!(refusal.starts_with(expected), "{body} {refusal}");
    }
    let by_header = Adapter { members: [("id".to_owned(), Origin::Header("x-id".to_owned()))].into(), ..one };
    assert_eq!(
        event(&by_header, &headers, b"amount=1")["data"],
        json!({ "id": "e-1" }),
        "the adapter does not read the body"
    );
}

proptest! {
    /// QUA-4
    #[test]
    fn no_request_makes_an_adapter_panic(
        body in proptest::collection::vec(any::<u8>(), 0..128),
        value: String,
        edited in 0..UPDATE.len(),
        byte: u8,
    ) {
        let names = ["X-GitHub-Delivery", "X-Hub-Signature-256", "Stripe-Signature", "webhook-id", "webhook-timestamp", "webhook-signature"];
        let headers: Vec<_> = names.iter().map(|name| (*name, value.as_str())).collect();
        let mut update = UPDATE.to_vec();
        update[edited] = byte;
        for preset in Preset::ALL {
            let adapter = adapter(preset);
            for body in [&body, &update] {
                let request = WebhookRequest { headers: &headers, body };
                let _ = adapter.event(&request);
                prop_assert!(adapter.verification.verify(&request, &[secret("1234567890123456")], NOW).is_err());
            }
        }
    }

    /// MSG-7
    #[test]
    fn each_of_several_secrets_verifies_its_signatures(place in 0..3usize, body: Vec<u8>, at in -300..=300i64) {
        let secrets = ["the first secret", "the second secret", "the third secret"];
        let known: Vec<_> = secrets.iter().map(|text| secret(text)).collect();
        let header = stripe_signature(secrets[place], NOW.0 / 1000 + at, &body);
        let stripe = Verification::Stripe { tolerance_seconds: 300 };
        prop_assert_eq!(verify(&stripe, &[("stripe-signature", &header)], &body, &known), Ok(()));
        let others: Vec<_> = known.into_iter().enumerate().filter(|(index, _)| *index != place).map(|(_, secret)| secret).collect();
        prop_assert!(verify(&stripe, &[("stripe-signature", &header)], &body, &others).is_err());
    }
}
