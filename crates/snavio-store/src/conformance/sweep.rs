//! The expiry sweep deletes expired records in bounded steps, so that the store does not grow without end
//! (CLM-19, TEL-4).

use std::sync::Arc;

use snavio_model::bounds;
use snavio_model::id::Serial;
use snavio_model::refusal::{Reason, Refusal, Subject};
use snavio_model::telemetry::refused;

use super::samples::at;
use crate::{Store, Swept};

pub(super) async fn sweep(store: &dyn Store, now: i64) -> Swept {
    let mut all = Swept::default();
    loop {
        let swept = store.sweep(at(now)).await.expect("the store sweeps");
        assert!(swept.claims <= bounds::SWEEP_ROWS_MAX, "a sweep is bounded");
        all.claims += swept.claims;
        all.telemetry += swept.telemetry;
        if !swept.is_partial() {
            return all;
        }
    }
}

/// TEL-4, TEL-1
pub async fn expired_telemetry_is_deleted_and_counted(store: &Arc<dyn Store>) {
    let source = "acme/billing".parse().expect("a service");
    let record = |now| refused(&source, &Subject::default(), &Refusal::new(Reason::AclDeny, ""), at(now));
    let records: Vec<_> = [0, 1, 2, 5_000].into_iter().filter_map(record).collect();
    store.record(records).await.expect("they are recorded");
    let retention = i64::try_from(bounds::TELEMETRY_RETENTION.as_secs()).expect("two weeks");
    assert_eq!(sweep(&**store, retention).await.telemetry, 0);
    assert_eq!(sweep(&**store, retention + 3).await.telemetry, 3);
    let records = store.telemetry("acme", Serial(0), 10).await.expect("telemetry can be read");
    let kinds: Vec<_> = records.iter().map(|record| record.kind.as_str()).collect();
    assert_eq!(kinds, ["snavio.command.failed", "snavio.telemetry.dropped"]);
    assert_eq!(
        (&records[1].body["dropped_events"], &records[1].body["reason"]),
        (&3.into(), &"aged_out".into())
    );
    assert_eq!(records[1].body["queue_age_seconds"], retention + 3);
}

/// TEL-1: otherwise one dropped record would be reported for ever.
pub async fn record_of_dropped_telemetry_expires_silently(store: &Arc<dyn Store>) {
    let source = "acme/billing".parse().expect("a service");
    let record = refused(&source, &Subject::default(), &Refusal::new(Reason::AclDeny, ""), at(0));
    store.record(record.into_iter().collect()).await.expect("it is recorded");
    let retention = i64::try_from(bounds::TELEMETRY_RETENTION.as_secs()).expect("two weeks");
    assert_eq!(sweep(&**store, retention + 1).await.telemetry, 1);
    assert_eq!(sweep(&**store, 2 * retention + 2).await.telemetry, 1);
    assert!(store.telemetry("acme", Serial(0), 10).await.expect("telemetry can be read").is_empty());
}

/// TEL-4: this holds for any number of tenants.
pub async fn telemetry_of_every_tenant_expires(store: &Arc<dyn Store>) {
    const TENANTS: usize = bounds::SWEEP_ROWS_MAX + 50;
    let record = |n| {
        let source = format!("tenant-{n}/billing").parse().expect("a service");
        refused(&source, &Subject::default(), &Refusal::new(Reason::AclDeny, ""), at(0))
    };
    store.record((0..TENANTS).filter_map(record).collect()).await.expect("they are recorded");
    let retention = i64::try_from(bounds::TELEMETRY_RETENTION.as_secs()).expect("two weeks");
    let mut swept = 0;
    for _ in 0..3 {
        swept += sweep(&**store, retention + 1).await.telemetry;
    }
    assert_eq!(swept, TENANTS);
}
