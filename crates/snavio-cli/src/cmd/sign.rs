//! `snavio sign`.

use std::path::PathBuf;

use clap::Args;
use snavio_sdk::{Api, Client};

use super::emit::MessageArguments;
use crate::Ended;
use crate::connection::read_credentials;
use crate::output::print_line;

/// Print a signed command without sending it, for curl and for checking a client of your own.
///
/// Example: snavio sign -c credentials/acme/billing.json --target discord-bot --name notify-user '{}' > message.json
#[derive(Args)]
pub(crate) struct Sign {
    /// The file with the service's credentials.
    #[arg(long, short = 'c', env = "SNAVIO_CREDENTIALS")]
    credentials: PathBuf,
    /// Print the text that is signed instead.
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    message: MessageArguments,
}

impl Sign {
    pub(crate) fn run(self) -> Ended {
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
