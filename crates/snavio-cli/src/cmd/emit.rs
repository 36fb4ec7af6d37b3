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
use super::keys::ended_key_advice;
use crate::CommandResult;
use crate::connection::ServiceConnection;
use crate::output::{Output, raw_member};

/// Send a command or, with --event, an event as a service.
///
/// The command signs and authenticates the message as the client libraries do.
#[derive(Args)]
#[command(after_help = "\
Example: snavio emit -c billing.json --target acme/bot --name notify '{\"user\":\"u-1\"}'
Example: snavio emit -c shop.json --event order.paid '{\"order\":7}'
Example: snavio emit -c shop.json --event order.paid --external-id order-7 '{\"order\":7}'
Example: snavio emit -c billing.json --target bot --name notify - < payload.json")]
pub(crate) struct Emit {
    #[command(flatten)]
    service: ServiceConnection,
    /// The target of the command: tenant/service, or only the service if it is in your own tenant.
    #[arg(long, required_unless_present = "event")]
    target: Option<TargetText>,
    /// The name of the command.
    #[arg(long, required_unless_present = "event")]
    name: Option<CommandName>,
    /// The payload of the command or the data of the event in JSON; - reads it from standard input.
    #[arg(allow_negative_numbers = true)]
    payload: String,
    /// The id of the message; without it, a new time-ordered UUID.
    ///
    /// The id of a command is a UUID, the id of an event 1 to 128 printable ASCII characters. Use the same id
    /// for a retry.
    #[arg(long)]
    id: Option<String>,
    /// The correlation id of the message.
    #[arg(long, value_parser = correlation_id)]
    correlation_id: Option<CorrelationId>,
    #[command(flatten)]
    event: EventArguments,
}

/// The parts of an event other than its id and its correlation id.
#[derive(Args)]
struct EventArguments {
    /// Send an event of this type; the service must own the type.
    #[arg(long, value_parser = event_type, conflicts_with_all = ["target", "name"])]
    event: Option<CommandName>,
    /// The time of the event in RFC 3339; without it, now.
    #[arg(long, requires = "event")]
    timestamp: Option<String>,
    /// The version of the event type, for example 1.0; without it, the version in the registry.
    #[arg(long, requires = "event")]
    event_version: Option<EventVersion>,
    /// The metadata of the event, as a JSON object.
    #[arg(long, requires = "event")]
    metadata: Option<String>,
    /// Your own id for the event, any text.
    ///
    /// The id of the event is derived from this text and the data. The same text with the same data is
    /// therefore a duplicate.
    #[arg(long, requires = "event", conflicts_with = "id")]
    external_id: Option<String>,
}

/// The source in ids that the command line derives from content (MSG-7).
const ID_SOURCE: &str = "cli";

/// The parts of a command.
#[derive(Args)]
pub(crate) struct MessageArguments {
    /// The target of the command: tenant/service, or only the service if it is in your own tenant.
    #[arg(long)]
    target: TargetText,
    /// The name of the command.
    #[arg(long)]
    name: CommandName,
    /// The id of the message, a UUID; without it, a new time-ordered one. Use the same id for a retry.
    #[arg(long, value_parser = id)]
    id: Option<MessageId>,
    /// The correlation id of the message.
    #[arg(long, value_parser = correlation_id)]
    correlation_id: Option<CorrelationId>,
    /// The payload in JSON; - reads it from standard input.
    payload: String,
}

impl MessageArguments {
    pub(crate) fn command(self) -> Result<Command, Failure> {
        let mut command = Command::new(self.target, self.name, read_content(self.payload)?);
        if let Some(id) = self.id {
            command.id = id;
        }
        command.correlation = self.correlation_id;
        Ok(command)
    }
}

/// The bytes of an argument; `-` reads them from standard input.
fn read_content(argument: String) -> Result<Vec<u8>, Failure> {
    if argument != "-" {
        return Ok(argument.into_bytes());
    }
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text)?;
    Ok(text)
}

fn event_type(text: &str) -> Result<CommandName, InvalidName> {
    CommandName::event_type(text)
}

fn id(text: &str) -> Result<MessageId, &'static str> {
    MessageId::uuid(text).ok_or("an id must be a UUID with hyphens, and not the nil UUID")
}

fn correlation_id(text: &str) -> Result<CorrelationId, &'static str> {
    CorrelationId::new(text).ok_or("a correlation id must be 1 to 128 printable ASCII characters")
}

