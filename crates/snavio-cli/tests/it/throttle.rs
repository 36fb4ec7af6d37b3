//! Failed authentication is throttled, and correct credentials from the same address are not.

use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::bounds;
use snavio_sdk::{ApiError, Command};
use tokio::time::Instant;

use crate::node::{Draft, Node, new_id, post, post_batch, verdict};
use crate::wire::http;

/// PIP-1
#[tokio::test]
async fn bad_tokens_are_throttled_and_good_ones_are_not() {
    let node = Node::start();
    let cast = node.cast().await;
    let billing = node.client(&cast.billing);
    assert_eq!(post(&billing, Draft::new("notify", &new_id()).sign(&cast.billing)).await.0, 202);
    let unused = node.token(&cast.bot).await;
    let guess = async |token: &str| {
        let api = node.api().with_token(token);
        let (status, problem) = verdict(api.send(Method::GET, "/v1/registry", None, "").await);
        (status, problem["reason"].as_str().unwrap_or_default().to_owned(), problem)
    };
    for n in 0..bounds::AUTH_FAILURES_MAX {
        assert_eq!(guess(&format!("snavop_{n}")).await.0, 401);
    }
    let (status, reason, problem) = guess("snavop_more").await;
    assert_eq!((status, reason.as_str()), (429, "auth_throttled"));
    let wait = problem["retry_after_ms"].as_u64().unwrap();
    assert!((1_000..=60_000).contains(&wait), "{wait}");

    // The same address with known credentials: the operator's token, and a service's token that was used
    // before.
    assert!(node.operator().call(Method::GET, "/v1/status", None).await.is_ok());
    assert_eq!(post(&billing, Draft::new("notify", &new_id()).sign(&cast.billing)).await.0, 202);
    // Correct credentials that the node has not seen before.
    assert_eq!(guess(&unused).await.0, 200);
    assert!(node.client(&cast.bot).authorized().await.is_ok());
}

/// PIP-1
#[tokio::test]
async fn correct_client_secret_gets_token_after_any_guesses() {
    let node = Node::start();
    let cast = node.cast().await;
    let mut wrong = cast.bot.clone();
    wrong.client_secret = cast.billing.client_secret.clone();
    let guess = async || match node.client(&wrong).authorized().await {
        Err(ApiError::Refused { status, .. }) => status,
        _ => panic!("the secret is wrong"),
    };
    for n in 0..2 * bounds::AUTH_FAILURES_MAX {
        assert_eq!(guess().await, if n < bounds::AUTH_FAILURES_MAX { 401 } else { 429 });
    }
    for right in [&cast.bot, &cast.billing] {
        assert!(node.client(right).authorized().await.is_ok(), "{}", right.source);
    }
    assert_eq!(guess().await, 429, "wrong credentials are still throttled");
}

