//! `snavio demo`.

use std::time::Duration;

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::bounds;
use snavio_model::id::MessageId;
use snavio_model::message::command::NewCommand;
use snavio_model::time::{Clock, Timestamp};
use snavio_sdk::{Api, ApiError, Client, Credentials, DeliveredCommand, Delivery};
use snavio_server::config::{Config, Sources};
use snavio_server::{MachineClock, Node};

use super::Failure;
use super::serve::StopSignals;
use crate::Ended;
use crate::output::{Output, print_line};

/// Start a node on a temporary store, send it every kind of message, and watch each verdict.
///
/// Afterwards the node stays up to look at, until Ctrl-C.
///
/// Example: snavio demo --exit
#[derive(Args)]
pub(crate) struct Demo {
    /// End after the tour instead of leaving the node running.
    #[arg(long)]
    exit: bool,
    /// Where to listen; a free port without it.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
}

impl Demo {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let folder = tempfile::tempdir()?;
        let data = folder.path().join("data");
        let flags = vec![
            ("server.listen".to_owned(), self.listen.clone()),
            ("store.url".to_owned(), format!("embedded:{}", data.display())),
        ];
        let config = Config::load(&Sources { flags, ..Sources::default() })?;
        let node = Node::start(&config, false, None).await?;
        let url = format!("http://{}", node.address());
        let say = Say(output == Output::Table);
        say.line(&format!("A node is running at {url} on a temporary store in {}.\n", data.display()));
        let token = std::fs::read_to_string(&config.operator_token_file)?;
        let tour = Tour::begin(&url, token.trim(), say).await?;
        let verdicts = tour.send_everything().await?;
        let deliveries = tour.consume().await?;
        let telemetry = tour.telemetry(verdicts.len() - OF_OTHERS).await?;
        let token_file = &config.operator_token_file;
        if output == Output::Json {
            output.object(&json!({
                "url": url, "operator_token": token_file, "verdicts": verdicts,
                "deliveries": deliveries, "telemetry": telemetry,
            }));
        }
        if !self.exit {
            let place = token_file.display();
            say.line(&format!("\nLook around: {url} (operator token: {place}). Ctrl-C ends it."));
            StopSignals::listen()?.wait().await;
        }
        node.stop().await;
        Ok(())
    }
}

/// What is sent by another tenant than acme, and so is none of its telemetry.
const OF_OTHERS: usize = 1;

/// Tells the tour as it goes, to people.
#[derive(Clone, Copy)]
struct Say(bool);

impl Say {
    fn line(self, line: &str) {
        if self.0 {
            print_line(line);
        }
    }
}

/// Two tenants, three services, and a node to talk to.
struct Tour {
    api: Api,
    billing: Credentials,
    bot: Credentials,
    stranger: Credentials,
    say: Say,
}

impl Tour {
    async fn begin(url: &str, token: &str, say: Say) -> Result<Self, Failure> {
        let api = Api::new(url, None)?;
        let registry = json!({
            "tenants": [{ "name": "acme" }, { "name": "globex" }],
            "services": [{ "name": "acme/billing" }, { "name": "acme/bot" }, { "name": "globex/crm" }],
            "routes": [{
                "target": "acme/bot", "name": "notify-user", "queue": "bot-inbox",
                "dead_letter_queue": "bot-dead", "claim": { "policy": "strict" },
            }],
            "grants": [
                { "source": "acme/billing", "target": "acme/bot", "name": "notify-user" },
                { "source": "acme/billing", "target": "acme/bot", "name": "reboot" },
            ],
            "why": "the demo's cast",
        });
        let answer = api.with_token(token).call(Method::POST, "/v1/registry/apply", Some(&registry)).await?;
        let mut credentials: Vec<Credentials> = serde_json::from_value(answer["credentials"].clone())?;
        let mut next = || credentials.pop().ok_or_else(|| Failure::new("the registry gave no credentials"));
        let (stranger, bot, billing) = (next()?, next()?, next()?);
        say.line("Registered: tenants acme and globex; acme/billing may send notify-user to acme/bot.\n");
        Ok(Self { api, billing, bot, stranger, say })
    }

