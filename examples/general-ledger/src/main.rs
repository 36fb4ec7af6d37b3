//! A general ledger beside Snavio. It posts balanced journal entries, and each message is posted once, even
//! after repeated requests.
//!
//! The gateway calls `serve` as an HTTP processor; `consume` receives from a queue of the gateway. Both write
//! to the same SQLite database. `trial-balance` checks whether its books are in order. README.md shows how to
//! run it.

mod amount;
mod consume;
mod entry;
mod ledger;
mod message;
mod serve;
mod trial_balance;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use snavio_sdk::once::BoxError;

/// Post balanced journal entries, each once
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve POST /journal-entries for a gateway whose route calls an HTTP processor
    Serve {
        /// The address to listen on; port 0 takes any free port
        #[arg(long, default_value = "127.0.0.1:8090")]
        listen: SocketAddr,
        /// The database file; created if it does not exist
        #[arg(long)]
        database: PathBuf,
        /// The wait for the database's write lock before answering 503
        #[arg(long, default_value_t = 2000)]
        lock_wait_ms: u64,
        /// Wait this long between the commit of an entry and the response, to test callers
        #[arg(long, default_value_t = 0)]
        slow_ms: u64,
    },
    /// Post the entries from a queue of the gateway
    Consume {
        /// The URL of the gateway, for example http://127.0.0.1:8080
        #[arg(long)]
        gateway: String,
        /// The name of the queue
        #[arg(long)]
        queue: String,
        /// The file with the service's credentials, as written by `snavio apply --credentials-dir`
        #[arg(long)]
        credentials: PathBuf,
        /// The database file; created if it does not exist
        #[arg(long)]
        database: PathBuf,
        /// The visibility timeout: if this consumer dies, others get its entries after this time
        #[arg(long, default_value_t = 30)]
        lease_seconds: u64,
    },
    /// Print the sums of every account; fail unless every entry balances and no reference is missing
    TrialBalance {
        /// The database file
        #[arg(long)]
        database: PathBuf,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match run(Cli::parse().command).await {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(error = &*error as &dyn std::error::Error, "general-ledger failed");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<ExitCode, BoxError> {
    match command {
        Command::Serve { listen, database, lock_wait_ms, slow_ms } => {
            let database = ledger::open(&database, Duration::from_millis(lock_wait_ms))?;
            serve::serve(listen, database, Duration::from_millis(slow_ms)).await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Consume { gateway, queue, credentials, database, lease_seconds } => {
            let lease = Duration::from_secs(lease_seconds);
            consume::consume(&gateway, &queue, &credentials, &database, lease).await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::TrialBalance { database } => {
            let balance = trial_balance::read(&database)?;
            print!("{balance}");
            Ok(if balance.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}
