//! `snavio audit`: whether the record is whole, who did what, and the registry as it was.

mod rollback;
mod show;
mod verify;

use clap::{Args, Subcommand};

use crate::Ended;
use crate::output::Output;

/// Verify the registry's changelog, show who did what, compare versions and go back to one.
///
/// Example: snavio audit verify
#[derive(Args)]
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
    pub(crate) async fn run(self, output: Output) -> Ended {
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
