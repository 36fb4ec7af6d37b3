//! Telemetry of messages without a commit of their own (refusals, duplicates). It is gathered by source and
//! reason within bounds, counted when it is dropped, and written with a later commit (TEL-2). A crash loses
//! the records since the last write, at most a quarter of a second. Accepted messages are never reported this
//! way.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use snavio_model::bounds;
use snavio_model::name::{ServiceName, TenantName};
use snavio_model::telemetry::Record;

/// Records that wait for a commit.
#[derive(Default)]
pub(crate) struct Gathering(Mutex<Gathered>);

#[derive(Default)]
struct Gathered {
    records: Vec<Record>,
    by_tenant: HashMap<TenantName, usize>,
    by_cause: HashMap<(Option<ServiceName>, &'static str, String), Cause>,
}

#[derive(Default)]
struct Cause {
    kept: usize,
    suppressed: u64,
    last: usize,
}

impl Gathering {
    /// Adds a record, or only counts it if there are too many of its cause.
    pub(crate) fn add(&self, record: Record) {
        let mut gathered = self.lock();
        let reason =
            record.body.get("reason").and_then(|reason| reason.as_str()).unwrap_or_default().to_owned();
        let place = gathered.records.len();
        let tenant_count = *gathered.by_tenant.entry(record.tenant.clone()).or_default();
        let full = place >= bounds::TELEMETRY_GATHERED_MAX
            || tenant_count >= bounds::TELEMETRY_GATHERED_MAX / bounds::TENANT_PART;
        let cause = gathered.by_cause.entry((record.source.clone(), record.kind, reason)).or_default();
        if cause.kept >= bounds::TELEMETRY_PER_CAUSE_MAX || full {
            cause.suppressed += 1;
            metrics::counter!("snavio_telemetry_suppressed_total").increment(1);
            return;
        }
        cause.kept += 1;
        cause.last = place;
        gathered.by_tenant.insert(record.tenant.clone(), tenant_count + 1);
        gathered.records.push(record);
    }

    /// Takes all records. The last record of a cause has the number of the suppressed ones.
    pub(crate) fn take(&self) -> Vec<Record> {
        let mut gathered = std::mem::take(&mut *self.lock());
        for cause in gathered.by_cause.values().filter(|cause| cause.suppressed > 0) {
            if let Some(record) = gathered.records.get_mut(cause.last).filter(|_| cause.kept > 0) {
                record.body.insert("suppressed".into(), cause.suppressed.into());
            }
        }
        gathered.records
    }

    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use snavio_model::refusal::{Reason, Refusal, Subject};
    use snavio_model::telemetry::refused;
    use snavio_model::time::Timestamp;

    use super::*;

    fn record(source: &str, reason: Reason) -> Record {
        let source = ServiceName::new(source).unwrap();
        refused(&source, &Subject::default(), &Refusal::new(reason, ""), Timestamp(0)).unwrap()
    }

    /// TEL-2, PIP-9
    #[test]
    fn tenant_fills_only_its_own_share() {
        let gathering = Gathering::default();
        for n in 0..bounds::TELEMETRY_GATHERED_MAX {
            gathering.add(record(&format!("acme/s{}", n % 200), Reason::HmacInvalid));
        }
        gathering.add(record("zeta/calm", Reason::HmacInvalid));
        let part = bounds::TELEMETRY_GATHERED_MAX / bounds::TENANT_PART;
        assert_eq!(gathering.take().len(), part + 1);
    }

    /// TEL-2
    #[test]
    fn flood_of_one_cause_is_bounded_and_counted() {
        let gathering = Gathering::default();
        for _ in 0..250 {
            gathering.add(record("acme/flood", Reason::HmacInvalid));
        }
        gathering.add(record("acme/flood", Reason::AclDeny));
        gathering.add(record("acme/calm", Reason::HmacInvalid));
        let records = gathering.take();
        assert_eq!(records.len(), bounds::TELEMETRY_PER_CAUSE_MAX + 2);
        assert_eq!(records[99].body["suppressed"], 150);
        assert!(gathering.take().is_empty());
    }
}
