//! `snavio move-store`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use snavio_server::config::{Config, StoreConfig};
use snavio_store::Moved;
use snavio_store::engine::postgres;

use super::Failure;
use super::configuration::sources;
use crate::CommandResult;
use crate::output::{Output, print_text};

/// Move an embedded store into an empty PostgreSQL database, in one commit.
///
/// Stop the node first, and start no node over either store until the command has ended. The data folder
/// keeps its store, and gets a file moved-to that prevents nodes and backups from using it.
#[derive(Args)]
#[command(after_help = "\
Example: snavio move-store --from embedded:./snavio-data --to postgres://snavio@db.internal/snavio
Example: snavio move-store --from embedded:/var/lib/snavio --config /etc/snavio/snavio.toml
Example: snavio move-store --from embedded:./snavio-data --config snavio.toml --skip-damaged")]
pub(crate) struct MoveStore {
    /// The embedded store: embedded:<data folder>.
    #[arg(long)]
    from: String,
    /// The URL of the database; keep a password in the configuration or in SNAVIO_STORE_URL instead.
    #[arg(long)]
    to: Option<String>,
    /// The configuration file of the nodes that will serve over the database.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Leave out damaged records and report them.
    ///
    /// If a claim is left out, its id is free again: the gateway accepts the id as new. The command never
    /// leaves out registry entries or legal holds.
    #[arg(long)]
    skip_damaged: bool,
}

impl MoveStore {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let folder = self.from.strip_prefix("embedded:").filter(|folder| !folder.is_empty());
        let folder = folder.ok_or_else(|| {
            Failure::misuse(format!("--from is {:?}; use embedded:<data folder>", self.from))
        })?;
        let to = self.database()?;
        let moved = snavio_store::move_store(Path::new(folder), &to, self.skip_damaged).await?;
        print_moved(&moved, output);
        if output == Output::Table {
            print_text(&next_steps_text(folder));
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

fn print_moved(moved: &Moved, output: Output) {
    output.print_object(&json!({
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

fn next_steps_text(folder: &str) -> String {
    format!(
        "\nThe database has all data. New serials are above those of the old store.\n\
         - Start nodes with platform.key and operator.token of {folder} (platform.key_file, platform.operator_token_file).\n\
         - Deliveries that consumers had leased are delivered again: the receipts from before are fenced.\n\
         - Then move {folder} to a safe place: it still has the old store, and its file moved-to prevents nodes and\n  \
         backups from using it.\n"
    )
}
