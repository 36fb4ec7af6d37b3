//! Makes new keys when they are due, and tells owners of keys that end soon (REG-10, REG-12). One node does it for all;
//! that two would is no harm, because a change of the registry is decided anew when somebody was quicker.

use std::sync::Arc;
use std::time::Duration;

use snavio_model::bounds;
use snavio_model::registry::{Author, Key, KeyRing, NewSecrets, Registry, plan};
use snavio_model::telemetry::key_expiry_imminent;
use snavio_store::StoreError;
use tokio::time::MissedTickBehavior;

use crate::{Gate, ServiceNote};

/// How often keys are looked at.
const LOOKING: Duration = Duration::from_secs(30);
/// Looks between two that ask also who has not polled: that reads the store, and 48 hours are long.
const LOOKS_PER_REPORT: u32 = 20;
/// How long a node rotates for all before it is asked again whether it lives.
const TERM: Duration = Duration::from_secs(90);
/// Services whose keys are made in one change.
const SERVICES_AT_ONCE: usize = 100;
/// Who makes these changes, for the changelog.
const WHO: &str = "snavio (rotation)";

impl Gate {
    /// Looks after the keys from now on, for as long as the gate lives: reports those that end unnoticed and, given
    /// what makes secrets, makes new ones when they are due.
    pub fn look_after_keys(self: &Arc<Self>, seal: Option<Arc<dyn NewSecrets>>) {
        self.keep(tokio::spawn(look_after_keys(Arc::clone(self), seal)));
    }

    /// Makes the keys that are due, and says how many.
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
            let why = "the time of these keys has come".to_owned();
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

    /// Tells owners who have not polled lately of keys that end soon, of each key once.
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
        // A service has one key that ends at a time, so one note is enough. Versions begin anew with a service that is
        // registered again, so the version alone does not say which key it was.
        let note = ServiceNote::Ending.of(&key.service);
        let told = format!("{} of {}", key.version, key.created_at);
        if self.store().note(&note).await?.as_ref() == Some(&told) {
            return Ok(());
        }
        tracing::warn!(service = %key.service, version = %key.version, "a key ends soon, and its owner has not polled");
        let record = key_expiry_imminent(key, now).map(|record| record.with_last_poll(polled));
        self.store().set_note(&note, &told, record.into_iter().collect()).await
    }
}

/// Who is suspended cannot ask for a new key: it would find its old one ended when it is let in again.
fn is_suspended(registry: &Registry, ring: &KeyRing<'_>) -> bool {
    registry.tenant(ring.service().tenant()).is_some_and(|tenant| tenant.suspended)
}

async fn look_after_keys(gate: Arc<Gate>, seal: Option<Arc<dyn NewSecrets>>) {
    let mut tick = tokio::time::interval(LOOKING);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut forgotten_up_to = String::new();
    for look in 0u32.. {
        tick.tick().await;
        // By a time that is not to be trusted keys would end that others still go by.
        if gate.holds_sweeps() || !gate.leads("rotator", TERM).await {
            continue;
        }
        if let Some(seal) = &seal {
            match gate.rotate_due_keys(&**seal).await {
                Ok(0) => {}
                Ok(made) => tracing::info!(made, "keys were rotated"),
                Err(error) => told("keys that are due were not rotated", &error),
            }
        }
        if look.is_multiple_of(LOOKS_PER_REPORT)
            && let Err(error) = gate.report_ending_keys().await
        {
            told("keys that end soon were not told of", &error);
        }
        match gate.forget_services(&forgotten_up_to).await {
            Ok(next) => forgotten_up_to = next,
            Err(error) => told("what is noted of former services was not forgotten", &error),
        }
    }
}

fn told(what: &str, error: &StoreError) {
    tracing::warn!(error = error as &dyn std::error::Error, "{what}");
}
