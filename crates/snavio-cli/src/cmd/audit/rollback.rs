//! `snavio audit rollback`.

use std::path::PathBuf;

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use crate::CommandResult;
use crate::cmd::apply::{check_writable, print_credentials, save_secrets, with_difference_text};
use crate::connection::OperatorConnection;
use crate::output::{Output, print_line};

/// Roll the registry back to an earlier version, by new changes.
///
/// Without --yes the command only prints the changes. Keys, clients, personal tokens, grant requests and bans
/// stay as they are: a stolen key that was revoked must not become valid again. A service that comes back
/// gets new credentials, and a route that pushes gets a new secret. Both are shown once.
#[derive(Args)]
#[command(after_help = "Example: snavio audit rollback 120 --why 'wrong file applied'
Example: snavio audit rollback 120 --why 'wrong file applied' --yes
Example: snavio audit rollback 120 --why 'wrong file applied' --yes --credentials-dir ./credentials")]
pub(crate) struct Rollback {
    #[command(flatten)]
    node: OperatorConnection,
    /// The registry version to roll back to.
    #[arg(value_name = "VERSION")]
    back_to: i64,
    /// A note for the changelog: the reason for the change.
    #[arg(long)]
    why: String,
    /// Make the changes instead of only printing them.
    #[arg(long)]
    yes: bool,
    /// The folder for the credentials of services that come back, readable by you only.
    ///
    /// The credentials of a service are in <tenant>/<service>.json, the push secret of a route or
    /// subscription in push/<destination>.json.
    #[arg(long)]
    credentials_dir: Option<PathBuf>,
}

impl Rollback {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let folder = self.credentials_dir.as_ref().filter(|_| self.yes);
        if let Some(folder) = folder {
            check_writable(folder)?;
        }
        let body = json!({ "version": self.back_to, "why": self.why, "dry_run": !self.yes });
        let mut answer = self.node.api()?.call(Method::POST, "/v1/registry/rollback", Some(&body)).await?;
        let saved = folder.map(|folder| save_secrets(folder, &mut answer));
        let changes = answer["changes"].as_array().cloned().unwrap_or_default();
        let has_no_changes = changes.is_empty();
        let rows: Vec<_> = changes.into_iter().map(with_difference_text).collect();
        output.print_rows(&answer, &rows, &["step", "kind", "name", "difference"]);
        if output == Output::Table {
            let left = answer["left_alone"].as_array().into_iter().flatten().filter_map(Value::as_str);
            left.for_each(|name| print_line(&format!("stays as it is: {name}")));
            print_credentials(&answer);
            print_line(&match (has_no_changes, self.yes) {
                (true, _) => format!("nothing to change, version {}", answer["version"]),
                (false, true) => format!("done, version {}", answer["version"]),
                (false, false) => "nothing was changed; add --yes to make these changes".to_owned(),
            });
        }
        saved.unwrap_or(Ok(()))
    }
}
