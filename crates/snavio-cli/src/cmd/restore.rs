//! `snavio restore`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use snavio_model::time::{Clock, Timestamp};
use snavio_server::MachineClock;
use snavio_store::engine::sqlite;

use crate::Ended;
use crate::output::{Output, print_text};

/// Restore a backup into a data folder that has no store.
///
/// Example: snavio restore --from backup-monday.db --data ./restored
#[derive(Args)]
pub(crate) struct Restore {
    /// The backup.
    #[arg(long, required_unless_present = "takes_over_archive")]
    from: Option<PathBuf>,
    /// The data folder to restore into.
    #[arg(long, default_value = "./snavio-data")]
    data: PathBuf,
    /// Say that the store the backup was made of is gone for good, so that the archive is this one's alone. Until then
    /// nothing is moved, rewritten or deleted there. Without --from, of a store that was restored before.
    #[arg(long)]
    takes_over_archive: bool,
}

impl Restore {
    pub(crate) fn run(self, output: Output) -> Ended {
        let now = MachineClock::after(Timestamp(0)).now();
        let Some(from) = &self.from else {
            let was_doubted = sqlite::take_over_archive(&self.data, now)?;
            output.object(&json!({ "archive_taken_over": self.data, "was_doubted": was_doubted }));
            return Ok(());
        };
        let restored = sqlite::restore(from, &self.data, self.takes_over_archive, now)?;
        output.object(&json!({
            "restored": self.data,
            "newest_commit": restored.newest_at.to_string(),
            "epoch": restored.epoch,
            "registry_version": restored.registry_version,
            "takes_over_archive": self.takes_over_archive,
            "damaged": restored.damaged,
        }));
        if output == Output::Table {
            print_text(&missing(restored.newest_at));
            if !self.takes_over_archive {
                print_text(&left_alone(&self.data));
            }
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
         - holds set since then are not in force, and those lifted since are: set and lift them again\n\
         - what was erased since then is there again: erase it again\n\
         Put platform.key and operator.token of the old data folder beside it before you start.\n"
    )
}

/// What two stores would do to each other.
fn left_alone(data: &Path) -> String {
    format!(
        "\nIf it has an archive: nothing is moved, rewritten or deleted there, since a node may still serve over the store\n\
         that this is a copy of. Once that one is gone for good, and before you start a node over this one:\n  \
         snavio restore --takes-over-archive --data {}\n",
        data.display()
    )
}
