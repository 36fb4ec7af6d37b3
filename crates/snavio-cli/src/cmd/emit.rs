//! `snavio emit`.

use std::io::Read;

use clap::Args;
use serde_json::Value;
use snavio_model::adapter::event_id;
use snavio_model::id::MessageId;
use snavio_model::message::trace::CorrelationId;
use snavio_model::name::{CommandName, EventVersion, InvalidName, TargetText};
use snavio_sdk::{ApiError, Command, Event};

use super::Failure;
use super::keys::ask_operator;
use crate::Ended;
use crate::connection::AsService;
use crate::output::{Output, member_as_it_came};

/// Send a command, or with --event an event, signed and authenticated like any client's.
///
/// Example: snavio emit -c credentials/acme/billing.json --target acme/discord-bot --name notify-user '{"user":"u-1"}'
///
/// Example: snavio emit -c credentials/acme/shop.json --event order.paid '{"order":7}'
///
/// Example: snavio emit -c credentials/acme/shop.json --event order.paid --external-id order-7 '{"order":7}'
#[derive(Args)]
pub(crate) struct Emit {
    #[command(flatten)]
    service: AsService,
    /// The service a command goes to: tenant/service, or service alone within your own tenant.
    #[arg(long, required_unless_present = "event")]
    target: Option<TargetText>,
    /// The command's name.
    #[arg(long, required_unless_present = "event")]
    name: Option<CommandName>,
    /// The command's payload, or the event's data, in JSON, or - to read it from standard input.
    #[arg(allow_negative_numbers = true)]
    payload: String,
    /// The id; a new time-ordered one without it. A command's is a UUID, an event's 1 to 128 printable ASCII characters.
    /// Use the same for a retry.
    #[arg(long)]
    id: Option<String>,
    /// The journey it belongs to.
    #[arg(long, value_parser = correlation_id)]
    correlation_id: Option<CorrelationId>,
    #[command(flatten)]
    event: EventArguments,
}

/// What an event consists of, besides id and journey.
#[derive(Args)]
struct EventArguments {
    /// Send an event of this type, which is one of the service's own.
    #[arg(long, value_parser = event_type, conflicts_with_all = ["target", "name"])]
    event: Option<CommandName>,
    /// When it happened, RFC 3339; now without it.
    #[arg(long, requires = "event")]
    timestamp: Option<String>,
    /// The version of its type, for example 1.0; the type's own without it.
    #[arg(long, requires = "event")]
    event_version: Option<EventVersion>,
    /// What else belongs to it, as a JSON object.
    #[arg(long, requires = "event")]
    metadata: Option<String>,
    /// Your own id for it, of any text: the event's id is made from this and the data, so that the same again is a
    /// duplicate.
    #[arg(long, requires = "event", conflicts_with = "id")]
    external_id: Option<String>,
}

/// Who makes ids from content on the command line (MSG-7).
const ID_SOURCE: &str = "cli";

/// What a message consists of.
#[derive(Args)]
pub(crate) struct MessageArguments {
    /// The service it goes to: tenant/service, or service alone within your own tenant.
    #[arg(long)]
    target: TargetText,
    /// The command's name.
    #[arg(long)]
    name: CommandName,
    /// The id, a UUID; a new time-ordered one without it. Use the same for a retry.
    #[arg(long, value_parser = id)]
    id: Option<MessageId>,
    /// The journey it belongs to.
    #[arg(long, value_parser = correlation_id)]
    correlation_id: Option<CorrelationId>,
    /// The payload in JSON, or - to read it from standard input.
    payload: String,
}

impl MessageArguments {
    pub(crate) fn command(self) -> Result<Command, Failure> {
        let mut command = Command::new(self.target, self.name, content(self.payload)?);
        if let Some(id) = self.id {
            command.id = id;
        }
        command.correlation = self.correlation_id;
        Ok(command)
    }
}

/// What was given, or what comes on standard input.
fn content(given: String) -> Result<Vec<u8>, Failure> {
    if given != "-" {
        return Ok(given.into_bytes());
    }
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text)?;
    Ok(text)
}

fn event_type(text: &str) -> Result<CommandName, InvalidName> {
    CommandName::event_type(text)
}

