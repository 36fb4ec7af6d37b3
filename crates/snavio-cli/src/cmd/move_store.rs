//! `snavio move-store`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use snavio_server::config::{Config, StoreConfig};
use snavio_store::Moved;
use snavio_store::engine::postgres;

use super::Failure;
use super::configuration::sources;
use crate::Ended;
use crate::output::{Output, print_text};

/// Move everything of an embedded store into an empty PostgreSQL database, in one commit.
///
/// Stop the node first, and start none over either before this has ended. The data folder keeps its
/// store, and a file moved-to that keeps nodes and backups from it.
///
/// Example: snavio move-store --from embedded:./snavio-data --to postgres://snavio@db.internal/snavio
#[derive(Args)]
pub(crate) struct MoveStore {
    /// The embedded store, as embedded:<data folder>.
    #[arg(long)]
    from: String,
    /// The database (store.url); a password is better kept in the configuration or in SNAVIO_STORE_URL.
    #[arg(long)]
    to: Option<String>,
    /// The configuration of the node that will serve over the database.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Leave out what is damaged, and say what it was. An id whose claim is left out is free again. The registry and holds
    /// are never left out.
    #[arg(long)]
    skip_damaged: bool,
}

impl MoveStore {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let folder = self.from.strip_prefix("embedded:").filter(|folder| !folder.is_empty());
        let folder = folder.ok_or_else(|| {
            Failure::misuse(format!("--from is {:?}; use embedded:<data folder>", self.from))
        })?;
        let to = self.database()?;
        let moved = snavio_store::move_store(Path::new(folder), &to, self.skip_damaged).await?;
        tell(&moved, output);
        if output == Output::Table {
            print_text(&next(folder));
        }
        Ok(())
    }

    fn database(&self) -> Result<postgres::Options, Failure> {
        let config = Config::load(&sources(self.config.as_deref(), [("store.url", self.to.clone())])?)?;
        match config.store {
            StoreConfig::Postgres { url, ca_file, .. } => {
                Ok(postgres::Options { ca_file, ..postgres::Options::new(url) })
            }
            StoreConfig::Embedded { .. } => {
                Err(Failure::misuse("no database is named; use --to postgres://user@host/database"))
            }
        }
    }
}

fn tell(moved: &Moved, output: Output) {
    output.object(&json!({
        "registry_version": moved.registry_version,
        "registry_entries": moved.registry_entries,
        "registry_changes": moved.registry_changes,
        "seals": moved.seals,
        "messages": moved.messages,
        "claims": moved.claims,
        "deliveries": moved.deliveries,
        "dead_letters": moved.dead_letters,
        "telemetry": moved.telemetry,
        "audit": moved.audit,
        "numbers_above": moved.numbers_above,
        "damaged": moved.damaged,
    }));
}

/// What is left to do, said plainly.
fn next(folder: &str) -> String {
    format!(
        "\nThe database has everything, and numbers go on above those of the old store.\n\
         - start nodes with platform.key and operator.token of {folder} (platform.key_file, platform.operator_token_file)\n\
         - what consumers held is handed out again: their receipts from before are fenced\n\
         - then put {folder} away: it still holds the old store, and its file moved-to keeps nodes and backups from it\n"
    )
}
