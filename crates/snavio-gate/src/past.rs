//! The registry as it was, by the changes since (REG-5, REG-17).

use snavio_model::limits;
use snavio_model::registry::Differences;
use snavio_store::StoreError;

use crate::Gate;

impl Gate {
    /// What differs between two versions; nothing if there are more changes between them than this.
    pub async fn differences(
        &self,
        from: i64,
        to: i64,
        most: usize,
    ) -> Result<Option<Differences>, StoreError> {
        let (mut differences, mut since, mut count) = (Differences::default(), from, 0);
        while since < to {
            let changes = self.store().changes_since(since, limits::PAGE_MAX).await?;
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
