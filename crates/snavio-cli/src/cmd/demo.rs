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
use crate::CommandResult;
use crate::output::{Output, print_line};

/// Run a temporary node, send it messages of every kind, and print each verdict.
///
/// Afterwards the node keeps running, so that you can try other commands, until Ctrl-C.
#[derive(Args)]
#[command(after_help = "Example: snavio demo
Example: snavio demo --exit
Example: snavio demo --listen 127.0.0.1:8080")]
pub(crate) struct Demo {
    /// Exit after the tour instead of keeping the node running.
    #[arg(long)]
    exit: bool,
    /// The address and port to listen on; port 0 means a free port.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
}

impl Demo {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let folder = tempfile::tempdir()?;
        let data = folder.path().join("data");
        let flags = vec![
            ("server.listen".to_owned(), self.listen.clone()),
            ("store.url".to_owned(), format!("embedded:{}", data.display())),
        ];
        let config = Config::load(&Sources { flags, ..Sources::default() })?;
        let node = Node::start(&config, false, None).await?;
        let url = format!("http://{}", node.address());
        let printer = TourPrinter { is_enabled: output == Output::Table };
        printer.print(&format!("A node is running at {url} on a temporary store in {}.\n", data.display()));
        let token = std::fs::read_to_string(&config.operator_token_file)?;
        let tour = Tour::begin(&url, token.trim(), printer).await?;
        let verdicts = tour.send_everything().await?;
        let deliveries = tour.consume().await?;
        let telemetry = tour.read_telemetry(verdicts.len() - GLOBEX_MESSAGES).await?;
        let token_file = &config.operator_token_file;
        if output == Output::Json {
            output.print_object(&json!({
                "url": url, "operator_token": token_file, "verdicts": verdicts,
                "deliveries": deliveries, "telemetry": telemetry,
            }));
        }
        if !self.exit {
            let file = token_file.display();
            printer.print(&format!(
                "\nThe node keeps running at {url} (operator token: {file}). Stop it with Ctrl-C."
            ));
            StopSignals::listen()?.wait().await;
        }
        node.stop().await;
        Ok(())
    }
}

/// Messages that the tenant globex sends: they are not in the telemetry of acme.
const GLOBEX_MESSAGES: usize = 1;

/// Prints the steps of the tour for people; with JSON output it prints nothing.
#[derive(Clone, Copy)]
struct TourPrinter {
    is_enabled: bool,
}

impl TourPrinter {
    fn print(self, line: &str) {
        if self.is_enabled {
            print_line(line);
        }
    }
}

/// The tour through a node, with two tenants and three services.
struct Tour {
    api: Api,
    billing: Credentials,
    bot: Credentials,
    stranger: Credentials,
    printer: TourPrinter,
}

impl Tour {
    async fn begin(url: &str, token: &str, printer: TourPrinter) -> Result<Self, Failure> {
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
        printer
            .print("Registered: tenants acme and globex; acme/billing may send notify-user to acme/bot.\n");
        Ok(Self { api, billing, bot, stranger, printer })
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
            ("no route: granted, but not registered", &billing, signed(&Message::new("reboot"))?),
            ("malformed: not JSON", &billing, b"{\"metadata\": ".to_vec()),
            ("too large: more than 256 KiB", &billing, signed(&huge)?),
        ];
        let mut verdicts = Vec::new();
        for (description, client, body) in steps {
            let (status, verdict) = send(client, body).await?;
            self.printer.print(&format!("  {description:<40} {status} {verdict}"));
            verdicts.push(json!({ "sent": description, "status": status, "verdict": verdict }));
        }
        Ok(verdicts)
    }

    async fn consume(&self) -> Result<Vec<Value>, Failure> {
        let bot = Client::new(self.api.clone(), self.bot.clone())?;
        let deliveries = bot.receive("bot-inbox", 10, Duration::from_secs(30), Duration::ZERO).await?;
        self.printer.print(&format!("\nacme/bot receives {} deliveries from bot-inbox:", deliveries.len()));
        let mut received = Vec::new();
        for Delivery { delivery_id, attempt, message, .. } in &deliveries {
            // The demo sends no events.
            let Some(DeliveredCommand { command, .. }) = message.as_command() else { continue };
            self.printer.print(&format!("  {delivery_id} attempt {attempt} {}", command.get()));
            received.push(json!({ "delivery_id": delivery_id, "attempt": attempt, "command": command }));
        }
        let receipts: Vec<_> = deliveries.iter().map(Delivery::receipt).collect();
        bot.acknowledge("bot-inbox", &receipts).await?;
        self.printer.print("and acknowledges them. The acknowledgements are durable.");
        Ok(received)
    }

    /// Reads acme's telemetry until each message has its record. The node commits the telemetry of refusals
    /// separately, within a quarter of a second.
    async fn read_telemetry(&self, expected: usize) -> Result<Vec<Value>, Failure> {
        let billing = Client::new(self.api.clone(), self.billing.clone())?;
        let (mut records, mut after) = (Vec::new(), json!(0));
        while records.len() < expected {
            let path = format!("/v1/telemetry?wait_seconds=5&after={after}");
            let mut page = billing.call(Method::GET, &path, None).await?;
            let Value::Array(mut items) = page["items"].take() else { break };
            if items.is_empty() {
                return Err(Failure::new(format!(
                    "the node returned {} of {expected} telemetry records within 5 s",
                    records.len()
                )));
            }
            records.append(&mut items);
            after = page["next"].take();
        }
        self.printer.print("\nThe telemetry of acme:");
        for record in &records {
            let detail =
                record.get("reason").or(record.get("path")).and_then(Value::as_str).unwrap_or_default();
            self.printer.print(&format!("  {} {detail}", record["type"].as_str().unwrap_or_default()));
        }
        Ok(records)
    }
}

/// Sends a command and returns the HTTP status with the verdict in words.
async fn send(client: &Client, body: Vec<u8>) -> Result<(u16, String), Failure> {
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
