//! Writes snapshots for all nodes of a store (REG-20): objects first, and then the manifest that names them,
//! which replaces the manifest that was read before. If the node ends in between, the previous snapshot stays
//! valid.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use snavio_model::name::TenantName;
use snavio_model::registry::Registry;
use snavio_model::registry::snapshot::{
    Fault, Manifest, Object, judge_object, latest_key, publish, version_of_key,
};
use snavio_model::time::Timestamp;
use snavio_model::{bounds, telemetry};
use snavio_store::objects::Seen;
use tokio::time::{Instant, MissedTickBehavior};

use super::pack::{Packed, Packer, unreadable_owners};
use super::reader::last_change;
use super::{Snapshots, Trouble, report_refused};
use crate::Gate;

/// The interval at which a node checks whether it leads and must write.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The term for which a node leads the task without renewal.
const TERM: Duration = Duration::from_secs(20);
/// The number of versions that are kept, with the newest: another node may be reading them.
const VERSIONS_KEPT: usize = 3;

/// Writes a snapshot at each interval until the gate stops.
pub(crate) async fn write_snapshots(gate: Arc<Gate>, snapshots: Arc<Snapshots>) {
    let check_interval = CHECK_INTERVAL.min(snapshots.interval);
    let mut tick = tokio::time::interval(check_interval);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut writer = Writer { gate, snapshots, written: None, reported_owners: BTreeSet::new() };
    let mut began: Option<Instant> = None;
    loop {
        tick.tick().await;
        if !writer.gate.leads("snapshots", TERM).await {
            began = None;
            continue;
        }
        // At the check that is nearest to the due time.
        if began.is_none_or(|at| at.elapsed() + check_interval / 2 >= writer.snapshots.interval) {
            began = Some(Instant::now());
            writer.write().await;
        }
    }
}

struct Writer {
    gate: Arc<Gate>,
    snapshots: Arc<Snapshots>,
    /// The last manifest that this node wrote.
    written: Option<Manifest>,
    /// The owners that are reported as left out.
    reported_owners: BTreeSet<String>,
}

/// The content of the next manifest.
struct Content {
    objects: Vec<Object>,
    left_out: Vec<String>,
}

impl Writer {
    async fn write(&mut self) {
        let began = Instant::now();
        match self.try_write().await {
            Ok(()) => {
                metrics::counter!("snavio_snapshots_written_total").increment(1);
                metrics::histogram!("snavio_snapshot_write_seconds").record(began.elapsed());
            }
            Err(trouble) => {
                let (cause, error) = (trouble.cause(), &trouble as &dyn std::error::Error);
                metrics::counter!("snavio_snapshot_write_failures_total", "cause" => cause).increment(1);
                match trouble {
                    Trouble::TooLarge { bytes, bytes_max } => {
                        let event = "snavio.snapshot.too_large";
                        tracing::error!(
                            event,
                            bytes,
                            bytes_max,
                            error,
                            "no snapshot was written; the previous one stays"
                        );
                    }
                    _ => tracing::warn!(cause, error, "no snapshot was written; the previous one stays"),
                }
            }
        }
    }

    async fn try_write(&mut self) -> Result<(), Trouble> {
        // The registry may change from here on: the snapshot is valid for this moment.
        let generated_at = self.gate.clock().now();
        self.gate.refresh_registry().await?;
        let registry = self.gate.registry();
        let (seen, there) = self.read_current(&registry).await?;
        let content = match self.unchanged(there.as_ref(), &registry).await {
            Some(content) => content,
            None => self.write_objects(&registry, generated_at).await?,
        };
        let Snapshots { environment, ttl, .. } = &*self.snapshots;
        let mut manifest = Manifest::new(registry.version(), generated_at, environment, *ttl);
        manifest.objects = content.objects;
        manifest.left_out = content.left_out;
        manifest.audit_head = self.gate.store().last_seal().await?.map(|seal| hex::encode(&seal.head));
        manifest.last_change = last_change(&**self.gate.store(), registry.version()).await?;
        let unfit = |error: serde_json::Error| Fault::Malformed { what: error.to_string() };
        let published = publish(&manifest, &self.snapshots.keys.signing()).map_err(unfit)?;
        self.snapshots.objects.replace(latest_key(), published.into(), seen.as_ref()).await?;
        let (version, bytes, entries) = (manifest.version_id, manifest.bytes(), manifest.entries());
        metrics::gauge!("snavio_snapshot_bytes").set(bytes as f64);
        tracing::debug!(version, bytes, entries, "a snapshot was written");
        self.written = Some(manifest);
        if let Err(trouble) = self.remove_old(version).await {
            let error = &trouble as &dyn std::error::Error;
            tracing::warn!(error, "old snapshots could not be removed");
        }
        Ok(())
    }

