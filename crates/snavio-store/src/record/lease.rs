//! The lease of a delivery that a claim waits for, as it is kept: it outlives the process that gave it (CLM-7).

use snavio_model::id::Serial;
use snavio_model::time::Timestamp;

/// Under which lease a delivery was handed out last, and how long it is hidden for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeptLease {
    /// The delivery.
    pub(crate) delivery: Serial,
    /// How often it was handed out.
    pub(crate) receives: u32,
    /// Of the newest lease; nothing before the first one, or if it was given before leases were kept.
    pub(crate) fence: Option<Serial>,
    /// Why it is hidden; nothing if it is not.
    pub(crate) held: Option<Held>,
    /// Until when it is hidden, or since when not; nothing if that was not noted.
    pub(crate) visible_at: Option<Timestamp>,
}

/// Why a delivery is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// Somebody works on it, or its time is over and that is not on record yet.
    Leased,
    /// It was given back for later.
    Delayed,
}

impl Held {
    /// The word in stores.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Leased => "leased",
            Self::Delayed => "delayed",
        }
    }

    /// Takes back what [`Held::as_str`] gave.
    pub(crate) fn stored(word: &str) -> Option<Self> {
        [Self::Leased, Self::Delayed].into_iter().find(|it| it.as_str() == word)
    }
}
