//! A client against a server that does what no node does: it redirects, or forgets the tokens it gave.

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

/// Answers one request per connection with what the script says, and tells what was asked.
fn serve(script: Vec<String>) -> (String, JoinHandle<Vec<String>>) {
    serve_at(Ipv4Addr::LOCALHOST.into(), script)
}

fn serve_at(address: IpAddr, script: Vec<String>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = std::thread::spawn(move || {
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
    (url, asked)
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}")
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
async fn a_token_that_is_not_taken_any_more_is_renewed_once() {
    let refused = || answer("401 x", "", r#"{"reason":"unauthenticated"}"#);
    // Others at its address used wrong ones.
    let throttled = || answer("429 x", "Retry-After: 60\r\n", r#"{"reason":"auth_throttled"}"#);
    let token = || answer("200 x", "", TOKEN);
    for refused in [refused(), throttled()] {
        let (url, asked) = serve(vec![token(), refused, token(), answer("200 x", "", "{}")]);
        client(&url).call(Method::GET, "/v1/telemetry", None).await.expect("the second token is taken");
        assert_eq!(asked.join().unwrap().len(), 4);
    }

    let (url, asked) = serve(vec![token(), refused(), token(), refused()]);
    let ended = client(&url).call(Method::GET, "/v1/telemetry", None).await;
    assert!(matches!(ended, Err(ApiError::Refused { status: 401, .. })), "{ended:?}");
    asked.join().unwrap();
}

/// INT-1
#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (url, asked) = serve(vec![answer("307 x", "Location: /elsewhere\r\n", "")]);
    let ended =
        Api::new(&url, None).unwrap().with_token("secret").call(Method::GET, "/v1/status", None).await;
    assert!(matches!(ended, Err(ApiError::Refused { status: 307, .. })), "{ended:?}");
    let [asked] = <[String; 1]>::try_from(asked.join().unwrap()).unwrap();
    assert!(asked.starts_with("GET /v1/status HTTP/1.1\r\n"), "{asked}");
}

/// REG-11: who holds back what is signed on an open network could use it first, where it is good.
#[tokio::test]
async fn a_client_signs_nothing_for_its_configuration_on_an_open_network() {
    let token = || answer("200 x", "", TOKEN);
    let told = || answer("200 x", "", r#"{"withheld":"the request is not signed"}"#);
    for (address, is_signed) in [(Ipv4Addr::LOCALHOST.into(), true), (own_address(), false)] {
        let (url, asked) = serve_at(address, vec![token(), told()]);
        let ended = client(&url).fetch_key().await;
        let asked = asked.join().unwrap().remove(1);
        assert!(asked.starts_with("GET /v1/tenant-config "), "{asked}");
        assert_eq!(asked.contains("webhook-signature"), is_signed, "{asked}");
        let why = if is_signed { "the request is not signed" } else { "ask over TLS" };
        assert!(matches!(&ended, Err(ApiError::Withheld(told)) if told.contains(why)), "{ended:?}");
    }
}

/// CLM-10
#[tokio::test]
async fn a_receiver_waits_out_a_gateway_that_is_away_and_ends_at_one_that_refuses_it() {
    let page = || answer("200 x", "", r#"{"deliveries":[]}"#);
    let busy = answer("503 x", "Retry-After: 1\r\n", r#"{"reason":"unavailable"}"#);
    let foreign = answer("404 x", "", r#"{"reason":"not_found"}"#);
    let hung_up = String::new();
    let garbled = answer("200 x", "", "<html>");
    let script = vec![answer("200 x", "", TOKEN), page(), busy, hung_up, garbled, page(), foreign];
    let (url, asked) = serve(script);
    let receiver = Receiver::new(Arc::new(client(&url)), "inbox".parse().unwrap());
    let began = tokio::time::Instant::now();
    let ended = receiver.run(async |_| Ok::<_, ApiError>(()), std::future::pending()).await;
    assert!(matches!(ended, Err(ApiError::Refused { status: 404, .. })), "{ended:?}");
    assert!(began.elapsed() >= Duration::from_secs(1), "it was asked to wait for a second");
    assert_eq!(asked.join().unwrap().len(), 7);
}
