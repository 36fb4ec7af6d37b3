//! What is noted of services beside the registry, for all nodes, and forgotten once they are gone: whoever is
//! registered under such a name later is another.

use snavio_model::bounds;
use snavio_model::name::ServiceName;
use snavio_store::StoreError;

use crate::Gate;

/// What is noted of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceNote {
    /// Which of its keys it was told of that end (REG-12).
    Ending,
    /// When it last asked for its configuration (REG-11).
    Polled,
    /// Which of its signed requests were taken lately (REG-11).
    Signed,
}

impl ServiceNote {
    const ALL: [Self; 3] = [Self::Ending, Self::Polled, Self::Signed];

    fn beginning(self) -> &'static str {
        match self {
            Self::Ending => "ending/",
            Self::Polled => "polled/",
            Self::Signed => "signed/",
        }
    }

    /// The name of the note.
    pub fn of(self, service: &ServiceName) -> String {
        format!("{}{service}", self.beginning())
    }

    /// The service that a note of this name is about, if it is about one.
    fn subject(name: &str) -> Option<&str> {
        Self::ALL.iter().find_map(|note| name.strip_prefix(note.beginning()))
    }
}

impl Gate {
    /// Looks at the notes after this one, as many as make a page, and forgets those of services that are not
    /// registered. Says where to go on: the next look after the last page begins anew.
    pub async fn forget_services(&self, after: &str) -> Result<String, StoreError> {
        let notes = self.store().notes_after(after, bounds::PAGE_MAX).await?;
        // Only after that: of a service that was registered meanwhile nothing may be forgotten, and what it changed
        // since then is not what was read.
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
