//! `snavio audit`: verifies and shows the changelog and the audit log, and restores earlier registry
//! versions.

mod rollback;
mod show;
mod verify;

use clap::{Args, Subcommand};

use crate::CommandResult;
use crate::output::Output;

/// Verify and show the changelog, compare and roll back versions, show the audit log.
#[derive(Args)]
#[command(after_help = "Example: snavio audit verify
Example: snavio audit show --kind grant
Example: snavio audit diff 120 135")]
pub(crate) struct Audit {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Verify(verify::Verify),
    Show(show::Show),
    At(show::At),
    Diff(show::Diff),
    Rollback(rollback::Rollback),
    Deeds(show::Deeds),
}

impl Audit {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        match self.command {
            Command::Verify(verify) => verify.run(output).await,
            Command::Show(show) => show.run(output).await,
            Command::At(at) => at.run(output).await,
            Command::Diff(diff) => diff.run(output).await,
            Command::Rollback(rollback) => rollback.run(output).await,
            Command::Deeds(deeds) => deeds.run(output).await,
        }
    }
}
