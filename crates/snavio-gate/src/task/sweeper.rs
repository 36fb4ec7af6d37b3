//! Background tasks. They take no input, may run at any time, and may run twice.

use std::sync::Arc;
use std::time::Duration;

use snavio_store::StoreError;
use tokio::time::MissedTickBehavior;

use crate::Gate;

/// The interval of writes of gathered telemetry.
const GATHERED_WRITE_INTERVAL: Duration = Duration::from_millis(250);
/// The interval of expiry sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Writes gathered telemetry until the gate stops.
pub(crate) async fn write_gathered(gate: Arc<Gate>) {
    let mut tick = tokio::time::interval(GATHERED_WRITE_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let gate = Arc::clone(&gate);
        // In its own task: a stop aborts this loop, and an aborted write would lose its records.
        let _ = tokio::spawn(async move { gate.write_gathered().await }).await;
    }
}

/// The term for which a node leads the sweeps without renewal.
const SWEEPER_TERM: Duration = Duration::from_secs(4);
// CLM-7: even if the node that swept has died, sweeps pause no longer than this.
const _: () = assert!(SWEEPER_TERM.as_secs() + SWEEP_INTERVAL.as_secs() <= 5);

/// Ends expired leases and deletes expired rows until the gate stops.
pub(crate) async fn sweep(gate: Arc<Gate>) {
    let mut tick = tokio::time::interval(SWEEP_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        // The node also stops leading: a node with a trusted clock takes over when the term ends.
        if gate.holds_sweeps() || !gate.leads("sweeper", SWEEPER_TERM).await {
            continue;
        }
        // A partial sweep continues at once, in commits of its own, with intake between them. Waits end
        // between sweeps, too, however much there is to sweep.
        while gate.end_waits().await | gate.sweep().await {}
    }
}

/// Applies registry changes that this node does not have: changes of other nodes, and its own changes that it
/// could not read back.
pub(crate) async fn follow_registry(gate: Arc<Gate>) {
    // The registry was read just before this task began.
    let mut tick =
        tokio::time::interval_at(tokio::time::Instant::now() + gate.follow_every(), gate.follow_every());
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // Earlier if a stale registry was used.
        tokio::select! {
            _ = tick.tick() => {}
            () = gate.stale_use() => {}
        }
        match gate.refresh_registry().await {
            // An unreadable change is logged once elsewhere, not every second.
            Ok(()) | Err(StoreError::Damaged { .. }) => {}
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "changes of the registry could not be read"
            ),
        }
    }
}
