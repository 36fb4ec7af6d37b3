//! `snavio sign`.

use std::path::PathBuf;

use clap::Args;
use snavio_sdk::{Api, Client};

use super::emit::MessageArguments;
use crate::CommandResult;
use crate::connection::read_credentials;
use crate::output::print_line;

/// Print a signed command without sending it, for curl or to test a client.
#[derive(Args)]
#[command(after_help = "Example: snavio sign -c billing.json --target bot --name notify '{}' > message.json
Example: snavio sign -c billing.json --target acme/bot --name notify - < payload.json
Example: snavio sign -c billing.json --target acme/bot --name notify '{}' --explain")]
pub(crate) struct Sign {
    /// The service's credentials file.
    #[arg(long, short = 'c', env = "SNAVIO_CREDENTIALS")]
    credentials: PathBuf,
    /// Print the text to sign instead of the signed command.
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    message: MessageArguments,
}

impl Sign {
    pub(crate) fn run(self) -> CommandResult {
        let client = Client::new(Api::new("http://127.0.0.1", None)?, read_credentials(&self.credentials)?)?;
        let command = self.message.command()?;
        if self.explain {
            print_line(&client.signing_text(&command)?);
        } else {
            print_line(&String::from_utf8_lossy(&client.sign(&command)?));
        }
        Ok(())
    }
}