enum OutgoingMessage {
    Command(Command),
    Event(Event),
}

impl OutgoingMessage {
    fn id(&self) -> &str {
        match self {
            Self::Command(command) => command.id.as_str(),
            Self::Event(event) => event.id.as_str(),
        }
    }
}

impl Emit {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let (client, file) = (self.service.client()?, self.service.file()?.to_owned());
        let message = self.message()?;
        let answer = match &message {
            OutgoingMessage::Command(command) => client.send(command).await,
            OutgoingMessage::Event(event) => client.send_event(event).await,
        };
        let answer = answer.map_err(|error| {
            let (has_key_ended, advice) = (error.is_of_the_key(), advice(&error, message.id()));
            let failure =
                advice.iter().fold(Failure::from(error), |failure, advice| failure.with_advice(advice));
            match has_key_ended {
                true => failure.with_advice(&ended_key_advice(&client.credentials().source, &file)),
                false => failure,
            }
        })?;
        output.print_object_verbatim(&answer.text);
        Ok(())
    }

    fn message(self) -> Result<OutgoingMessage, Failure> {
        let correlation_id = self.correlation_id;
        if let Some(event_type) = self.event.event {
            let data = read_content(self.payload)?;
            let external_id = self.event.external_id.as_deref();
            let derived_id =
                external_id.map(|external_id| event_id(ID_SOURCE, external_id, &data)).transpose();
            let derived_id = derived_id
                .map_err(|fault| Failure::misuse(format!("the event's data is not valid: {fault}")))?;
            let mut event = Event::new(event_type, data);
            event.id = derived_id.unwrap_or(event.id);
            if let Some(text) = &self.id {
                event.id = MessageId::event(text).ok_or_else(|| {
                    Failure::misuse(format!("--id is {text:?}, but an event's id {}", MessageId::EVENT_RULE))
                })?;
            }
            event.timestamp = self.event.timestamp;
            event.version = self.event.event_version;
            event.metadata = self.event.metadata.map(String::into_bytes);
            event.correlation = correlation_id;
            return Ok(OutgoingMessage::Event(event));
        }
        let (Some(target), Some(name)) = (self.target, self.name) else {
            return Err(Failure::misuse(
                "no message to send: give --target and --name for a command, or --event for an event",
            ));
        };
        let id = self.id.as_deref().map(id).transpose().map_err(Failure::misuse)?;
        let arguments = MessageArguments { target, name, id, correlation_id, payload: self.payload };
        Ok(OutgoingMessage::Command(arguments.command()?))
    }
}

/// More facts and the remedy for a message that was not accepted.
fn advice(error: &ApiError, id: &str) -> Vec<String> {
    let ApiError::Refused { reason, document, text: response_text, .. } = error else {
        return if error.is_retryable() { vec![retry_advice(id)] } else { Vec::new() };
    };
    // The gateway accepted the message earlier and its work failed for good. A retry returns the same stored
    // response.
    if error.is_final_failure() {
        let answered = match (raw_member(response_text, "response"), &document["response_base64"]) {
            (None, Value::Null) => None,
            (None, base64) => Some(format!("its processor answered, in base64: {base64}")),
            (Some(response), _) => Some(format!("its processor answered: {response}")),
        };
        let final_failure = format!("{id} has failed for good: a retry gets the same answer");
        return answered.into_iter().chain([final_failure]).collect();
    }
    let numbers = document["number"].as_i64().zip(document["last"].as_i64());
    let numbers = numbers.map(|(number, last)| format!("its number is {number}, and {last} was processed"));
    let conflict = (reason == "conflict")
        .then(|| format!("the id {id} was used before with another content: this content needs another id"));
    let node_advice = document["advice"].as_str().map(str::to_owned);
    // A response with a time to retry after may be followed by success. A response that does not say whether
    // the message was accepted leaves that unknown: only a retry settles it.
    let is_unknown = document["reason"].is_string() && document["accepted"].is_null();
    let may_retry = error.is_retryable() || error.retry_after().is_some() || is_unknown;
    let retry = may_retry.then(|| retry_advice(id));
    numbers.into_iter().chain(conflict).chain(node_advice).chain(retry).collect()
}

fn retry_advice(id: &str) -> String {
    format!("its id is {id}: a retry must use the same, --id {id}")
}
