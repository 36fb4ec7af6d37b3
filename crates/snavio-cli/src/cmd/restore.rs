//! `snavio restore`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use snavio_model::time::{Clock, Timestamp};
use snavio_server::MachineClock;
use snavio_store::engine::sqlite;

use crate::CommandResult;
use crate::output::{Output, print_text};

/// Restore a backup into a data folder that has no store.
#[derive(Args)]
#[command(after_help = "Example: snavio restore --from backup-monday.db --data ./restored
Example: snavio restore --from backup-monday.db --data ./restored --takes-over-archive
Example: snavio restore --takes-over-archive --data ./restored")]
pub(crate) struct Restore {
    /// The backup file.
    #[arg(long, required_unless_present = "takes_over_archive")]
    from: Option<PathBuf>,
    /// The data folder to restore into.
    #[arg(long, default_value = "./snavio-data")]
    data: PathBuf,
    /// Declare that the original store is gone for good, so that the archive belongs to the restored store
    /// alone.
    ///
    /// Without this declaration a node over the restored store moves, rewrites and deletes nothing in the
    /// archive. Without --from the declaration is for a store that was restored before.
    #[arg(long)]
    takes_over_archive: bool,
}

impl Restore {
    pub(crate) fn run(self, output: Output) -> CommandResult {
        let now = MachineClock::after(Timestamp(0)).now();
        let Some(from) = &self.from else {
            let was_doubted = sqlite::take_over_archive(&self.data, now)?;
            output.print_object(&json!({ "archive_taken_over": self.data, "was_doubted": was_doubted }));
            return Ok(());
        };
        let restored = sqlite::restore(from, &self.data, self.takes_over_archive, now)?;
        output.print_object(&json!({
            "restored": self.data,
            "newest_commit": restored.newest_at.to_string(),
            "epoch": restored.epoch,
            "registry_version": restored.registry_version,
            "takes_over_archive": self.takes_over_archive,
            "damaged": restored.damaged,
        }));
        if output == Output::Table {
            print_text(&missing_changes_text(restored.newest_at));
            if !self.takes_over_archive {
                print_text(&untouched_archive_text(&self.data));
            }
        }
        Ok(())
    }
}

/// The warning that changes after the backup are missing.
fn missing_changes_text(newest_at: Timestamp) -> String {
    format!(
        "\nWhat happened after {newest_at} is not in the restored store:\n\
         - messages accepted since then are lost; producers that kept them can send them again\n\
         - their ids are free again: a retry of one is dispatched anew, also on strict routes\n\
         - deliveries acknowledged since then are delivered again, under the same delivery ids\n\
         - registry changes since then are undone: check the keys and grants that were revoked\n\
         - holds set since then are not in force, and holds lifted since then are: set and lift them again\n\
         - what was erased since then is there again: erase it again\n\
         Copy platform.key and operator.token of the old data folder into the new one before you start a node.\n"
    )
}

/// The warning that two stores may share one archive.
fn untouched_archive_text(data: &Path) -> String {
    format!(
        "\nIf the store has an archive: nothing is moved, rewritten or deleted there, because a node may still serve over\n\
         the original store. Once the original store is gone for good, and before you start a node over the restored\n\
         store, run:\n  \
         snavio restore --takes-over-archive --data {}\n",
        data.display()
    )
}