/// PIP-1
#[tokio::test]
async fn wrong_signatures_throttle_their_sender_alone() {
    let node = Node::start();
    let cast = node.cast().await;
    let grants = json!({ "grants": [{ "source": "acme/bot", "target": "acme/bot", "name": "notify" }] });
    node.apply(&grants).await;
    let (billing, bot) = (node.client(&cast.billing), node.client(&cast.bot));
    // Signed with the other service's key.
    let forgeries = (0..bounds::SIGNATURE_FAILURES_MAX + 50).map(|_| Draft::new("notify", &new_id()));
    let forgeries: Vec<_> = forgeries.map(|draft| draft.sign(&cast.bot)).collect();
    let forged = Draft::new("pay", &new_id()).sign(&cast.bot);
    let results = post_batch(&billing, &forgeries).await.unwrap();
    let (refused, throttled) = results.split_at(bounds::SIGNATURE_FAILURES_MAX as usize);
    assert!(
        refused.iter().all(|result| result["status"] == 401 && result["reason"] == "hmac_invalid"),
        "{refused:?}"
    );
    assert!(
        throttled.iter().all(|result| result["status"] == 429 && result["reason"] == "signature_throttled")
    );
    let (status, problem) = post(&billing, forged.clone()).await;
    assert_eq!((status, &problem["reason"]), (429, &json!("signature_throttled")), "{problem}");
    let advice = problem["advice"].as_str().unwrap();
    assert!(advice.starts_with("waiting alone does not help"), "{problem}");
    let unknown = cast.billing.with_key("hmac-v9".parse().unwrap(), cast.billing.hmac_secret.clone());
    let mut malformed: Value = serde_json::from_slice(&forged).unwrap();
    malformed["metadata"]["hmac"] = "AB".into();
    for (body, last) in [
        (Draft::new("pay", &new_id()).sign(&unknown), "names no key of this service"),
        (malformed.to_string().into_bytes(), "must be 64 lower-case hex digits"),
    ] {
        let (status, problem) = post(&billing, body).await;
        assert_eq!((status, &problem["reason"]), (429, &json!("signature_throttled")), "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        let (_, named) = detail.split_once("; the last: ").unwrap();
        assert!(named.contains(last), "{problem}");
    }
    let wait = problem["retry_after_ms"].as_u64().unwrap();
    assert!((1..=60_000).contains(&wait), "{problem}");

    // Correct signatures of the same sender are accepted, and another sender's wrong signature gets its own
    // reason.
    assert_eq!(post(&billing, Draft::new("notify", &new_id()).sign(&cast.billing)).await.0, 202);
    assert_eq!(post(&bot, Draft::new("notify", &new_id()).sign(&cast.bot)).await.0, 202);
    let (status, problem) = post(&bot, Draft::new("notify", &new_id()).sign(&cast.billing)).await;
    assert_eq!((status, &problem["reason"]), (401, &json!("hmac_invalid")), "{problem}");
}

/// PIP-1
#[tokio::test]
async fn unknown_keys_are_throttled_like_wrong_signatures() {
    let node = Node::start();
    let cast = node.cast().await;
    let billing = node.client(&cast.billing);
    let unknown = cast.billing.with_key("hmac-v9".parse().unwrap(), cast.billing.hmac_secret.clone());
    let sent = 0..bounds::SIGNATURE_FAILURES_MAX + 1;
    let sent: Vec<_> = sent.map(|_| Draft::new("notify", &new_id()).sign(&unknown)).collect();
    let results = post_batch(&billing, &sent).await.unwrap();
    let (last, refused) = results.split_last().unwrap();
    assert!(refused.iter().all(|entry| entry["reason"] == "key_unknown"), "{refused:?}");
    assert_eq!((&last["status"], &last["reason"]), (&json!(429), &json!("signature_throttled")));

    // The client returns the refusal at once instead of retries.
    let client = node.client(&unknown).without_following();
    let command = Command::new("bot".parse().unwrap(), "notify".parse().unwrap(), b"{}".to_vec());
    let asked = Instant::now();
    let Err(ApiError::Refused { status, reason, .. }) = client.send(&command).await else {
        panic!("its key is unknown");
    };
    assert_eq!((status, reason.as_str()), (429, "signature_throttled"));
    assert!(asked.elapsed() < bounds::AUTH_FAILURES_WINDOW / 2, "{:?}", asked.elapsed());
    // A client that follows its keys fetches the current one.
    assert!(node.client(&unknown).send(&command).await.is_ok());
}

/// PIP-1
#[tokio::test]
async fn bad_client_secrets_are_throttled_with_a_hint() {
    let node = Node::start();
    let client = http(&node);
    let form = "grant_type=client_credentials&client_id=snavcl_x&client_secret=guess";
    let guess = client.post(format!("{}/v1/token", node.url())).body(form);
    let guess = guess.header("content-type", "application/x-www-form-urlencoded");
    for _ in 0..bounds::AUTH_FAILURES_MAX {
        assert_eq!(guess.try_clone().unwrap().send().await.unwrap().status(), 401);
    }
    let answer = guess.send().await.unwrap();
    assert_eq!(answer.status(), 429);
    let after: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&after));
}

/// PIP-1
#[tokio::test]
async fn unauthenticated_request_always_gets_401() {
    let node = Node::start();
    for _ in 0..2 * bounds::AUTH_FAILURES_MAX {
        assert_eq!(verdict(node.api().send(Method::GET, "/v1/registry", None, "").await).0, 401);
    }
}
