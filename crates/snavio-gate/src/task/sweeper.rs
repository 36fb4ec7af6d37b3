//! Tasks that run beside the pipeline: they take no input, and may run at any time and twice.

use std::sync::Arc;
use std::time::Duration;

use snavio_store::StoreError;
use tokio::time::MissedTickBehavior;

use crate::Gate;

/// How often gathered telemetry is written.
const GATHERING: Duration = Duration::from_millis(250);
/// How often rows whose time is over are looked for.
const SWEEPING: Duration = Duration::from_secs(1);

/// Writes gathered telemetry, for as long as the gate lives.
pub(crate) async fn write_gathered(gate: Arc<Gate>) {
    let mut tick = tokio::time::interval(GATHERING);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let gate = Arc::clone(&gate);
        // In a task of its own: a stop aborts this loop, and the records of a write that ends halfway would be lost.
        let _ = tokio::spawn(async move { gate.write_gathered().await }).await;
    }
}

/// How long a node sweeps for all without saying that it lives.
const SWEEPER_TERM: Duration = Duration::from_secs(4);
// CLM-7: also when the node that swept has died, nothing is left alone for longer than between two sweeps.
const _: () = assert!(SWEEPER_TERM.as_secs() + SWEEPING.as_secs() <= 5);

/// Ends leases and deletes expired rows, for as long as the gate lives.
pub(crate) async fn sweep(gate: Arc<Gate>) {
    let mut tick = tokio::time::interval(SWEEPING);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        // Nor does it go on leading: a node whose time holds takes over when the term ends.
        if gate.holds_sweeps() || !gate.leads("sweeper", SWEEPER_TERM).await {
            continue;
        }
        // What is partial goes on at once, in commits of its own: intake rides between them. Waits end between sweeps, too,
        // however much there is to sweep.
        while gate.end_waits().await | gate.sweep().await {}
    }
}

/// Puts registry changes in effect that this node has not seen: made by others, or by itself when reading them
/// back failed.
pub(crate) async fn follow_registry(gate: Arc<Gate>) {
    // It was just read.
    let mut tick =
        tokio::time::interval_at(tokio::time::Instant::now() + gate.follow_every(), gate.follow_every());
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // Sooner, where somebody used what begins to be old.
        tokio::select! {
            _ = tick.tick() => {}
            () = gate.is_wanted() => {}
        }
        match gate.refresh_registry().await {
            // What cannot be read is told of once, not every second.
            Ok(()) | Err(StoreError::Damaged { .. }) => {}
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the registry could not be read again"
            ),
        }
    }
}
