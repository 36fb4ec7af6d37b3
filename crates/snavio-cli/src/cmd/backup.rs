//! `snavio backup`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use snavio_store::engine::sqlite;

use crate::Ended;
use crate::output::Output;

/// Copy the store into a new file, while the node runs or not.
///
/// Keep platform.key and operator.token of the data folder somewhere else: they are not in the copy, and
/// without the platform key the secrets in it cannot be opened.
///
/// Example: snavio backup --data ./snavio-data --to backup-monday.db
#[derive(Args)]
pub(crate) struct Backup {
    /// The data folder.
    #[arg(long, default_value = "./snavio-data")]
    data: PathBuf,
    /// The file to write; it must not exist.
    #[arg(long)]
    to: PathBuf,
}

impl Backup {
    pub(crate) fn run(self, output: Output) -> Ended {
        let bytes = sqlite::backup(&self.data, &self.to)?;
        output.object(&json!({ "file": self.to, "bytes": bytes }));
        Ok(())
    }
}
