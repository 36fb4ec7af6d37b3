//! `snavio erasures`.

use clap::{Args, Subcommand};

use super::pages;
use crate::CommandResult;
use crate::connection::OperatorConnection;
use crate::output::Output;

/// List the erasures: the ids, with author, time and note.
///
/// This needs the operator's token or the token of a person with the role auditor, tenant-admin or
/// accounting-ops.
#[derive(Args)]
#[command(after_help = "Example: snavio erasures list
Example: snavio erasures list --tenant acme
Example: snavio erasures list --tenant acme --output json")]
pub(crate) struct Erasures {
    #[command(flatten)]
    node: OperatorConnection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the erasures, oldest first.
    #[command(after_help = "Example: snavio erasures list
Example: snavio erasures list --tenant acme
Example: snavio erasures list --tenant acme --after 268435458")]
    List {
        /// Only erasures of ids of this tenant.
        #[arg(long)]
        tenant: Option<String>,
        /// Only erasures after this number.
        #[arg(long, default_value_t = 0)]
        after: i64,
    },
}

impl Erasures {
    pub(crate) async fn run(self, output: Output) -> CommandResult {
        let Command::List { tenant, after } = self.command;
        let all = pages::fetch_after(&self.node.api()?, "erasures", &[("tenant", tenant.as_deref())], after)
            .await?;
        output.print_list(&all, &["number", "at", "who", "what", "outcome", "why"]);
        Ok(())
    }
}
