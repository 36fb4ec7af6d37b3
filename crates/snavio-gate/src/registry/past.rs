//! The registry as it was, by the changes since (REG-5, REG-17).

use snavio_model::bounds;
use snavio_model::name::TenantName;
use snavio_model::registry::{Differences, Horizons, Involved};
use snavio_model::time::Timestamp;
use snavio_store::StoreError;
use tokio::sync::{Mutex, MutexGuard};

use crate::Gate;

/// For how long claims were kept, as far as the changelog was read: all of it with the first question, and what is new with
/// every other.
#[derive(Default)]
pub(crate) struct KeptSince(Mutex<Horizons>);

impl Gate {
    /// Whether every claim of what was sent at a time, or at any, would still be kept: at a destination, or at all where such
    /// claims can be.
    pub async fn keeps_all(
        &self,
        involved: Involved<'_>,
        destination: Option<&str>,
        sent_at: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        let horizons = self.horizons().await?;
        let now = self.clock().now();
        // Who sends may be ahead by as much as the window allows; a time to come is none.
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

    /// Whether a destination was ever registered at which such claims can be.
    pub async fn was_destination(
        &self,
        destination: &str,
        involved: Involved<'_>,
    ) -> Result<bool, StoreError> {
        Ok(self.horizons().await?.was_registered(destination, involved))
    }

    /// Whether claims are made at a destination, or ever were.
    pub async fn ever_claimed_at(&self, destination: &str) -> Result<bool, StoreError> {
        Ok(self.horizons().await?.ever_claimed_at(destination))
    }

    /// Whether a destination that claims was there at a time.
    pub async fn was_claiming_at(&self, destination: &str, at: Timestamp) -> Result<bool, StoreError> {
        Ok(self.horizons().await?.was_claiming_at(destination, at))
    }

    /// Whether what came to a destination at a time was claimed there, or may have been.
    pub async fn may_have_claimed_at(&self, destination: &str, at: Timestamp) -> Result<bool, StoreError> {
        Ok(self.horizons().await?.may_have_claimed_at(destination, at))
    }

    /// All of the changelog, read to its end.
    async fn horizons(&self) -> Result<MutexGuard<'_, Horizons>, StoreError> {
        let mut horizons = self.kept_since.0.lock().await;
        loop {
            let changes = self.store().changes_since(horizons.version(), bounds::PAGE_MAX).await?;
            changes.iter().for_each(|it| horizons.add(it));
            if changes.is_empty() {
                return Ok(horizons);
            }
        }
    }

    /// What differs between two versions; nothing if there are more changes between them than this.
    pub async fn differences(
        &self,
        from: i64,
        to: i64,
        most: usize,
    ) -> Result<Option<Differences>, StoreError> {
        let (mut differences, mut since, mut count) = (Differences::default(), from, 0);
        while since < to {
            let changes = self.store().changes_since(since, bounds::PAGE_MAX).await?;
            let Some(last) = changes.last() else { break };
            since = last.version;
            for change in changes.into_iter().take_while(|change| change.version <= to) {
                differences.add(change);
                // Of the changes, not of the versions: a restore skips many.
                count += 1;
            }
            if count > most {
                return Ok(None);
            }
        }
        Ok(Some(differences))
    }
}
