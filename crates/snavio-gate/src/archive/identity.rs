//! Which archive is whose. Pointers and rows of a store are about one place; over another one, what is not there would be
//! taken for deleted. So an object says which archive it is, and the store has it pinned: the first one that it used.

use std::fmt;

use snavio_model::archive::Fault;
use snavio_store::objects::ObjectsError;
use snavio_store::{ARCHIVE_UNCONFIRMED, Store};

use super::{Archive, Trouble};

/// The object that says which archive it is.
pub(super) const IDENTITY: &str = "claims/identity";
/// What the store calls it.
const PIN: &str = "archive";
const BYTES_MAX: usize = 256;

/// What an archive says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said(pub Option<String>);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("nothing"))
    }
}

impl Archive {
    /// Whether this is the archive of the store, and of no other. One that has none yet takes this one.
    pub(super) async fn identify(&self, store: &dyn Store) -> Result<(), Trouble> {
        if let Some(since) = store.note(ARCHIVE_UNCONFIRMED).await? {
            return Err(Trouble::Copy { since });
        }
        let pinned = store.pinned(PIN).await?;
        let mut found = self.said().await?;
        let own = match pinned {
            Some(own) => own,
            None => {
                let name = match found {
                    Some(name) => name,
                    None => self.name_it().await?,
                };
                found = Some(name.clone());
                store.pin(PIN, &name).await?
            }
        };
        if found.as_deref() == Some(&own) {
            return Ok(());
        }
        Err(Trouble::Foreign { own, found: Said(found) })
    }

    async fn said(&self) -> Result<Option<String>, Trouble> {
        let Some(found) = self.objects.get(IDENTITY, BYTES_MAX).await? else { return Ok(None) };
        let name = String::from_utf8_lossy(&found.bytes).trim().to_owned();
        if name.is_empty() {
            return Err(Fault::Altered { object: IDENTITY.to_owned() }.into());
        }
        Ok(Some(name))
    }

    /// Gives it a name, unless somebody else does so first.
    async fn name_it(&self) -> Result<String, Trouble> {
        match self.objects.replace(IDENTITY, self.name.clone().into(), None).await {
            Ok(()) => Ok(self.name.clone()),
            Err(ObjectsError::Changed { .. }) => {
                self.said().await?.ok_or_else(|| Trouble::Missing { object: IDENTITY.to_owned() })
            }
            Err(error) => Err(error.into()),
        }
    }
}
