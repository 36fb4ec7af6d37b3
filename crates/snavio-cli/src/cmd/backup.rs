//! `snavio backup`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use snavio_store::engine::sqlite;

use crate::CommandResult;
use crate::output::Output;

/// Copy an embedded store into a new file, also while its node runs.
///
/// The copy does not contain platform.key and operator.token of the data folder: keep copies of them
/// elsewhere. Without the platform key nobody can decrypt the secrets in the copy.
#[derive(Args)]
#[command(after_help = "Example: snavio backup --to backup-monday.db
Example: snavio backup --data /var/lib/snavio --to /backups/monday.db
Example: snavio backup --data /var/lib/snavio --to /backups/monday.db --output json")]
pub(crate) struct Backup {
    /// The data folder of the node.
    #[arg(long, default_value = "./snavio-data")]
    data: PathBuf,
    /// The file to write; it must not exist.
    #[arg(long)]
    to: PathBuf,
}

impl Backup {
    pub(crate) fn run(self, output: Output) -> CommandResult {
        let bytes = sqlite::backup(&self.data, &self.to)?;
        output.print_object(&json!({ "file": self.to, "bytes": bytes }));
        Ok(())
    }
}
