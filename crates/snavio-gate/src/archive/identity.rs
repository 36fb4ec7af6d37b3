//! The identity of an archive. The pointers and rows of a store refer to one archive. With another archive,
//! missing objects would look deleted. So an object in the archive has the archive's name, and the store pins
//! the name of the first archive that it used.

use std::fmt;

use snavio_model::archive::Fault;
use snavio_store::objects::ObjectsError;
use snavio_store::{ARCHIVE_UNCONFIRMED, Store};

use super::{Archive, Trouble};

/// The object with the archive's name.
pub(super) const IDENTITY: &str = "claims/identity";
/// The name of the pin in the store.
const PIN: &str = "archive";
const BYTES_MAX: usize = 256;

/// The name that an archive has, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said(pub Option<String>);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("nothing"))
    }
}

impl Archive {
    /// Checks that this is the archive of the store and of no other store. A store without an archive takes
    /// this one.
    pub(super) async fn identify(&self, store: &dyn Store) -> Result<(), Trouble> {
        if let Some(since) = store.note(ARCHIVE_UNCONFIRMED).await? {
            return Err(Trouble::Copy { since });
        }
        let pinned = store.pinned(PIN).await?;
        let mut found = self.stored_name().await?;
        let own = match pinned {
            Some(own) => own,
            None => {
                let name = match found {
                    Some(name) => name,
                    None => self.set_name().await?,
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

    async fn stored_name(&self) -> Result<Option<String>, Trouble> {
        let Some(found) = self.objects.get(IDENTITY, BYTES_MAX).await? else { return Ok(None) };
        let name = String::from_utf8_lossy(&found.bytes).trim().to_owned();
        if name.is_empty() {
            return Err(Fault::Altered { object: IDENTITY.to_owned() }.into());
        }
        Ok(Some(name))
    }

    /// Names the archive, unless another node does so first, and returns its name.
    async fn set_name(&self) -> Result<String, Trouble> {
        match self.objects.replace(IDENTITY, self.name.clone().into(), None).await {
            Ok(()) => Ok(self.name.clone()),
            Err(ObjectsError::Changed { .. }) => {
                self.stored_name().await?.ok_or_else(|| Trouble::Missing { object: IDENTITY.to_owned() })
            }
            Err(error) => Err(error.into()),
        }
    }
}