fn id(text: &str) -> Result<MessageId, &'static str> {
    MessageId::uuid(text).ok_or("an id is a hyphenated UUID that is not nil")
}

fn correlation_id(text: &str) -> Result<CorrelationId, &'static str> {
    CorrelationId::new(text).ok_or("a correlation id is 1 to 128 printable ASCII characters")
}

/// What is sent.
enum Sent {
    Command(Command),
    Event(Event),
}

impl Sent {
    fn id(&self) -> &str {
        match self {
            Self::Command(command) => command.id.as_str(),
            Self::Event(event) => event.id.as_str(),
        }
    }
}

impl Emit {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let (client, file) = (self.service.client()?, self.service.file()?.to_owned());
        let sent = self.sent()?;
        let answer = match &sent {
            Sent::Command(command) => client.send(command).await,
            Sent::Event(event) => client.send_event(event).await,
        };
        let answer = answer.map_err(|error| {
            let (is_of_the_key, advice) = (error.is_of_the_key(), advice(&error, sent.id()));
            let failure = advice.iter().fold(Failure::from(error), |it, advice| it.with_advice(advice));
            match is_of_the_key {
                true => failure.with_advice(&ask_operator(&client.credentials().source, &file)),
                false => failure,
            }
        })?;
        output.object_as_it_came(&answer.text);
        Ok(())
    }

    fn sent(self) -> Result<Sent, Failure> {
        let correlation_id = self.correlation_id;
        if let Some(event_type) = self.event.event {
            let data = content(self.payload)?;
            let made = self.event.external_id.as_deref().map(|it| event_id(ID_SOURCE, it, &data));
            let wrong = |fault| Failure::misuse(format!("the event's data: {fault}"));
            let made = made.transpose().map_err(wrong)?;
            let mut event = Event::new(event_type, data);
            event.id = made.unwrap_or(event.id);
            if let Some(text) = &self.id {
                let wrong = || Failure::misuse(format!("an event's id {}", MessageId::EVENT_RULE));
                event.id = MessageId::event(text).ok_or_else(wrong)?;
            }
            event.timestamp = self.event.timestamp;
            event.version = self.event.event_version;
            event.metadata = self.event.metadata.map(String::into_bytes);
            event.correlation = correlation_id;
            return Ok(Sent::Event(event));
        }
        let (Some(target), Some(name)) = (self.target, self.name) else {
            return Err(Failure::misuse("name a command's --target and --name, or an --event"));
        };
        let id = self.id.as_deref().map(id).transpose().map_err(Failure::misuse)?;
        let arguments = MessageArguments { target, name, id, correlation_id, payload: self.payload };
        Ok(Sent::Command(arguments.command()?))
    }
}

/// What there is to know and to do about a message that was not taken.
fn advice(error: &ApiError, id: &str) -> Vec<String> {
    let again = || format!("its id is {id}: a retry must use the same, --id {id}");
    let ApiError::Refused { reason, document, text: told, .. } = error else {
        return if error.is_retryable() { vec![again()] } else { Vec::new() };
    };
    let text = |member: &str| document[member].as_str().map(str::to_owned);
    // It was taken and failed for good: what the processor said then is all there will be.
    if error.is_final_failure() {
        let answered = match (member_as_it_came(told, "response"), &document["response_base64"]) {
            (None, Value::Null) => None,
            (None, base64) => Some(format!("its processor answered, in base64: {base64}")),
            (Some(response), _) => Some(format!("its processor answered: {response}")),
        };
        let over = format!("{id} has failed for good, and sent again it is answered the same");
        return answered.into_iter().chain([over]).collect();
    }
    let numbers = document["number"].as_i64().zip(document["last"].as_i64());
    let numbers = numbers.map(|(number, last)| format!("its number is {number}, and {last} was processed"));
    let of_conflict =
        (reason == "conflict").then(|| format!("another content than that of {id} needs another id"));
    // What says when to come back may go through later, and what does not know must be asked again.
    let is_unknown = document["reason"].is_string() && document["accepted"].is_null();
    let again = (error.is_retryable() || error.retry_after().is_some() || is_unknown).then(again);
    numbers.into_iter().chain(of_conflict).chain(text("advice")).chain(again).collect()
}
