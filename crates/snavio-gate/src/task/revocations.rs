//! Finds messages that were executed after their permission was revoked (REG-17): a node learns of a
//! revocation a moment after it was made. One node reads such messages from the message log and reports each
//! one once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use snavio_model::bounds;
use snavio_model::id::Serial;
use snavio_model::registry::{Change, Registry, Revocation, Used};
use snavio_model::telemetry::{self, Record};
use snavio_model::time::Timestamp;
use snavio_store::{StoreError, Use};
use tokio::sync::Mutex;
use tokio::time::MissedTickBehavior;

use crate::Gate;

/// The interval of audits.
const AUDITING: Duration = Duration::from_secs(1);
/// The term for which a node leads the audit without renewal.
const AUDITOR_TERM: Duration = Duration::from_secs(10);
/// The note with the registry version up to which everything is reported.
const POSITION: &str = "revocations/audited";
/// The most records of one step for one tenant. The last record has the number of the others.
const RECORDS_MAX: usize = 10_000;

/// The auditor's state between two steps.
#[derive(Default)]
pub(crate) struct Auditing(Mutex<Option<Registry>>);

/// Reports messages after revocations until the gate stops.
pub(crate) async fn audit(gate: Arc<Gate>) {
    let mut tick = tokio::time::interval(AUDITING);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        // With a clock that cannot be trusted it would report too early.
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
    /// Takes one step. Returns true if there may be more to do. The records and the new position are one
    /// commit, so that a crash neither loses nor repeats a report.
    pub(crate) async fn audit_revocations(&self) -> Result<bool, StoreError> {
        let store = self.store();
        let position = store.note(POSITION).await?;
        let Some(version) = position.as_deref().and_then(|text| text.parse().ok()) else {
            // The uses before this version are unknown.
            let now = store.version().await?.to_string();
            store.move_note(POSITION, position.as_deref(), &now, Vec::new()).await?;
            return Ok(false);
        };
        let changes = store.changes_since(version, bounds::PAGE_MAX).await?;
        let now = self.clock().now();
        let is_due = |change: &&Change| {
            let at = Revocation::of(change).map_or(change.at, |revocation| revocation.at);
            now >= at.plus(bounds::REVOCATION_SETTLED)
        };
        let due = &changes[..changes.iter().take_while(is_due).count()];
        let Some(last) = due.last() else { return Ok(false) };
        let Some(records) = self.late_by(version, due).await? else { return Ok(false) };
        store.move_note(POSITION, position.as_deref(), &last.version.to_string(), records).await?;
        Ok(due.len() == bounds::PAGE_MAX)
    }

    /// The records of messages that were executed in spite of these changes after a version; `None` while
    /// this node does not know all of the changes.
    async fn late_by(&self, version: i64, due: &[Change]) -> Result<Option<Vec<Record>>, StoreError> {
        let mut kept = self.auditing.0.lock().await;
        let revocations: Vec<_> = due.iter().filter_map(Revocation::of).collect();
        let Some(last) = due.last().map(|change| change.version) else { return Ok(None) };
        // The kept registry has another version if another node audited meanwhile.
        let before = kept.take().filter(|then| then.version() == version);
        if revocations.is_empty() {
            *kept = before.map(|then| then.with(due, &*self.unseal));
            return Ok(Some(Vec::new()));
        }
        let registry = self.registry();
        if registry.version() < last {
            return Ok(None);
        }
        let then = match before {
            Some(then) => then,
            None => self.registry_at(version, &registry).await?,
        };
        let mut used = self.used_since(&revocations).await?;
        used.sort_by_key(|used| used.settled_at);
        // Revocations that are already reported come first, so that messages after them are not reported
        // again.
        let mut all = self.revocations_before(version, due).await?;
        all.extend(revocations);
        let records = self.judge(&all, then.clone(), &used).await?;
        *kept = Some(then.with(due, &*self.unseal));
        Ok(Some(records))
    }

    /// For every use of a permission, finds the revocations that it ignored, by the registry at that moment.
    /// Revocations up to the version of `then` are already reported.
    async fn judge(
        &self,
        all: &[Revocation],
        mut then: Registry,
        used: &[Use],
    ) -> Result<Vec<Record>, StoreError> {
        let reported_version = then.version();
        let mut late: BTreeMap<&str, Vec<(&Revocation, &Use)>> = BTreeMap::new();
        let (mut coming, mut is_more) = (VecDeque::new(), true);
        for message in used {
            loop {
                if coming.is_empty() && is_more {
                    coming.extend(self.store().changes_since(then.version(), bounds::PAGE_MAX).await?);
                    is_more = coming.len() == bounds::PAGE_MAX;
                }
                let Some(change) = coming.pop_front_if(|change: &mut Change| change.at <= message.settled_at)
                else {
                    break;
                };
                then = then.with(&[change], &*self.unseal);
            }
            let ignored = Revocation::told_of(all, &then, self::used(message));
            for revocation in ignored.into_iter().filter(|revocation| revocation.version > reported_version) {
                late.entry(revocation.told_to(self::used(message))).or_default().push((revocation, message));
            }
        }
        Ok(late.into_values().flat_map(|late| records(&late, self.clock().now())).collect())
    }

    /// The registry at an earlier version.
    async fn registry_at(&self, version: i64, registry: &Registry) -> Result<Registry, StoreError> {
        let differences =
            self.differences(version, registry.version(), usize::MAX).await?.unwrap_or_default();
        Ok(differences.undo(registry, version))
    }

    /// The revocations up to a version that a message may also have ignored: the recent ones among the last
    /// changes.
    async fn revocations_before(&self, version: i64, due: &[Change]) -> Result<Vec<Revocation>, StoreError> {
        let Some(first) = due.first() else { return Ok(Vec::new()) };
        let from = (version - bounds::PAGE_MAX as i64).max(0);
        let changes = self.store().changes_since(from, bounds::PAGE_MAX).await?;
        let is_recent = |change: &&Change| {
            change.version <= version && change.at.plus(2 * bounds::REVOCATION_SETTLED) >= first.at
        };
        Ok(changes.iter().filter(is_recent).filter_map(Revocation::of).collect())
    }

    /// Reads from the message log the uses of permissions after their revocation.
    async fn used_since(&self, revocations: &[Revocation]) -> Result<Vec<Use>, StoreError> {
        let mut senders: BTreeMap<&str, Vec<&Revocation>> = BTreeMap::new();
        for revocation in revocations {
            senders.entry(revocation.senders()).or_default().push(revocation);
        }
        let mut found = Vec::new();
        for (sender, revocations) in senders {
            let Some(first) = revocations.iter().map(|revocation| revocation.at).min() else { continue };
            let mut before = Serial(i64::MAX);
            loop {
                let page = self.store().uses(sender, before, bounds::PAGE_MAX).await?;
                let Some(oldest) = page.last() else { break };
                before = oldest.number;
                // Batches overlap, so that an older message may come after a newer one in the log.
                let is_past = oldest.settled_at.plus(bounds::REVOCATION_SETTLED) < first;
                found.extend(page.into_iter().filter(|message| {
                    revocations.iter().any(|revocation| revocation.touches(used(message)))
                }));
                if is_past {
                    break;
                }
            }
        }
        Ok(found)
    }
}

