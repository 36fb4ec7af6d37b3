//! What was sent by a permission that had been taken back already (REG-17): a node learns of a revocation a moment
//! after it was made. One node reads from the log who was quicker, and tells of each message once.

use std::sync::Arc;
use std::time::Duration;

use snavio_model::id::Serial;
use snavio_model::limits;
use snavio_model::registry::{Revocation, Revoked, Used};
use snavio_model::telemetry::{self, Record};
use snavio_model::time::Timestamp;
use snavio_store::{StoreError, Use};
use tokio::time::MissedTickBehavior;

use crate::Gate;

/// How often it is looked whether there is something to tell.
const AUDITING: Duration = Duration::from_secs(1);
/// How long a node audits for all before it is asked again whether it lives.
const AUDITOR_TERM: Duration = Duration::from_secs(10);
/// The note that says up to which version of the registry everything was told.
const POSITION: &str = "revocations/audited";
/// Records of one step: what is more is counted and logged.
const RECORDS_MAX: usize = 10_000;

/// Tells of what was sent too late, for as long as the gate lives.
pub(crate) async fn audit(gate: Arc<Gate>) {
    let mut tick = tokio::time::interval(AUDITING);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        // By a time that is not to be trusted it would tell too early.
        if gate.holds_sweeps() || !gate.leads("auditor", AUDITOR_TERM).await {
            continue;
        }
        loop {
            match gate.audit_revocations().await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "revocations could not be audited"
                    );
                    break;
                }
            }
        }
    }
}

impl Gate {
    /// Takes one step; true when there may be more to do. The records and the step are one commit, so that each use
    /// is told of once whoever crashes when.
    pub(crate) async fn audit_revocations(&self) -> Result<bool, StoreError> {
        let store = self.store();
        let position = store.note(POSITION).await?;
        let Some(version) = position.as_deref().and_then(|text| text.parse().ok()) else {
            // Nothing is known of the time before.
            let now = store.version().await?.to_string();
            store.move_note(POSITION, position.as_deref(), &now, Vec::new()).await?;
            return Ok(false);
        };
        let changes = store.changes_since(version, limits::PAGE_MAX).await?;
        let now = self.clock().now();
        let due = changes.iter().take_while(|it| now >= it.at.plus(limits::REVOCATION_SETTLED));
        let due: Vec<_> = due.collect();
        let Some(last) = due.last() else { return Ok(false) };
        let mut records = Vec::new();
        for revocation in due.iter().filter_map(|change| Revocation::of(change)) {
            self.gather_late(&revocation, now, &mut records).await?;
        }
        store.move_note(POSITION, position.as_deref(), &last.version.to_string(), records).await?;
        Ok(due.len() == changes.len() && changes.len() == limits::PAGE_MAX)
    }

    /// Reads off the log what was sent by a permission after it was taken back.
    async fn gather_late(
        &self,
        revocation: &Revocation,
        now: Timestamp,
        records: &mut Vec<Record>,
    ) -> Result<(), StoreError> {
        let mut before = Serial(i64::MAX);
        loop {
            let page = self.store().uses(revocation.senders(), before, limits::PAGE_MAX).await?;
            let Some(oldest) = page.last() else { return Ok(()) };
            before = oldest.number;
            // Batches overlap: what is a little older may stand behind what is younger.
            let is_past = oldest.settled_at.plus(limits::REVOCATION_SETTLED) < revocation.at;
            for used in page.iter().filter(|used| self.is_late(revocation, used)) {
                metrics::counter!("snavio_executed_after_revoked_total").increment(1);
                let late = revocation.stale_for(used.settled_at);
                tracing::warn!(
                    source = %used.source, target = %used.target, name = %used.name, id = %used.id,
                    what = revocation.what.as_str(), stale_seconds = late.as_secs_f64(),
                    "a command was executed after its permission was revoked"
                );
                if records.len() < RECORDS_MAX {
                    records.extend(record(revocation, used, now));
                }
            }
            if is_past {
                return Ok(());
            }
        }
    }

    fn is_late(&self, revocation: &Revocation, it: &Use) -> bool {
        let Use { source, target, name, key_version, .. } = it;
        let is_by_it = it.registry_version < revocation.version && it.settled_at >= revocation.at;
        is_by_it
            && revocation.covers(Used { source, target, name, key_version })
            && !self.is_granted(revocation, it)
    }

    /// Whether another grant permits what the revoked one did.
    fn is_granted(&self, revocation: &Revocation, it: &Use) -> bool {
        let Revoked::Grant { .. } = revocation.what else { return false };
        let registry = self.registry();
        let target = registry.service(it.target.as_str());
        target.is_some_and(|view| view.grant(&it.source, &it.name, it.settled_at).is_some())
    }
}

fn record(revocation: &Revocation, used: &Use, now: Timestamp) -> Option<Record> {
    let late = telemetry::Late {
        id: &used.id,
        source: &used.source,
        target: &used.target,
        name: &used.name,
        correlation: &used.correlation,
        registry_version: used.registry_version,
        settled_at: used.settled_at,
    };
    telemetry::executed_after_revoked(revocation, &late, now)
}
