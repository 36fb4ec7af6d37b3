//! `snavio restore`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use snavio_model::time::Clock;
use snavio_model::time::Timestamp;
use snavio_server::MachineClock;
use snavio_store::embedded;

use crate::Ended;
use crate::output::{Output, print_text};

/// Restore a backup into a data folder that has no store.
///
/// Example: snavio restore --from backup-monday.db --data ./restored
#[derive(Args)]
pub(crate) struct Restore {
    /// The backup.
    #[arg(long)]
    from: PathBuf,
    /// The data folder to restore into.
    #[arg(long, default_value = "./snavio-data")]
    data: PathBuf,
}

impl Restore {
    pub(crate) fn run(self, output: Output) -> Ended {
        let now = MachineClock::after(Timestamp(0)).now();
        let restored = embedded::restore(&self.from, &self.data, now)?;
        output.object(&json!({
            "restored": self.data,
            "newest_commit": restored.newest_at.to_string(),
            "epoch": restored.epoch,
            "registry_version": restored.registry_version,
            "damaged": restored.damaged,
        }));
        if output == Output::Table {
            print_text(&missing(restored.newest_at));
        }
        Ok(())
    }
}

/// What a backup cannot contain, said plainly.
fn missing(newest_at: Timestamp) -> String {
    format!(
        "\nWhat happened after {newest_at} is not in this store:\n\
         - messages accepted since then are gone from it; producers that kept them can send them again\n\
         - their ids are free again: a retry of one is dispatched anew, also on strict routes\n\
         - deliveries acknowledged since then are delivered again, under their old delivery ids\n\
         - registry changes since then are undone: check keys and grants that were revoked\n\
         Put platform.key and operator.token of the old data folder beside it before you start.\n"
    )
}
