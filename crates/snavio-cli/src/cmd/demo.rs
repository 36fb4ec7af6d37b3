use clap::Args;

use crate::Ended;

/// Start a node on a temporary store and watch every kind of verdict.
///
/// Example: snavio demo --exit
#[derive(Args)]
pub(crate) struct Demo {
    /// End after the tour instead of leaving the node running.
    #[arg(long)]
    exit: bool,
}

impl Demo {
    pub(crate) async fn run(self) -> Ended {
        let _ = self.exit;
        Ok(())
    }
}
