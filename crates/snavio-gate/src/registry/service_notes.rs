//! Notes about services that are kept in the store beside the registry, for all nodes. They are deleted when
//! their service is gone, because a later service of the same name is another service.

use snavio_model::bounds;
use snavio_model::name::ServiceName;
use snavio_store::StoreError;

use crate::Gate;

/// A kind of note about a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceNote {
    /// The expiring key that the service was warned about (REG-12).
    Ending,
    /// The time at which the service last asked for its configuration (REG-11).
    Polled,
    /// The signed configuration requests that were accepted recently (REG-11).
    Signed,
}

impl ServiceNote {
    const ALL: [Self; 3] = [Self::Ending, Self::Polled, Self::Signed];

    fn prefix(self) -> &'static str {
        match self {
            Self::Ending => "ending/",
            Self::Polled => "polled/",
            Self::Signed => "signed/",
        }
    }

    /// The name of this note about a service.
    pub fn of(self, service: &ServiceName) -> String {
        format!("{}{service}", self.prefix())
    }

    /// The service that a note is about, if the name is one of a service note.
    fn subject(name: &str) -> Option<&str> {
        Self::ALL.iter().find_map(|note| name.strip_prefix(note.prefix()))
    }
}

impl Gate {
    /// Reads one page of notes after this name, and deletes the notes of services that are not registered.
    /// Returns the name to continue after; it is empty after the last page.
    pub async fn forget_services(&self, after: &str) -> Result<String, StoreError> {
        let notes = self.store().notes_after(after, bounds::PAGE_MAX).await?;
        // Refresh only after reading the notes. Otherwise the notes of a service that was registered
        // meanwhile could be deleted. A note that was changed since it was read is kept, because its value
        // differs.
        self.refresh_registry().await?;
        let registry = self.registry();
        for (name, value) in &notes {
            if ServiceNote::subject(name).is_some_and(|service| registry.service(service).is_none()) {
                self.store().remove_note(name, value).await?;
            }
        }
        let is_last = notes.len() < bounds::PAGE_MAX;
        Ok(notes.into_iter().next_back().filter(|_| !is_last).map(|(name, _)| name).unwrap_or_default())
    }
}