    /// Reads the manifest that is there now. An invalid one is reported and will be replaced. One of another
    /// environment, or one that is ahead of the store, must not be replaced.
    async fn read_current(&self, registry: &Registry) -> Result<(Option<Seen>, Option<Manifest>), Trouble> {
        let Some(found) = self.snapshots.latest().await? else { return Ok((None, None)) };
        let manifest = match self.snapshots.verify(&found.bytes) {
            Ok(manifest) => manifest,
            Err(fault) => {
                report_refused(&fault.into());
                return Ok((Some(found.seen), None));
            }
        };
        if manifest.environment != self.snapshots.environment {
            return Err(Fault::OtherEnvironment { named: manifest.environment }.into());
        }
        if manifest.version_id > registry.version() {
            return Err(Trouble::Ahead { there: manifest.version_id, own: registry.version() });
        }
        Ok((Some(found.seen), Some(manifest)))
    }

    /// The content of the last manifest, if it is still the current one, has this version, and its objects
    /// are unchanged.
    async fn unchanged(&self, there: Option<&Manifest>, registry: &Registry) -> Option<Content> {
        let (there, written) = (there?, self.written.as_ref()?);
        if there != written {
            let (version, floor) = (there.version_id, written.version_id);
            if version < floor {
                report_refused(&Fault::RolledBack { version, floor }.into());
            }
            return None;
        }
        if written.version_id != registry.version() {
            return None;
        }
        for object in &written.objects {
            let verified = match self.snapshots.fetch(object).await {
                Ok(bytes) => {
                    judge_object(object, written.version_id, &bytes).map(|_| ()).map_err(Trouble::from)
                }
                Err(trouble) => Err(trouble),
            };
            if let Err(trouble) = verified {
                report_refused(&trouble);
                return None;
            }
        }
        Some(Content { objects: written.objects.clone(), left_out: written.left_out.clone() })
    }

    async fn write_objects(&mut self, registry: &Arc<Registry>, at: Timestamp) -> Result<Content, Trouble> {
        let whole = Arc::clone(registry);
        let unreadable = run_blocking(move || unreadable_owners(&whole)).await?;
        self.report_left_out(&unreadable, at);
        let left_out: BTreeSet<_> = unreadable.into_keys().collect();
        let names =
            left_out.iter().map(|name| if name.is_empty() { "the platform" } else { name }.to_owned());
        let mut content = Content { objects: Vec::new(), left_out: names.collect() };
        let mut packer = Packer::new(Arc::clone(registry), Arc::new(left_out));
        let (mut bytes, bytes_max) = (0, self.snapshots.bytes_max);
        loop {
            let packed;
            (packed, packer) = run_blocking(move || (packer.next(), packer)).await?;
            let Some(Packed { object, bytes: content_bytes }) = packed? else { break };
            bytes += object.bytes;
            if bytes > bytes_max {
                return Err(Trouble::TooLarge { bytes, bytes_max });
            }
            self.snapshots.objects.put(&object.key, content_bytes).await?;
            content.objects.push(object);
        }
        if bytes * 100 >= bytes_max.saturating_mul(bounds::SNAPSHOT_NEAR_LIMIT_PERCENT) {
            tracing::warn!(
                bytes,
                bytes_max,
                "the snapshot is close to the bytes it may have: raise snapshot.bytes_max"
            );
        }
        Ok(content)
    }

    /// Reports owners whose entries are left out, once for each (REG-22).
    fn report_left_out(&mut self, unreadable: &BTreeMap<String, String>, at: Timestamp) {
        metrics::gauge!("snavio_snapshot_left_out").set(unreadable.len() as f64);
        self.reported_owners.retain(|owner| unreadable.contains_key(owner));
        for (owner, why) in unreadable {
            if !self.reported_owners.insert(owner.clone()) {
                continue;
            }
            tracing::error!(tenant = owner, why, "entries of a tenant are left out of the snapshot");
            if let Ok(tenant) = TenantName::new(owner) {
                self.gate.record_telemetry(telemetry::left_out(tenant, why, at));
            }
        }
    }

    /// Removes the objects of versions that are too old to be in use.
    async fn remove_old(&self, newest: i64) -> Result<(), Trouble> {
        let keys = self.snapshots.objects.keys("registry").await?;
        let of_version: Vec<_> =
            keys.into_iter().filter_map(|key| Some((version_of_key(&key)?, key))).collect();
        let versions: BTreeSet<_> =
            of_version.iter().map(|(version, _)| *version).filter(|version| *version <= newest).collect();
        let kept: BTreeSet<_> = versions.into_iter().rev().take(VERSIONS_KEPT).collect();
        let is_old = |version: &i64| *version < newest && !kept.contains(version);
        let old: Vec<_> =
            of_version.into_iter().filter(|(version, _)| is_old(version)).map(|(_, key)| key).collect();
        Ok(self.snapshots.objects.delete(&old).await?)
    }
}

/// Runs long work on a blocking thread.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Trouble> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Trouble::Unfinished)
}
