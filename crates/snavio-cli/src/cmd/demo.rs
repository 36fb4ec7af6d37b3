//! `snavio demo`.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::command::NewCommand;
use snavio_model::id::MessageId;
use snavio_model::limits;
use snavio_model::time::{Clock, Timestamp};
use snavio_sdk::{Api, ApiError, Client, Credentials, Delivery};
use snavio_server::config::{Config, Sources};
use snavio_server::{MachineClock, Node};

use super::{Failure, serve::StopSignals};
use crate::Ended;

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
    pub(crate) async fn run(self) -> Ended {
        let folder = tempfile::tempdir()?;
        let data = folder.path().join("data");
        let flags = vec![
            ("server.listen".to_owned(), self.listen.clone()),
            ("store.url".to_owned(), format!("embedded:{}", data.display())),
        ];
        let config = Config::load(&Sources { flags, ..Sources::default() })?;
        let node = Node::start(&config, false, None).await?;
        let url = format!("http://{}", node.address());
        say(&format!("A node is running at {url} on a temporary store in {}.\n", data.display()));
        let token = std::fs::read_to_string(&config.operator_token_file)?;
        let tour = Tour::begin(&url, token.trim()).await?;
        tour.send_everything().await?;
        tour.consume().await?;
        tour.telemetry().await?;
        if !self.exit {
            say(&format!(
                "\nLook around: {url} (operator token: {}). Ctrl-C ends it.",
                config.operator_token_file.display()
            ));
            StopSignals::listen()?.wait().await;
        }
        node.stop().await;
        Ok(())
    }
}

fn say(line: &str) {
    // Whoever stopped reading does not need the rest.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Two tenants, three services, and a node to talk to.
struct Tour {
    api: Api,
    billing: Credentials,
    bot: Credentials,
    stranger: Credentials,
}

impl Tour {
    async fn begin(url: &str, token: &str) -> Result<Self, Failure> {
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
        say("Registered: tenants acme and globex; acme/billing may send notify-user to acme/bot.\n");
        Ok(Self { api, billing, bot, stranger })
    }

    async fn send_everything(&self) -> Result<(), Failure> {
        let billing = Client::new(self.api.clone(), self.billing.clone())?;
        let stranger = Client::new(self.api.clone(), self.stranger.clone())?;
        let message = Message::new("notify-user");
        let signed = |message: &Message| message.sign(&self.billing);
        let forged = String::from_utf8_lossy(&signed(&Message::new("notify-user"))?).replace("u-1", "u-2");
        let late = Message { timestamp: seconds_ago(120), ..Message::new("notify-user") };
        let huge = Message {
            payload: format!("\"{}\"", "x".repeat(limits::BODY_BYTES_DEFAULT)),
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
        for (what, client, body) in steps {
            say(&format!("  {what:<40} {}", verdict(client, body).await?));
        }
        Ok(())
    }

    async fn consume(&self) -> Result<(), Failure> {
        let bot = Client::new(self.api.clone(), self.bot.clone())?;
        let deliveries = bot.receive("bot-inbox", 10, Duration::from_secs(30), Duration::ZERO).await?;
        say(&format!("\nacme/bot receives {} deliveries from bot-inbox:", deliveries.len()));
        for delivery in &deliveries {
            say(&format!(
                "  {} attempt {} {}",
                delivery.delivery_id,
                delivery.attempt,
                delivery.message.command.get()
            ));
        }
        let receipts: Vec<_> = deliveries.iter().map(Delivery::receipt).collect();
        bot.acknowledge("bot-inbox", &receipts).await?;
        say("and acknowledges them: they are done, durably.");
        Ok(())
    }

    async fn telemetry(&self) -> Result<(), Failure> {
        let billing = Client::new(self.api.clone(), self.billing.clone())?;
        // Telemetry of refusals rides a commit of its own within a quarter of a second: wait for its last record.
        let last = "/v1/telemetry?wait_seconds=5&type=snavio.command.failed";
        billing.call(Method::GET, last, None).await?;
        let page = billing.call(Method::GET, "/v1/telemetry", None).await?;
        say("\nWhat acme's telemetry says:");
        for record in page["items"].as_array().into_iter().flatten() {
            let detail =
                record.get("reason").or(record.get("path")).and_then(Value::as_str).unwrap_or_default();
            say(&format!("  {} {detail}", record["type"].as_str().unwrap_or_default()));
        }
        Ok(())
    }
}

async fn verdict(client: &Client, body: Vec<u8>) -> Result<String, Failure> {
    let api = client.authorized().await?;
    match api.send(Method::POST, "/v1/commands", Some(body), "application/json").await {
        Ok((status, document)) if document["duplicate"] == true => {
            Ok(format!("{status} duplicate: nothing is dispatched"))
        }
        Ok((status, document)) => Ok(format!("{status} accepted, delivery {}", document["delivery_id"])),
        Err(ApiError::Refused { status, reason, detail, .. }) => Ok(format!("{status} {reason}: {detail}")),
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
