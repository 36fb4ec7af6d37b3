//! Reads a snapshot when a node starts. The snapshot is verified from the signature to the last entry, or not
//! used at all.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use snavio_model::bounds;
use snavio_model::registry::snapshot::{Fault, Manifest, Object, Scope, Standard, latest_key, trail};
use snavio_model::registry::{Entry, Registry, Unseal};
use snavio_model::time::Clock;
use snavio_store::Store;
use snavio_store::objects::Found;
use tokio::time::Instant;

use super::{Snapshots, Trouble, floor, pack, report_refused};
use crate::Loaded;

/// A slower snapshot is no help; the node loads the store instead.
const LOAD_MAX: Duration = Duration::from_secs(60);
/// Objects that are fetched and read at the same time.
const OBJECTS_AT_ONCE: usize = 4;

impl Snapshots {
    /// The registry of the newest snapshot, or `None` if there is no usable one. Then the registry is loaded
    /// from the store. This method asks the store only one small question and reads no entries from it
    /// (REG-23).
    pub async fn load(&self, store: &dyn Store, clock: &dyn Clock, unseal: &dyn Unseal) -> Option<Loaded> {
        let began = Instant::now();
        let read = tokio::time::timeout(LOAD_MAX, self.read(store, clock, unseal)).await;
        match read.unwrap_or(Err(Trouble::Slow(LOAD_MAX))) {
            Ok(Some(loaded)) => {
                let (version, entries) = (loaded.registry.version(), loaded.registry.count());
                let took_ms = began.elapsed().as_millis() as u64;
                tracing::info!(version, entries, took_ms, "the registry was read from a snapshot");
                Some(loaded)
            }
            Ok(None) => {
                tracing::info!("there is no snapshot: the registry is loaded from the store");
                None
            }
            Err(trouble) => {
                report_refused(&trouble);
                None
            }
        }
    }

    async fn read(
        &self,
        store: &dyn Store,
        clock: &dyn Clock,
        unseal: &dyn Unseal,
    ) -> Result<Option<Loaded>, Trouble> {
        let floor = floor::read(&self.floor_file, &self.environment)?;
        let Some(found) = self.latest().await? else { return Ok(None) };
        let manifest = self.verify(&found.bytes)?;
        let (environment, now) = (&*self.environment, clock.now());
        manifest.judge(&Standard { floor, environment, now, bytes_max: self.bytes_max })?;
        self.check_history(&manifest, store).await?;
        let registry = self.read_objects(&manifest, unseal).await?;
        if floor < manifest.version_id {
            floor::raise(&self.floor_file, &self.environment, manifest.version_id)?;
        }
        // The writer's clock may be ahead. The registry counts as no younger than now, or it would stay valid
        // for too long.
        Ok(Some(Loaded { registry, current_at: manifest.generated_at.min(now) }))
    }

    /// The current manifest in the storage, if there is one.
    pub(super) async fn latest(&self) -> Result<Option<Found>, Trouble> {
        Ok(self.objects.get(latest_key(), bounds::SNAPSHOT_MANIFEST_BYTES_MAX).await?)
    }

    /// Checks that the store was once in the state of the snapshot, because the changes since then are read
    /// from the store. A store that was restored to an earlier state has another history from there on.
    async fn check_history(&self, manifest: &Manifest, store: &dyn Store) -> Result<(), Trouble> {
        let version = manifest.version_id;
        if version > store.version().await? || last_change(store, version).await? != manifest.last_change {
            return Err(Fault::OtherHistory { version }.into());
        }
        Ok(())
    }

    async fn read_objects(&self, manifest: &Manifest, unseal: &dyn Unseal) -> Result<Registry, Trouble> {
        let version = manifest.version_id;
        let mut registry = Registry::default().at_version(version);
        let read = manifest.objects.iter().map(|object| self.read_object(object, version));
        let mut read = futures_util::stream::iter(read).buffered(OBJECTS_AT_ONCE);
        let none = BTreeSet::new();
        while let Some(entries) = read.try_next().await? {
            for entry in entries {
                if let Some(problem) = (Scope { registry: &registry, left_out: &none }).problem(&entry) {
                    return Err(Fault::Malformed { what: format!("{}: {problem}", entry.key()) }.into());
                }
                registry.put(entry, unseal);
            }
        }
        match registry.count() as u64 == manifest.entries() {
            true => Ok(registry),
            false => Err(Fault::Malformed { what: "an entry occurs twice".to_owned() }.into()),
        }
    }

    async fn read_object(&self, object: &Object, version: i64) -> Result<Vec<Entry>, Trouble> {
        let bytes = self.fetch(object).await?;
        let object = object.clone();
        let unpacked = tokio::task::spawn_blocking(move || pack::unpack(&object, version, &bytes)).await;
        Ok(unpacked.map_err(|_| Trouble::Unfinished)??)
    }

    /// The bytes of an object. They are not verified yet.
    pub(super) async fn fetch(&self, object: &Object) -> Result<bytes::Bytes, Trouble> {
        let found = self.objects.get(&object.key, bounds::SNAPSHOT_OBJECT_BYTES_MAX).await?;
        let missing = || Fault::Missing { key: object.key.clone() };
        Ok(found.ok_or_else(missing)?.bytes)
    }
}

/// The fingerprint of the change that led to a version. `None` for versions without a change: the version of
/// an empty registry, and a version that a restore made.
pub(super) async fn last_change(store: &dyn Store, version: i64) -> Result<Option<String>, Trouble> {
    let changes = store.changes_since(version - 1, 1).await?;
    Ok(changes.first().filter(|change| change.version == version).map(trail))
}