fn used(message: &Use) -> Used<'_> {
    let Use { kind, source, target, name, key_version, registry_version, settled_at, .. } = message;
    let (kind, registry_version, settled_at) = (*kind, *registry_version, *settled_at);
    Used { kind, source, target, name, key_version: key_version.as_ref(), registry_version, settled_at }
}

/// The telemetry records for one tenant.
fn records(late: &[(&Revocation, &Use)], now: Timestamp) -> Vec<Record> {
    metrics::counter!("snavio_executed_after_revoked_total").increment(late.len() as u64);
    let more = late.len().saturating_sub(RECORDS_MAX);
    let reported = late.iter().take(RECORDS_MAX).enumerate();
    let records = reported.filter_map(|(place, (revocation, message))| {
        tracing::warn!(
            source = %message.source, target = %message.target, name = %message.name, id = %message.id,
            what = revocation.what.as_str(), stale_seconds = revocation.stale_for(message.settled_at).as_secs_f64(),
            "a message was executed after its permission was revoked"
        );
        let more = if place + 1 == RECORDS_MAX { more } else { 0 };
        let late =
            telemetry::Late { id: &message.id, correlation: &message.correlation, used: used(message), more };
        telemetry::executed_after_revoked(revocation, &late, now)
    });
    records.collect()
}
