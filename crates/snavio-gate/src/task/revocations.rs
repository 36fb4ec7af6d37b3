//! What was sent by a permission that had been taken back already (REG-17): a node learns of a revocation a moment
//! after it was made. One node reads from the log who was quicker, and tells of each message once.

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

/// How often it is looked whether there is something to tell.
const AUDITING: Duration = Duration::from_secs(1);
/// How long a node audits for all before it is asked again whether it lives.
const AUDITOR_TERM: Duration = Duration::from_secs(10);
/// The note that says up to which version of the registry everything was told.
const POSITION: &str = "revocations/audited";
/// Records of one step for one tenant: how many more there were stands in the last.
const RECORDS_MAX: usize = 10_000;

/// What an auditor keeps from one step to the next.
#[derive(Default)]
pub(crate) struct Auditing(Mutex<Option<Registry>>);

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

    /// Records of what was sent in spite of these changes after a version; nothing while this node does not know all of
    /// them.
    async fn late_by(&self, version: i64, due: &[Change]) -> Result<Option<Vec<Record>>, StoreError> {
        let mut kept = self.auditing.0.lock().await;
        let revocations: Vec<_> = due.iter().filter_map(Revocation::of).collect();
        let Some(last) = due.last().map(|change| change.version) else { return Ok(None) };
        // Of another version if another node has audited meanwhile.
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
        // Those that were told of already come first: what was sent in spite of them is not told again.
        let mut all = self.revocations_before(version, due).await?;
        all.extend(revocations);
        let records = self.judge(&all, then.clone(), &used).await?;
        *kept = Some(then.with(due, &*self.unseal));
        Ok(Some(records))
    }

    /// What every use was sent in spite of, as records: by the registry of its very moment. Whatever was told of before
    /// was revoked by the version that it begins with.
    async fn judge(
        &self,
        all: &[Revocation],
        mut then: Registry,
        used: &[Use],
    ) -> Result<Vec<Record>, StoreError> {
        let told_up_to = then.version();
        let mut late: BTreeMap<&str, Vec<(&Revocation, &Use)>> = BTreeMap::new();
        let (mut coming, mut is_more) = (VecDeque::new(), true);
        for it in used {
            loop {
                if coming.is_empty() && is_more {
                    coming.extend(self.store().changes_since(then.version(), bounds::PAGE_MAX).await?);
                    is_more = coming.len() == bounds::PAGE_MAX;
                }
                let Some(change) = coming.pop_front_if(|change: &mut Change| change.at <= it.settled_at)
                else {
                    break;
                };
                then = then.with(&[change], &*self.unseal);
            }
            let of_it = Revocation::told_of(all, &then, by(it));
            for revocation in of_it.into_iter().filter(|it| it.version > told_up_to) {
                late.entry(revocation.told_to(by(it))).or_default().push((revocation, it));
            }
        }
        Ok(late.into_values().flat_map(|late| tell(&late, self.clock().now())).collect())
    }

    /// The registry as it was at a version a moment ago.
    async fn registry_at(&self, version: i64, registry: &Registry) -> Result<Registry, StoreError> {
        let differences =
            self.differences(version, registry.version(), usize::MAX).await?.unwrap_or_default();
        Ok(differences.undo(registry, version))
    }

    /// The revocations up to a version that a message may have been sent in spite of as well: those of a while, among
    /// the last changes.
    async fn revocations_before(&self, version: i64, due: &[Change]) -> Result<Vec<Revocation>, StoreError> {
        let Some(first) = due.first() else { return Ok(Vec::new()) };
        let from = (version - bounds::PAGE_MAX as i64).max(0);
        let changes = self.store().changes_since(from, bounds::PAGE_MAX).await?;
        let is_recent = |change: &&Change| {
            change.version <= version && change.at.plus(2 * bounds::REVOCATION_SETTLED) >= first.at
        };
        Ok(changes.iter().filter(is_recent).filter_map(Revocation::of).collect())
    }

    /// Reads off the log what was sent by permissions after they were taken back.
    async fn used_since(&self, revocations: &[Revocation]) -> Result<Vec<Use>, StoreError> {
        let mut senders: BTreeMap<&str, Vec<&Revocation>> = BTreeMap::new();
        for revocation in revocations {
            senders.entry(revocation.senders()).or_default().push(revocation);
        }
        let mut found = Vec::new();
        for (sender, revocations) in senders {
            let Some(first) = revocations.iter().map(|it| it.at).min() else { continue };
            let mut before = Serial(i64::MAX);
            loop {
                let page = self.store().uses(sender, before, bounds::PAGE_MAX).await?;
                let Some(oldest) = page.last() else { break };
                before = oldest.number;
                // Batches overlap: what is a little older may stand behind what is younger.
                let is_past = oldest.settled_at.plus(bounds::REVOCATION_SETTLED) < first;
                found.extend(page.into_iter().filter(|it| revocations.iter().any(|r| r.touches(by(it)))));
                if is_past {
                    break;
                }
            }
        }
        Ok(found)
    }
}

fn by(it: &Use) -> Used<'_> {
    let Use { kind, source, target, name, registry_version, settled_at, .. } = it;
    let (kind, registry_version, settled_at) = (*kind, *registry_version, *settled_at);
    Used { kind, source, target, name, key_version: it.key_version.as_ref(), registry_version, settled_at }
}

/// The records for one tenant.
fn tell(late: &[(&Revocation, &Use)], now: Timestamp) -> Vec<Record> {
    metrics::counter!("snavio_executed_after_revoked_total").increment(late.len() as u64);
    let more = late.len().saturating_sub(RECORDS_MAX);
    let told = late.iter().take(RECORDS_MAX).enumerate();
    let record = |(place, (revocation, it)): (usize, &(&Revocation, &Use))| {
        tracing::warn!(
            source = %it.source, target = %it.target, name = %it.name, id = %it.id,
            what = revocation.what.as_str(), stale_seconds = revocation.stale_for(it.settled_at).as_secs_f64(),
            "a message was executed after its permission was revoked"
        );
        let more = if place + 1 == RECORDS_MAX { more } else { 0 };
        let late = telemetry::Late { id: &it.id, correlation: &it.correlation, used: by(it), more };
        telemetry::executed_after_revoked(revocation, &late, now)
    };
    told.filter_map(record).collect()
}
