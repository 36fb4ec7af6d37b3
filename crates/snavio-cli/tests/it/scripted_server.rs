//! Clients against a scripted server that does things no node does: it redirects, or refuses tokens it has
//! issued.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use snavio_sdk::{Api, ApiError, Client, Receiver};

use crate::keys::own_address;

const TOKEN: &str = r#"{"access_token":"t","expires_in":600}"#;

/// Answers one request per connection by the script. The thread returns the heads of the requests.
fn serve(script: Vec<String>) -> (String, JoinHandle<Vec<String>>) {
    serve_at(Ipv4Addr::LOCALHOST.into(), script)
}

fn serve_at(address: IpAddr, script: Vec<String>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = std::thread::spawn(move || {
        let answer = |answer: String| {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(&stream);
            let (mut head, mut line, mut length) = (String::new(), String::new(), 0);
            while reader.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
                    length = value.trim().parse().unwrap();
                }
                head.push_str(&line);
                line.clear();
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            (&stream).write_all(answer.as_bytes()).unwrap();
            head
        };
        script.into_iter().map(answer).collect()
    });
    (url, requests)
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn token() -> String {
    answer("200 x", "", TOKEN)
}

fn client(url: &str) -> Client {
    let credentials = json!({
        "source": "acme/billing", "client_id": "c", "client_secret": "s", "hmac_version": "hmac-v1",
        "hmac_secret": format!("whsec_{}=", "A".repeat(43)),
    });
    Client::new(Api::new(url, None).unwrap(), serde_json::from_value(credentials).unwrap())
        .unwrap()
        .without_following()
}

/// INT-1
#[tokio::test]
async fn refused_token_is_renewed_once() {
    let refused = answer("401 x", "", r#"{"reason":"unauthenticated"}"#);
    // Failed attempts of other callers from the client's address throttle it, too.
    let throttled = answer("429 x", "Retry-After: 60\r\n", r#"{"reason":"auth_throttled"}"#);
    for refused in [refused.clone(), throttled] {
        let (url, requests) = serve(vec![token(), refused, token(), answer("200 x", "", "{}")]);
        client(&url).call(Method::GET, "/v1/telemetry", None).await.expect("the second token is taken");
        assert_eq!(requests.join().unwrap().len(), 4);
    }

    let (url, requests) = serve(vec![token(), refused.clone(), token(), refused]);
    let ended = client(&url).call(Method::GET, "/v1/telemetry", None).await;
    assert!(matches!(ended, Err(ApiError::Refused { status: 401, .. })), "{ended:?}");
    requests.join().unwrap();
}

/// INT-1
#[tokio::test]
async fn redirect_is_not_followed() {
    let (url, requests) = serve(vec![answer("307 x", "Location: /elsewhere\r\n", "")]);
    let ended =
        Api::new(&url, None).unwrap().with_token("secret").call(Method::GET, "/v1/status", None).await;
    assert!(matches!(ended, Err(ApiError::Refused { status: 307, .. })), "{ended:?}");
    let [requests] = <[String; 1]>::try_from(requests.join().unwrap()).unwrap();
    assert!(requests.starts_with("GET /v1/status HTTP/1.1\r\n"), "{requests}");
}

/// REG-11: on an open network an attacker could hold back a signed request and use it on the gateway's own
/// machine, where it yields the secret. So the client does not sign it.
#[tokio::test]
async fn client_does_not_sign_config_request_on_open_network() {
    let withheld = answer("200 x", "", r#"{"withheld":"the request is not signed"}"#);
    for (address, is_signed) in [(Ipv4Addr::LOCALHOST.into(), true), (own_address(), false)] {
        let (url, requests) = serve_at(address, vec![token(), withheld.clone()]);
        let ended = client(&url).fetch_key().await;
        let requests = requests.join().unwrap().remove(1);
        assert!(requests.starts_with("GET /v1/tenant-config "), "{requests}");
        assert_eq!(requests.contains("webhook-signature"), is_signed, "{requests}");
        let expected = if is_signed { "the request is not signed" } else { "use https" };
        assert!(matches!(&ended, Err(ApiError::Withheld(reason)) if reason.contains(expected)), "{ended:?}");
    }
}

/// CLM-10
#[tokio::test]
async fn receiver_retries_unavailable_gateway_and_ends_at_a_refusal() {
    let page = answer("200 x", "", r#"{"deliveries":[]}"#);
    let busy = answer("503 x", "Retry-After: 1\r\n", r#"{"reason":"unavailable"}"#);
    let foreign = answer("404 x", "", r#"{"reason":"not_found"}"#);
    let hung_up = String::new();
    let garbled = answer("200 x", "", "<html>");
    let script = vec![token(), page.clone(), busy, hung_up, garbled, page, foreign];
    let (url, requests) = serve(script);
    let receiver = Receiver::new(Arc::new(client(&url)), "inbox".parse().unwrap());
    let began = tokio::time::Instant::now();
    let ended = receiver.run(async |_| Ok::<_, ApiError>(()), std::future::pending()).await;
    assert!(matches!(ended, Err(ApiError::Refused { status: 404, .. })), "{ended:?}");
    assert!(began.elapsed() >= Duration::from_secs(1), "it was asked to wait for a second");
    assert_eq!(requests.join().unwrap().len(), 7);
}
