//! Uses of keys that are not the current ones any more: accepted, counted, and told to their owners (REG-12).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snavio_model::bounds;
use snavio_model::message::Message;
use snavio_model::name::{KeyVersion, ServiceName};
use snavio_model::registry::Registry;
use snavio_model::telemetry::seldom::Seldom;
use snavio_model::telemetry::{Record, legacy_key_used};
use tokio::time::MissedTickBehavior;

use crate::Gate;

/// How often what was noticed is written: it can wait for its owner's last poll to be looked up.
const TELLING: Duration = Duration::from_secs(1);

/// What was noticed, and what was told of lately.
pub(crate) struct LegacyKeys(Mutex<Noticed>);

struct Noticed {
    told: Seldom<(ServiceName, KeyVersion)>,
    /// As many as were not told of lately: a version is here once.
    records: Vec<Record>,
}

impl Default for LegacyKeys {
    fn default() -> Self {
        let told = Seldom::new(bounds::LEGACY_KEY_REPORTED, bounds::KEY_REPORTS_REMEMBERED_MAX);
        Self(Mutex::new(Noticed { told, records: Vec::new() }))
    }
}

impl LegacyKeys {
    /// Takes notice of the key of a message that is let through.
    pub(crate) fn notice(&self, message: &Message, registry: &Registry) {
        let Some(used) = &message.key_version else { return };
        let service = registry.service(message.source.as_str());
        let current = service.and_then(|service| service.current_key(message.received_at));
        if current.is_none_or(|current| current.version == *used) {
            return;
        }
        metrics::counter!("snavio_legacy_key_uses_total").increment(1);
        let key = (message.source.clone(), used.clone());
        let mut noticed = self.lock();
        let has_room = noticed.records.len() < bounds::KEY_REPORTS_REMEMBERED_MAX;
        if has_room && noticed.told.is_due(&key, message.received_at) {
            noticed.told.done(key, message.received_at);
            noticed.records.extend(legacy_key_used(message));
        }
    }

    fn take(&self) -> Vec<Record> {
        std::mem::take(&mut self.lock().records)
    }

    fn lock(&self) -> MutexGuard<'_, Noticed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells owners what was noticed, for as long as the gate lives.
pub(crate) async fn tell(gate: Arc<Gate>) {
    let mut tick = tokio::time::interval(TELLING);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        gate.tell_of_legacy_keys().await;
    }
}

impl Gate {
    async fn tell_of_legacy_keys(&self) {
        let mut records = Vec::new();
        for record in self.legacy_keys().take() {
            // Told without it rather than not at all.
            let polled = match &record.source {
                Some(service) => self.last_poll(service).await.ok().flatten(),
                None => None,
            };
            records.push(record.with_last_poll(polled));
        }
        if records.is_empty() {
            return;
        }
        let count = records.len() as u64;
        if let Err(error) = self.store().record(records).await {
            metrics::counter!("snavio_telemetry_dropped_total").increment(count);
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                count,
                "uses of old keys were not told of"
            );
        }
    }
}
