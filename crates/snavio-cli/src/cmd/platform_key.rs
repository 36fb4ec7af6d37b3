//! `snavio platform-key`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use snavio_server::make_platform_key;

use super::Failure;
use crate::CommandResult;
use crate::connection::OperatorConnection;
use crate::output::Output;

/// Longer than nodes need to learn of a new platform key. Until then a node may encrypt secrets under the old
/// key, so `rotate` repeats its request after this time to encrypt those again.
const PROPAGATION: Duration = Duration::from_secs(6);

/// Show, make and rotate the platform key, which encrypts secrets in the store.
#[derive(Args)]
#[command(after_help = "Example: snavio platform-key show
Example: snavio platform-key new /etc/snavio/platform-2.key
Example: snavio platform-key rotate --why 'yearly exercise'")]
pub(crate) struct PlatformKey {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the current key, the keys that the node has, and the number of secrets under each.
    #[command(after_help = "Example: snavio platform-key show
Example: snavio platform-key show --output json
Example: snavio platform-key show --url https://snavio.example.com")]
    Show {
        #[command(flatten)]
        node: OperatorConnection,
    },
    /// Make a key in a new file, readable by you only.
    #[command(after_help = "Example: snavio platform-key new platform-2.key
Example: snavio platform-key new /etc/snavio/platform-2.key
Example: snavio platform-key new /etc/snavio/platform-2.key --output json")]
    New {
        /// The file to write; it must not exist.
        file: PathBuf,
    },
    /// Change to the second key of the nodes, and encrypt all secrets under it.
    ///
    /// First restart every node, one after the other, with platform.second_key_file set to the file of the
    /// new key.
    #[command(after_help = "Example: snavio platform-key rotate
Example: snavio platform-key rotate --why 'yearly exercise'
Example: snavio platform-key rotate --to 5f0c1d2e3a4b5c6d")]
    Rotate {
        #[command(flatten)]
        node: OperatorConnection,
        /// The fingerprint of the new key; without it, the key of the node that is not the current one.
        #[arg(long)]
        to: Option<String>,
        /// A note for the changelog: the reason for the change.
        #[arg(long, default_value = "", hide_default_value = true)]
        why: String,
    },
}

const PATH: &str = "/v1/platform-key";

impl PlatformKey {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        match self.command {
            Command::Show { node } => output.print_object(&node.api()?.call(Method::GET, PATH, None).await?),
            Command::New { file } => {
                let fingerprint = make_platform_key(&file)?;
                output.print_object(&json!({ "file": file, "fingerprint": fingerprint }));
            }
            Command::Rotate { node, to, why } => {
                let api = node.api()?;
                let known = api.call(Method::GET, PATH, None).await?;
                let to = to.or_else(|| find_second_key(&known)).ok_or_else(|| {
                    Failure::new(
                        "the node has only the current platform key; set platform.second_key_file to the file of the \
                         new key and restart every node",
                    )
                })?;
                let body = json!({ "to": to, "why": why });
                api.call(Method::POST, PATH, Some(&body)).await?;
                tokio::time::sleep(PROPAGATION).await;
                output.print_object(&api.call(Method::POST, PATH, Some(&body)).await?);
            }
        }
        Ok(())
    }
}

fn find_second_key(status: &Value) -> Option<String> {
    let mut keys = status["known"].as_array()?.iter();
    keys.find(|key| **key != status["platform_key"])?.as_str().map(str::to_owned)
}
