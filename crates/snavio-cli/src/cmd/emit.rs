//! `snavio emit`.

use std::io::Read;

use clap::Args;
use snavio_model::id::MessageId;
use snavio_model::name::{CommandName, TargetText};
use snavio_model::trace::CorrelationId;
use snavio_sdk::Command;

use super::Failure;
use super::keys::ask_operator;
use crate::Ended;
use crate::connection::AsService;
use crate::output::Output;

/// Send a command, signed and authenticated like any client's.
///
/// Example: snavio emit -c credentials/acme/billing.json --target acme/discord-bot --name notify-user '{"user":"u-1"}'
#[derive(Args)]
pub(crate) struct Emit {
    #[command(flatten)]
    service: AsService,
    #[command(flatten)]
    message: MessageArguments,
}

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
        let payload = if self.payload == "-" {
            let mut text = Vec::new();
            std::io::stdin().read_to_end(&mut text)?;
            text
        } else {
            self.payload.into_bytes()
        };
        let mut command = Command::new(self.target, self.name, payload);
        if let Some(id) = self.id {
            command.id = id;
        }
        command.correlation = self.correlation_id;
        Ok(command)
    }
}

fn id(text: &str) -> Result<MessageId, &'static str> {
    MessageId::uuid(text).ok_or("an id is a hyphenated UUID that is not nil")
}

fn correlation_id(text: &str) -> Result<CorrelationId, &'static str> {
    CorrelationId::new(text).ok_or("a correlation id is 1 to 128 printable ASCII characters")
}

impl Emit {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let command = self.message.command()?;
        let again = format!("its id is {0}: a retry must use the same, --id {0}", command.id.as_str());
        let client = self.service.client()?;
        let file = self.service.file()?;
        let answer = client.send(&command).await.map_err(|error| {
            let is_of_the_key = error.is_of_the_key();
            let failure = Failure::from(error).with_advice(&again);
            match is_of_the_key {
                true => failure.with_advice(&ask_operator(&client.credentials().source, file)),
                false => failure,
            }
        })?;
        output.object(&answer.document);
        Ok(())
    }
}
