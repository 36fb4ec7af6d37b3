//! What was sent by a permission that had been taken back already (REG-17): a node learns of a revocation a moment
//! after it was made. One node reads from the log who was quicker, and tells of each message once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use snavio_model::id::Serial;
use snavio_model::limits;
use snavio_model::registry::{Change, Differences, Registry, Revocation, Revoked, Used};
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
        let is_due = |change: &&Change| {
            let at = Revocation::of(change).map_or(change.at, |revocation| revocation.at);
            now >= at.plus(limits::REVOCATION_SETTLED)
        };
        let due = changes.iter().take_while(is_due).count();
        let Some(last) = changes[..due].last() else { return Ok(false) };
        let Some(taken) = self.taken_back(version, &changes[..due]).await? else { return Ok(false) };
        let mut records = Vec::new();
        for taken in taken.values() {
            self.gather_late(taken, now, &mut records).await?;
        }
        store.move_note(POSITION, position.as_deref(), &last.version.to_string(), records).await?;
        Ok(due == limits::PAGE_MAX)
    }

    /// What these changes after a version took back, by the tenant that may have sent by it, oldest first; nothing while
    /// this node does not know all of them.
    async fn taken_back(
        &self,
        version: i64,
        due: &[Change],
    ) -> Result<Option<BTreeMap<String, Vec<Taken>>>, StoreError> {
        let mut taken: BTreeMap<_, Vec<_>> = BTreeMap::new();
        if !due.iter().any(|change| Revocation::of(change).is_some()) {
            return Ok(Some(taken));
        }
        let registry = self.registry();
        if due.last().is_some_and(|last| last.version > registry.version()) {
            return Ok(None);
        }
        let mut then = self.registry_before(&registry, version).await?;
        for change in due {
            then = then.with(std::slice::from_ref(change), &*self.unseal);
            if let Some(revocation) = Revocation::of(change) {
                let of_sender = taken.entry(revocation.senders().to_owned()).or_default();
                of_sender.push(Taken { revocation, then: then.clone() });
            }
        }
        Ok(Some(taken))
    }

    /// The registry as it was at a version a moment ago.
    async fn registry_before(&self, registry: &Registry, version: i64) -> Result<Registry, StoreError> {
        let (mut differences, mut since) = (Differences::default(), version);
        while since < registry.version() {
            let changes = self.store().changes_since(since, limits::PAGE_MAX).await?;
            let Some(last) = changes.last() else { break };
            since = last.version;
            let known = changes.into_iter().take_while(|change| change.version <= registry.version());
            known.for_each(|change| differences.add(change));
        }
        Ok(differences.undo(registry, version))
    }

    /// Reads off the log what one tenant sent by permissions after they were taken back.
    async fn gather_late(
        &self,
        taken: &[Taken],
        now: Timestamp,
        records: &mut Vec<Record>,
    ) -> Result<(), StoreError> {
        let first = taken.iter().min_by_key(|it| it.revocation.at);
        let Some(Revocation { at: first_at, .. }) = first.map(|it| &it.revocation) else { return Ok(()) };
        let Some(senders) = taken.first().map(|it| it.revocation.senders()) else { return Ok(()) };
        let mut before = Serial(i64::MAX);
        loop {
            let page = self.store().uses(senders, before, limits::PAGE_MAX).await?;
            let Some(oldest) = page.last() else { return Ok(()) };
            before = oldest.number;
            for used in &page {
                // Once, whatever else was taken back too.
                let Some(Taken { revocation, .. }) = taken.iter().find(|it| it.is_late(used)) else {
                    continue;
                };
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
            // Batches overlap: what is a little older may stand behind what is younger.
            if oldest.settled_at.plus(limits::REVOCATION_SETTLED) < *first_at {
                return Ok(());
            }
        }
    }
}

/// What was taken back, and the registry right after it.
struct Taken {
    revocation: Revocation,
    then: Registry,
}

impl Taken {
    fn is_late(&self, it: &Use) -> bool {
        let Use { source, target, name, key_version, .. } = it;
        it.registry_version < self.revocation.version
            && it.settled_at >= self.revocation.at
            && self.revocation.covers(Used { source, target, name, key_version })
            && !self.is_granted(it)
    }

    /// Whether another grant permitted what the revoked one did. One that was given later is none.
    fn is_granted(&self, it: &Use) -> bool {
        let Revoked::Grant { .. } = self.revocation.what else { return false };
        let target = self.then.service(it.target.as_str());
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
