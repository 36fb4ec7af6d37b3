//! `snavio platform-key`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use snavio_server::make_platform_key;

use super::Failure;
use crate::Ended;
use crate::connection::AsOperator;
use crate::output::Output;

/// Longer than nodes take to hear of a new platform key: what they sealed meanwhile is sealed anew after it.
const HEARD: Duration = Duration::from_secs(6);

/// Show the platform key that is in force, make one, and put it in the place of the other.
///
/// Example: snavio platform-key show
#[derive(Args)]
pub(crate) struct PlatformKey {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show which key is in force, which ones the node knows, and what is sealed under each.
    ///
    /// Example: snavio platform-key show
    Show {
        #[command(flatten)]
        node: AsOperator,
    },
    /// Make a key in a file of its own, readable by you alone.
    ///
    /// Example: snavio platform-key new /etc/snavio/platform-2.key
    New {
        /// The file, which must not be there yet.
        file: PathBuf,
    },
    /// Put the second key that all nodes know in force, and seal everything under it.
    ///
    /// First start every node, one after the other, with platform.second_key_file naming the new key.
    ///
    /// Example: snavio platform-key rotate --why "yearly exercise"
    Rotate {
        #[command(flatten)]
        node: AsOperator,
        /// The fingerprint of the key; without it, the one that the node knows and that is not in force.
        #[arg(long)]
        to: Option<String>,
        /// Why, for the changelog.
        #[arg(long, default_value = "")]
        why: String,
    },
}

const PATH: &str = "/v1/platform-key";

impl PlatformKey {
    pub(crate) async fn run(self, output: Output) -> Ended {
        match self.command {
            Command::Show { node } => output.object(&node.api()?.call(Method::GET, PATH, None).await?),
            Command::New { file } => {
                let fingerprint = make_platform_key(&file)?;
                output.object(&json!({ "file": file, "fingerprint": fingerprint }));
            }
            Command::Rotate { node, to, why } => {
                let api = node.api()?;
                let known = api.call(Method::GET, PATH, None).await?;
                let to = to.or_else(|| other(&known)).ok_or_else(|| {
                    Failure::new("the node knows no other key; start it with platform.second_key_file")
                })?;
                let body = json!({ "to": to, "why": why });
                api.call(Method::POST, PATH, Some(&body)).await?;
                tokio::time::sleep(HEARD).await;
                output.object(&api.call(Method::POST, PATH, Some(&body)).await?);
            }
        }
        Ok(())
    }
}

fn other(known: &Value) -> Option<String> {
    let mut all = known["known"].as_array()?.iter();
    all.find(|it| **it != known["platform_key"])?.as_str().map(str::to_owned)
}
