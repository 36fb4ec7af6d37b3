//! Writes snapshots, for all nodes of a store: objects first, then the manifest that names them, in the place of the
//! one that was seen before (REG-20). A node that ends in between leaves the snapshot before as it was.

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

use super::pack::{Packed, Packer, unfit};
use super::reader::last_change;
use super::{Snapshots, Trouble, refuse};
use crate::Gate;

/// How often a node looks whether it writes.
const LOOKING: Duration = Duration::from_secs(5);
/// How long a node writes for all before it is asked again whether it lives.
const TERM: Duration = Duration::from_secs(20);
/// Versions that stay, with the newest: somebody may be reading them.
const VERSIONS_KEPT: usize = 3;

/// Writes a snapshot every so often, for as long as the gate lives.
pub(crate) async fn write_snapshots(gate: Arc<Gate>, snapshots: Arc<Snapshots>) {
    let looking = LOOKING.min(snapshots.interval);
    let mut tick = tokio::time::interval(looking);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut writer = Writer { gate, snapshots, written: None, told_of: BTreeSet::new() };
    let mut began: Option<Instant> = None;
    loop {
        tick.tick().await;
        if !writer.gate.leads("snapshots", TERM).await {
            began = None;
            continue;
        }
        // At the look that is nearest to the time.
        if began.is_none_or(|at| at.elapsed() + looking / 2 >= writer.snapshots.interval) {
            began = Some(Instant::now());
            writer.write().await;
        }
    }
}

struct Writer {
    gate: Arc<Gate>,
    snapshots: Arc<Snapshots>,
    /// The last one that was written here.
    written: Option<Manifest>,
    /// Tenants who were told that their entries are left out.
    told_of: BTreeSet<String>,
}

/// What is to be named by the next manifest.
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
                            "no snapshot was written: the last one stays"
                        );
                    }
                    _ => tracing::warn!(cause, error, "no snapshot was written: the last one stays"),
                }
            }
        }
    }

    async fn try_write(&mut self) -> Result<(), Trouble> {
        // From here on the registry may change: what is written is right for this moment.
        let generated_at = self.gate.clock().now();
        self.gate.refresh_registry().await?;
        let registry = self.gate.registry();
        let (seen, there) = self.look(&registry).await?;
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

    /// What is there now. What cannot be used is told of and replaced; another environment's, and one that is ahead
    /// of the store, are not this writer's to replace.
    async fn look(&self, registry: &Registry) -> Result<(Option<Seen>, Option<Manifest>), Trouble> {
        let Some(found) = self.snapshots.latest().await? else { return Ok((None, None)) };
        let manifest = match self.snapshots.verify(&found.bytes) {
            Ok(manifest) => manifest,
            Err(fault) => {
                refuse(&fault.into());
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

    /// What the last manifest names, if it is the one that is there, of this version, and its objects are as they
    /// were written.
    async fn unchanged(&self, there: Option<&Manifest>, registry: &Registry) -> Option<Content> {
        let (there, written) = (there?, self.written.as_ref()?);
        if there != written {
            let (version, floor) = (there.version_id, written.version_id);
            if version < floor {
                refuse(&Fault::RolledBack { version, floor }.into());
            }
            return None;
        }
        if written.version_id != registry.version() {
            return None;
        }
        for object in &written.objects {
            let looked_at = match self.snapshots.fetch(object).await {
                Ok(bytes) => {
                    judge_object(object, written.version_id, &bytes).map(|_| ()).map_err(Trouble::from)
                }
                Err(trouble) => Err(trouble),
            };
            if let Err(trouble) = looked_at {
                refuse(&trouble);
                return None;
            }
        }
        Some(Content { objects: written.objects.clone(), left_out: written.left_out.clone() })
    }

    async fn write_objects(&mut self, registry: &Arc<Registry>, at: Timestamp) -> Result<Content, Trouble> {
        let whole = Arc::clone(registry);
        let unfit = apart(move || unfit(&whole)).await?;
        self.tell(&unfit, at);
        let left_out: BTreeSet<_> = unfit.into_keys().collect();
        let names =
            left_out.iter().map(|name| if name.is_empty() { "the platform" } else { name }.to_owned());
        let mut content = Content { objects: Vec::new(), left_out: names.collect() };
        let mut packer = Packer::new(Arc::clone(registry), Arc::new(left_out));
        let (mut bytes, bytes_max) = (0, self.snapshots.bytes_max);
        loop {
            let packed;
            (packed, packer) = apart(move || (packer.next(), packer)).await?;
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

    /// Tells of owners whose entries are left out, once for each (REG-22).
    fn tell(&mut self, unfit: &BTreeMap<String, String>, at: Timestamp) {
        metrics::gauge!("snavio_snapshot_left_out").set(unfit.len() as f64);
        self.told_of.retain(|owner| unfit.contains_key(owner));
        for (owner, why) in unfit {
            if !self.told_of.insert(owner.clone()) {
                continue;
            }
            tracing::error!(tenant = owner, why, "entries of a tenant are left out of the snapshot");
            if let Ok(tenant) = TenantName::new(owner) {
                self.gate.tell(telemetry::left_out(tenant, why, at));
            }
        }
    }

    /// Removes objects of versions that nobody can be reading any more.
    async fn remove_old(&self, newest: i64) -> Result<(), Trouble> {
        let keys = self.snapshots.objects.keys("registry").await?;
        let of_version: Vec<_> =
            keys.into_iter().filter_map(|key| Some((version_of_key(&key)?, key))).collect();
        let versions: BTreeSet<_> =
            of_version.iter().map(|(version, _)| *version).filter(|it| *it <= newest).collect();
        let kept: BTreeSet<_> = versions.into_iter().rev().take(VERSIONS_KEPT).collect();
        let is_old = |version: &i64| *version < newest && !kept.contains(version);
        let old: Vec<_> =
            of_version.into_iter().filter(|(version, _)| is_old(version)).map(|it| it.1).collect();
        Ok(self.snapshots.objects.delete(&old).await?)
    }
}

/// Does what takes long on a thread of its own.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Trouble> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Trouble::Unfinished)
}
