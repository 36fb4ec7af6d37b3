//! `snavio erasures`.

use clap::{Args, Subcommand};

use super::pages;
use crate::Ended;
use crate::connection::AsOperator;
use crate::output::Output;

/// List what was erased: which ids, by whom, when and why.
///
/// With the operator's token, or a person's whose role is auditor, tenant-admin or accounting-ops.
///
/// Example: snavio erasures list --tenant acme
#[derive(Args)]
pub(crate) struct Erasures {
    #[command(flatten)]
    node: AsOperator,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List them, oldest first.
    ///
    /// Example: snavio erasures list --tenant acme
    List {
        /// Only those of this tenant's ids.
        #[arg(long)]
        tenant: Option<String>,
        /// Go on after this number.
        #[arg(long, default_value_t = 0)]
        after: i64,
    },
}

impl Erasures {
    pub(crate) async fn run(self, output: Output) -> Ended {
        let Command::List { tenant, after } = self.command;
        let all =
            pages::after(&self.node.api()?, "erasures", &[("tenant", tenant.as_deref())], after).await?;
        output.list(&all, &["number", "at", "who", "what", "outcome", "why"]);
        Ok(())
    }
}
