//! `snavio audit rollback`.

use std::path::PathBuf;

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use crate::Ended;
use crate::cmd::apply::{prepare, save_all, tell_credentials, with_differences};
use crate::connection::AsOperator;
use crate::output::{Output, print_line};

/// Bring the registry back to what it was at a version, as new changes.
///
/// Without --yes it only says what would change. Keys, clients, personal tokens, grant requests and bans stay as they
/// are: what was taken back because it was stolen must not come back by itself. A service that comes back has new
/// credentials, and a route that pushes a new secret; both are shown once.
///
/// Example: snavio audit rollback 120 --why "wrong file applied" --yes
#[derive(Args)]
pub(crate) struct Rollback {
    #[command(flatten)]
    node: AsOperator,
    /// The version to go back to.
    #[arg(value_name = "VERSION")]
    back_to: i64,
    /// Why, for the changelog.
    #[arg(long)]
    why: String,
    /// Do it.
    #[arg(long)]
    yes: bool,
    /// Where to write the credentials of services that come back, each as <tenant>/<service>.json, and the secrets of
    /// pushes under push/.
    #[arg(long)]
    credentials_dir: Option<PathBuf>,
}

impl Rollback {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let folder = self.credentials_dir.as_ref().filter(|_| self.yes);
        if let Some(folder) = folder {
            prepare(folder)?;
        }
        let body = json!({ "version": self.back_to, "why": self.why, "dry_run": !self.yes });
        let mut answer = self.node.api()?.call(Method::POST, "/v1/registry/rollback", Some(&body)).await?;
        let saved = folder.map(|folder| save_all(folder, &mut answer));
        let changes = answer["changes"].as_array().cloned().unwrap_or_default();
        let is_nothing = changes.is_empty();
        let rows: Vec<_> = changes.into_iter().map(with_differences).collect();
        output.rows(&answer, &rows, &["step", "kind", "name", "difference"]);
        if output == Output::Table {
            let left = answer["left_alone"].as_array().into_iter().flatten().filter_map(Value::as_str);
            left.for_each(|name| print_line(&format!("stays as it is: {name}")));
            tell_credentials(&answer);
            print_line(&match (is_nothing, self.yes) {
                (true, _) => format!("nothing to change, version {}", answer["version"]),
                (false, true) => format!("done, version {}", answer["version"]),
                (false, false) => "nothing was changed; add --yes to do it".to_owned(),
            });
        }
        saved.unwrap_or(Ok(()))
    }
}
