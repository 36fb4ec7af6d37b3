//! A general ledger beside Snavio: posts balanced journal entries, each once, however often it is asked to.
//!
//! `serve` is called by the gateway (an HTTP processor), `consume` takes from one of its queues; both write into the
//! same SQLite database, and `trial-balance` says whether its books are in order. README.md says how they are run.

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

/// Posts balanced journal entries, each once.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves POST /journal-entries, for a gateway whose route calls an HTTP processor
    Serve {
        /// Where to listen; port 0 is any that is free
        #[arg(long, default_value = "127.0.0.1:8090")]
        listen: SocketAddr,
        /// The database file, made where it is missing
        #[arg(long)]
        database: PathBuf,
        /// How long to wait for a database that somebody else writes to, before answering 503
        #[arg(long, default_value_t = 2000)]
        lock_wait_ms: u64,
        /// Waits so long after an entry is posted before it answers, to see what callers make of it
        #[arg(long, default_value_t = 0)]
        slow_ms: u64,
    },
    /// Takes entries from a queue of the gateway
    Consume {
        /// The gateway, for example http://127.0.0.1:8080
        #[arg(long)]
        gateway: String,
        /// The queue
        #[arg(long)]
        queue: String,
        /// The file with the service's credentials, as `snavio apply --credentials-dir` wrote it
        #[arg(long)]
        credentials: PathBuf,
        /// The database file, made where it is missing
        #[arg(long)]
        database: PathBuf,
        /// How long others wait for entries that this one held when it died
        #[arg(long, default_value_t = 30)]
        lease_seconds: u64,
    },
    /// Prints every account and its sums, and fails unless debits equal credits and no reference is missing
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
            tracing::error!(error = &*error as &dyn std::error::Error, "cannot go on");
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