    async fn send_everything(&self) -> Result<Vec<Value>, Failure> {
        let billing = Client::new(self.api.clone(), self.billing.clone())?;
        let stranger = Client::new(self.api.clone(), self.stranger.clone())?;
        let message = Message::new("notify-user");
        let signed = |message: &Message| message.sign(&self.billing);
        let forged = String::from_utf8_lossy(&signed(&Message::new("notify-user"))?).replace("u-1", "u-2");
        let late = Message { timestamp: seconds_ago(120), ..Message::new("notify-user") };
        let huge = Message {
            payload: format!("\"{}\"", "x".repeat(bounds::BODY_BYTES_DEFAULT)),
            ..Message::new("notify-user")
        };
        let steps = [
            ("a signed command", &billing, signed(&message)?),
            ("the same command, sent again", &billing, signed(&message)?),
            ("another command", &billing, signed(&Message::new("notify-user"))?),
            ("forged: changed after it was signed", &billing, forged.into_bytes()),
            ("out of window: signed two minutes ago", &billing, signed(&late)?),
            (
                "not granted: from another tenant",
                &stranger,
                Message::new("notify-user").sign(&self.stranger)?,
            ),
            ("no route: granted, but nowhere to go", &billing, signed(&Message::new("reboot"))?),
            ("malformed: not JSON", &billing, b"{\"metadata\": ".to_vec()),
            ("over-size: more than 256 KiB", &billing, signed(&huge)?),
        ];
        let mut verdicts = Vec::new();
        for (what, client, body) in steps {
            let (status, verdict) = verdict(client, body).await?;
            self.say.line(&format!("  {what:<40} {status} {verdict}"));
            verdicts.push(json!({ "sent": what, "status": status, "verdict": verdict }));
        }
        Ok(verdicts)
    }

    async fn consume(&self) -> Result<Vec<Value>, Failure> {
        let bot = Client::new(self.api.clone(), self.bot.clone())?;
        let deliveries = bot.receive("bot-inbox", 10, Duration::from_secs(30), Duration::ZERO).await?;
        self.say.line(&format!("\nacme/bot receives {} deliveries from bot-inbox:", deliveries.len()));
        let mut received = Vec::new();
        for Delivery { delivery_id, attempt, message, .. } in &deliveries {
            // The demo sends commands only.
            let Some(DeliveredCommand { command, .. }) = message.as_command() else { continue };
            self.say.line(&format!("  {delivery_id} attempt {attempt} {}", command.get()));
            received.push(json!({ "delivery_id": delivery_id, "attempt": attempt, "command": command }));
        }
        let receipts: Vec<_> = deliveries.iter().map(Delivery::receipt).collect();
        bot.acknowledge("bot-inbox", &receipts).await?;
        self.say.line("and acknowledges them: they are done, durably.");
        Ok(received)
    }

    /// Telemetry of refusals rides a commit of its own within a quarter of a second: each message has its record.
    async fn telemetry(&self, expected: usize) -> Result<Vec<Value>, Failure> {
        let billing = Client::new(self.api.clone(), self.billing.clone())?;
        let (mut records, mut after) = (Vec::new(), json!(0));
        while records.len() < expected {
            let path = format!("/v1/telemetry?wait_seconds=5&after={after}");
            let mut page = billing.call(Method::GET, &path, None).await?;
            let Value::Array(mut items) = page["items"].take() else { break };
            if items.is_empty() {
                return Err(Failure::new(format!("{} of {expected} messages were told of", records.len())));
            }
            records.append(&mut items);
            after = page["next"].take();
        }
        self.say.line("\nWhat acme's telemetry says:");
        for record in &records {
            let detail =
                record.get("reason").or(record.get("path")).and_then(Value::as_str).unwrap_or_default();
            self.say.line(&format!("  {} {detail}", record["type"].as_str().unwrap_or_default()));
        }
        Ok(records)
    }
}

/// The status, and what it means in words.
async fn verdict(client: &Client, body: Vec<u8>) -> Result<(u16, String), Failure> {
    let api = client.authorized().await?;
    match api.send(Method::POST, "/v1/commands", Some(body), "application/json").await {
        Ok((status, document)) if document["duplicate"] == true => {
            Ok((status, "duplicate: nothing is dispatched".to_owned()))
        }
        Ok((status, document)) => Ok((status, format!("accepted, delivery {}", document["delivery_id"]))),
        Err(ApiError::Refused { status, reason, detail, .. }) => Ok((status, format!("{reason}: {detail}"))),
        Err(error) => Err(error.into()),
    }
}

/// A message of the demo, before it is signed.
struct Message {
    id: MessageId,
    name: &'static str,
    timestamp: String,
    payload: String,
}

impl Message {
    fn new(name: &'static str) -> Self {
        let id = MessageId::stored(&uuid::Uuid::now_v7().to_string());
        Self {
            id,
            name,
            timestamp: seconds_ago(0),
            payload: r#"{"user":"u-1","text":"your invoice is ready"}"#.to_owned(),
        }
    }

    fn sign(&self, credentials: &Credentials) -> Result<Vec<u8>, Failure> {
        let command = NewCommand {
            id: &self.id,
            timestamp: &self.timestamp,
            version_id: &credentials.hmac_version,
            source: &credentials.source,
            target: &"acme/bot".parse()?,
            name: &self.name.parse()?,
            payload: self.payload.as_bytes(),
            correlation_id: None,
        };
        Ok(command.sign(&credentials.secret()?)?)
    }
}

fn seconds_ago(seconds: u64) -> String {
    MachineClock::after(Timestamp(0)).now().minus(Duration::from_secs(seconds)).to_string()
}
