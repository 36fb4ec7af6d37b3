//! Uses of keys that are no longer current. The gateway accepts and counts them, and reports them to the
//! owners in telemetry (REG-12).

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

/// The interval of these reports. A report can wait for a look-up of its owner's last poll.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Recorded uses, and the reports of the recent past.
pub(crate) struct LegacyKeys(Mutex<KeyUses>);

struct KeyUses {
    reported: Seldom<(ServiceName, KeyVersion)>,
    /// At most one record for each version that was not reported recently.
    records: Vec<Record>,
}

impl Default for LegacyKeys {
    fn default() -> Self {
        let reported = Seldom::new(bounds::LEGACY_KEY_REPORTED, bounds::KEY_REPORTS_REMEMBERED_MAX);
        Self(Mutex::new(KeyUses { reported, records: Vec::new() }))
    }
}

impl LegacyKeys {
    /// Records the key of a permitted message if it is not the current one.
    pub(crate) fn record(&self, message: &Message, registry: &Registry) {
        let Some(used) = &message.key_version else { return };
        let service = registry.service(message.source.as_str());
        let current = service.and_then(|service| service.current_key(message.received_at));
        if current.is_none_or(|current| current.version == *used) {
            return;
        }
        metrics::counter!("snavio_legacy_key_uses_total").increment(1);
        let key = (message.source.clone(), used.clone());
        let mut uses = self.lock();
        let has_room = uses.records.len() < bounds::KEY_REPORTS_REMEMBERED_MAX;
        if has_room && uses.reported.is_due(&key, message.received_at) {
            uses.reported.done(key, message.received_at);
            uses.records.extend(legacy_key_used(message));
        }
    }

    fn take(&self) -> Vec<Record> {
        std::mem::take(&mut self.lock().records)
    }

    fn lock(&self) -> MutexGuard<'_, KeyUses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports uses of old keys until the gate stops.
pub(crate) async fn report_uses(gate: Arc<Gate>) {
    let mut tick = tokio::time::interval(REPORT_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        gate.report_legacy_keys().await;
    }
}

impl Gate {
    async fn report_legacy_keys(&self) {
        let mut records = Vec::new();
        for record in self.legacy_keys().take() {
            // A report without the last poll is better than no report.
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
                "reports of old keys were dropped"
            );
        }
    }
}
