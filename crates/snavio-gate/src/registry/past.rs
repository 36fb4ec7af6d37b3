//! Earlier states of the registry, computed from the changelog (REG-5, REG-17).

use snavio_model::bounds;
use snavio_model::name::TenantName;
use snavio_model::registry::{Differences, Horizons, Involved};
use snavio_model::time::Timestamp;
use snavio_store::StoreError;
use tokio::sync::{Mutex, MutexGuard};

use crate::Gate;

/// The retention of claims over time, as far as the changelog was read. The first query reads the whole
/// changelog, and each later query reads the new changes.
#[derive(Default)]
pub(crate) struct KeptSince(Mutex<Horizons>);

impl Gate {
    /// Whether every claim of a message that was sent at a time, or at any time, would still be kept: at a
    /// destination, or at every destination where such claims can be.
    pub async fn keeps_all(
        &self,
        involved: Involved<'_>,
        destination: Option<&str>,
        sent_at: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        let horizons = self.horizons().await?;
        let now = self.clock().now();
        // A sender's clock may be ahead by as much as the replay window. A time in the future is ignored.
        let sent_at = sent_at.filter(|at| *at <= now.plus(self.window())).map(|at| at.minus(self.window()));
        Ok(match destination {
            Some(destination) => horizons.keep_all_at(destination, sent_at, now),
            None => horizons.keep_all_of(involved, sent_at, now),
        })
    }

    /// Every tenant that was ever registered.
    pub async fn tenants_ever(&self) -> Result<Vec<TenantName>, StoreError> {
        Ok(self.horizons().await?.tenants().cloned().collect())
    }

    /// Whether a destination where such claims can be was ever registered.
    pub async fn was_destination(
        &self,
        destination: &str,
        involved: Involved<'_>,
    ) -> Result<bool, StoreError> {
        Ok(self.horizons().await?.was_registered(destination, involved))
    }

    /// Whether a destination makes claims, or ever made them.
    pub async fn ever_claimed_at(&self, destination: &str) -> Result<bool, StoreError> {
        Ok(self.horizons().await?.ever_claimed_at(destination))
    }

    /// Whether a destination that makes claims existed at a time.
    pub async fn was_claiming_at(&self, destination: &str, at: Timestamp) -> Result<bool, StoreError> {
        Ok(self.horizons().await?.was_claiming_at(destination, at))
    }

    /// Whether a message that came to a destination at a time was claimed there, or may have been.
    pub async fn may_have_claimed_at(&self, destination: &str, at: Timestamp) -> Result<bool, StoreError> {
        Ok(self.horizons().await?.may_have_claimed_at(destination, at))
    }

    /// Reads the changelog to its end.
    async fn horizons(&self) -> Result<MutexGuard<'_, Horizons>, StoreError> {
        let mut horizons = self.kept_since.0.lock().await;
        loop {
            let changes = self.store().changes_since(horizons.version(), bounds::PAGE_MAX).await?;
            changes.iter().for_each(|change| horizons.add(change));
            if changes.is_empty() {
                return Ok(horizons);
            }
        }
    }

    /// The differences between two versions, or `None` if there are more than `max` changes between them.
    pub async fn differences(
        &self,
        from: i64,
        to: i64,
        max: usize,
    ) -> Result<Option<Differences>, StoreError> {
        let (mut differences, mut since, mut count) = (Differences::default(), from, 0);
        while since < to {
            let changes = self.store().changes_since(since, bounds::PAGE_MAX).await?;
            let Some(last) = changes.last() else { break };
            since = last.version;
            for change in changes.into_iter().take_while(|change| change.version <= to) {
                differences.add(change);
                // Count the changes and not the versions, because a restore skips many versions.
                count += 1;
            }
            if count > max {
                return Ok(None);
            }
        }
        Ok(Some(differences))
    }
}
