//! Rotates keys that are due, and warns the owners of keys that expire soon (REG-10, REG-12). One node does
//! it for all. Two nodes at once would do no harm: a registry change that loses a race is planned again.

use std::sync::Arc;
use std::time::Duration;

use snavio_model::bounds;
use snavio_model::registry::{Author, Key, KeyRing, NewSecrets, Registry, plan};
use snavio_model::telemetry::key_expiry_imminent;
use snavio_store::StoreError;
use tokio::time::MissedTickBehavior;

use crate::{Gate, ServiceNote};

/// The interval at which keys are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// The number of checks from one search for owners who have not polled to the next. The search reads the
/// store, and the warning time of 48 hours is long.
const CHECKS_PER_REPORT: u32 = 20;
/// The term for which a node leads the rotation without renewal.
const TERM: Duration = Duration::from_secs(90);
/// The number of services whose keys are made in one change.
const SERVICES_AT_ONCE: usize = 100;
/// The author of these changes in the changelog.
const WHO: &str = "snavio (rotation)";

impl Gate {
    /// From now on until the gate stops: warns about keys that expire unnoticed and, given a source of
    /// secrets, rotates keys that are due.
    pub fn look_after_keys(self: &Arc<Self>, seal: Option<Arc<dyn NewSecrets>>) {
        self.add_task(tokio::spawn(look_after_keys(Arc::clone(self), seal)));
    }

    /// Rotates the keys that are due, and returns their number.
    pub async fn rotate_due_keys(&self, seal: &dyn NewSecrets) -> Result<usize, StoreError> {
        let _turn = self.registry_turn().await;
        let mut made = 0;
        loop {
            let registry = self.registry();
            let now = self.clock().now();
            let due: Vec<_> = KeyRing::all(&registry)
                .into_iter()
                .filter(|ring| ring.is_due(now) && !is_suspended(&registry, ring))
                .take(SERVICES_AT_ONCE)
                .collect();
            if due.is_empty() {
                return Ok(made);
            }
            let wishes = due.iter().flat_map(|ring| ring.rotate(seal.new_secret(), now).wishes).collect();
            let why = "these keys are due for rotation".to_owned();
            let author = Author { who: WHO.to_owned(), why, at: now };
            let changes = match plan(&registry, wishes, &author, self.window()) {
                Ok(changes) => changes,
                Err(problems) => {
                    tracing::error!(problems = problems.join("; "), "keys that are due were not rotated");
                    return Ok(made);
                }
            };
            match self.change_registry(changes).await {
                Ok(()) => made += due.len(),
                Err(StoreError::Stale { .. }) => self.refresh_registry().await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Warns owners who have not polled recently about keys that expire soon, once for each key.
    pub async fn report_ending_keys(&self) -> Result<(), StoreError> {
        let registry = self.registry();
        let now = self.clock().now();
        for ring in KeyRing::all(&registry) {
            for key in ring.ending(bounds::KEY_ENDS_SOON, now) {
                self.report_ending_key(key).await?;
            }
        }
        Ok(())
    }

    async fn report_ending_key(&self, key: &Key) -> Result<(), StoreError> {
        let now = self.clock().now();
        let polled = self.last_poll(&key.service).await?;
        if polled.is_some_and(|at| now.since(at) < bounds::CONFIG_POLL_MISSED) {
            return Ok(());
        }
        // A service has only one key that expires at a time, so one note suffices. Versions start again for a
        // service that is registered again, so the note also has the key's creation time.
        let note = ServiceNote::Ending.of(&key.service);
        let noted = format!("{} of {}", key.version, key.created_at);
        if self.store().note(&note).await?.as_ref() == Some(&noted) {
            return Ok(());
        }
        tracing::warn!(service = %key.service, version = %key.version, "a key expires soon, and its owner has not polled");
        let record = key_expiry_imminent(key, now).map(|record| record.with_last_poll(polled));
        self.store().set_note(&note, &noted, record.into_iter().collect()).await
    }
}

/// A suspended service cannot fetch a new key. After the suspension it would find its old key expired, so its
/// keys are not rotated.
fn is_suspended(registry: &Registry, ring: &KeyRing<'_>) -> bool {
    registry.tenant(ring.service().tenant()).is_some_and(|tenant| tenant.suspended)
}

async fn look_after_keys(gate: Arc<Gate>, seal: Option<Arc<dyn NewSecrets>>) {
    let mut tick = tokio::time::interval(CHECK_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut notes_after = String::new();
    for round in 0u32.. {
        tick.tick().await;
        // With a clock that cannot be trusted, keys would expire that other nodes still use.
        if gate.holds_sweeps() || !gate.leads("rotator", TERM).await {
            continue;
        }
        if let Some(seal) = &seal {
            match gate.rotate_due_keys(&**seal).await {
                Ok(0) => {}
                Ok(made) => tracing::info!(made, "keys were rotated"),
                Err(error) => warn("keys that are due were not rotated", &error),
            }
        }
        if round.is_multiple_of(CHECKS_PER_REPORT)
            && let Err(error) = gate.report_ending_keys().await
        {
            warn("owners of keys that expire soon could not be warned", &error);
        }
        match gate.forget_services(&notes_after).await {
            Ok(next) => notes_after = next,
            Err(error) => warn("notes about removed services could not be deleted", &error),
        }
    }
}

fn warn(problem: &str, error: &StoreError) {
    tracing::warn!(error = error as &dyn std::error::Error, "{problem}");
}
