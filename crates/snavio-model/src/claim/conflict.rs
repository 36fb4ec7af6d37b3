//! Conflicts: one id with two contents (CLM-8, CLM-12, CLM-13), and the decisions of people about them.

use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::hash::DomainHash;
use crate::id::{MessageId, Serial};
use crate::name::{ServiceName, TenantName};
use crate::time::Timestamp;

/// The state of a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ConflictState {
    /// No person has examined it.
    Open,
    /// A person has examined it.
    Triaged,
    /// The first content is right.
    ResolvedAcceptOriginal,
    /// The second content is right. A reversal under a new id corrects the first.
    ResolvedAcceptNew,
    /// The message is the producer's mistake.
    ResolvedInvalidProducer,
}

impl ConflictState {
    pub const ALL: [Self; 5] = [
        Self::Open,
        Self::Triaged,
        Self::ResolvedAcceptOriginal,
        Self::ResolvedAcceptNew,
        Self::ResolvedInvalidProducer,
    ];

    /// The name in responses and stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Triaged => "TRIAGED",
            Self::ResolvedAcceptOriginal => "RESOLVED_ACCEPT_ORIGINAL",
            Self::ResolvedAcceptNew => "RESOLVED_ACCEPT_NEW",
            Self::ResolvedInvalidProducer => "RESOLVED_INVALID_PRODUCER",
        }
    }

    /// The state with this name in stores.
    pub fn stored(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether a person still has to decide.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::Triaged)
    }

    /// Whether a conflict may move to the state `next` (CLM-12): a person triages it first, then resolves it
    /// for good.
    pub fn may_become(self, next: Self) -> bool {
        match self {
            Self::Open => next == Self::Triaged,
            Self::Triaged => !next.is_open(),
            _ => false,
        }
    }
}

/// One id with a second content, for one tenant that must decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Its number, in the order of the log. The conflicting message has the number of its first conflict.
    pub id: Serial,
    /// Its position among the conflicts under this id, from 1.
    pub place: u32,
    /// The sender's tenant, which owns the id.
    pub tenant: TenantName,
    /// The tenant that must decide: the tenant of the target.
    pub owner: TenantName,
    /// The id with two contents.
    pub event_id: MessageId,
    /// The destination of the conflicting message.
    pub destination: std::sync::Arc<str>,
    /// The sender of the conflicting message.
    pub source: ServiceName,
    /// The first message.
    pub original: Serial,
    /// The content hash of the first message.
    pub original_hash: DomainHash,
    /// The content hash of the conflicting message.
    pub hash: DomainHash,
    /// The dead letter with the conflicting message.
    pub dead_letter: Serial,
    pub flagged_at: Timestamp,
    /// When the conflicting content was sent last.
    pub last_seen_at: Timestamp,
    /// The number of times that it was sent. The last conflict of an id that has reached the cap also counts
    /// all further contents.
    pub count: u64,
    pub state: ConflictState,
    /// The notes of people, the newest last.
    pub notes: String,
    /// The compensating event, if the new content was accepted.
    pub compensating: Option<MessageId>,
}

/// A person's request to change the state of a conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The new state.
    pub to: ConflictState,
    pub note: String,
    /// The compensating event.
    pub compensating: Option<MessageId>,
}

/// Why the state of a conflict does not change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Immovable {
    /// Another person was first, or there is no such move.
    #[error("the conflict is {}, from where it does not become {}", from.as_str(), to.as_str())]
    State { from: ConflictState, to: ConflictState },
    /// Every move needs a note.
    #[error("a note is required, of one line and at most {} bytes", bounds::CONFLICT_NOTE_BYTES_MAX)]
    Note,
    /// CLM-13
    #[error("RESOLVED_ACCEPT_NEW requires the id of a compensating event, which is not the id in conflict")]
    Compensation,
    /// CLM-13: the compensating event is unknown.
    #[error(
        "no destination of your tenant has a claim of a compensating event with this id: send the reversal first, then name it while its claim is kept"
    )]
    Unsent,
    /// CLM-13: an event from before the conflict compensates for nothing.
    #[error(
        "the event of this id came before the conflict was flagged, so it cannot compensate for it: send a reversal under a new id"
    )]
    SentBefore,
    /// CLM-13: one reversal compensates for one posting.
    #[error("conflict {0} already names this event: send a separate reversal for this conflict")]
    Named(Serial),
    /// The other resolutions need no compensation.
    #[error("only RESOLVED_ACCEPT_NEW has a compensating event")]
    NoCompensation,
}

/// The subject of a conflict. Another id record of the same id, or another tenant that must decide, makes
/// another conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispute {
    /// The first message.
    pub original: Serial,
    /// Whether the first message got its number in this batch.
    pub is_original_new: bool,
    /// The tenant of the destination.
    pub owner: TenantName,
    /// The content hash of the conflicting message.
    pub hash: DomainHash,
}

impl Dispute {
    /// Whether the two differ only in the content of the conflicting message.
    pub fn is_beside(&self, other: &Self) -> bool {
        *self == Self { hash: self.hash, ..other.clone() }
    }
}

impl Conflict {
    /// The subject of a recorded conflict.
    pub fn dispute(&self) -> Dispute {
        let (owner, hash) = (self.owner.clone(), self.hash);
        Dispute { original: self.original, is_original_new: false, owner, hash }
    }

    /// Checks that an event can compensate for the conflict (CLM-13). `first_seen` holds the first-seen times
    /// of its claims.
    pub fn check_reversal(&self, first_seen: impl IntoIterator<Item = Timestamp>) -> Result<(), Immovable> {
        match first_seen.into_iter().max() {
            None => Err(Immovable::Unsent),
            Some(latest) if latest < self.flagged_at => Err(Immovable::SentBefore),
            Some(_) => Ok(()),
        }
    }

    /// The conflict after a move (CLM-12, CLM-13).
    pub fn moved(mut self, to: &Move, who: &str, at: Timestamp) -> Result<Self, Immovable> {
        if !self.state.may_become(to.to) {
            return Err(Immovable::State { from: self.state, to: to.to });
        }
        let note = to.note.trim();
        // With a line feed, one person's note could look like another's.
        if note.is_empty() || note.len() > bounds::CONFLICT_NOTE_BYTES_MAX || note.contains(char::is_control)
        {
            return Err(Immovable::Note);
        }
        match (&to.compensating, to.to) {
            (Some(id), ConflictState::ResolvedAcceptNew) if *id != self.event_id => {}
            (_, ConflictState::ResolvedAcceptNew) => return Err(Immovable::Compensation),
            (Some(_), _) => return Err(Immovable::NoCompensation),
            (None, _) => {}
        }
        if !self.notes.is_empty() {
            self.notes.push('\n');
        }
        self.notes.push_str(&format!("{at} {who}: {}: {note}", to.to.as_str()));
        self.state = to.to;
        self.compensating.clone_from(&to.compensating);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict(state: ConflictState) -> Conflict {
        Conflict {
            id: Serial(7),
            place: 1,
            tenant: TenantName::new("acme").unwrap(),
            owner: TenantName::new("acme").unwrap(),
            event_id: MessageId::stored("e-1"),
            destination: "acme/ledger:post".into(),
            source: "acme/billing".parse().unwrap(),
            original: Serial(5),
            original_hash: DomainHash([1; 32]),
            hash: DomainHash([2; 32]),
            dead_letter: Serial(8),
            flagged_at: Timestamp(0),
            last_seen_at: Timestamp(0),
            count: 1,
            state,
            notes: String::new(),
            compensating: None,
        }
    }

    fn to(to: ConflictState, note: &str, compensating: Option<&str>) -> Move {
        Move { to, note: note.to_owned(), compensating: compensating.map(MessageId::stored) }
    }

    /// CLM-12
    #[test]
    fn conflict_makes_only_the_moves_of_the_contract() {
        use ConflictState::*;
        let resolved = [ResolvedAcceptOriginal, ResolvedAcceptNew, ResolvedInvalidProducer];
        for from in ConflictState::ALL {
            for next in ConflictState::ALL {
                let allowed = from == Open && next == Triaged || from == Triaged && resolved.contains(&next);
                let compensating = (next == ResolvedAcceptNew).then_some("e-2");
                let moved = conflict(from).moved(&to(next, "looked at", compensating), "anna", Timestamp(0));
                assert_eq!(moved.is_ok(), allowed, "{from:?} to {next:?}");
                assert_eq!(ConflictState::stored(next.as_str()), Some(next));
            }
        }
    }

    /// CLM-13
    #[test]
    fn event_from_before_a_conflict_cannot_compensate() {
        let conflict = Conflict { flagged_at: Timestamp(1000), ..conflict(ConflictState::Triaged) };
        for (first_seen, expected) in [
            (vec![], Err(Immovable::Unsent)),
            (vec![999], Err(Immovable::SentBefore)),
            (vec![1000], Ok(())),
            (vec![5, 1001], Ok(())),
        ] {
            let times = first_seen.iter().copied().map(Timestamp);
            assert_eq!(conflict.check_reversal(times), expected, "{first_seen:?}");
        }
    }

    /// CLM-12, CLM-13
    #[test]
    fn move_needs_a_note_and_new_content_a_reversal() {
        use ConflictState::*;
        for (next, note, compensating, fault) in [
            (ResolvedAcceptNew, "right", Some("e-2"), None),
            (ResolvedAcceptNew, "right", Some("e-1"), Some(Immovable::Compensation)),
            (ResolvedAcceptNew, "right", None, Some(Immovable::Compensation)),
            (ResolvedAcceptOriginal, "right", Some("e-2"), Some(Immovable::NoCompensation)),
            (ResolvedAcceptOriginal, " ", None, Some(Immovable::Note)),
            (ResolvedAcceptOriginal, "a\nb", None, Some(Immovable::Note)),
            (ResolvedAcceptOriginal, &"x".repeat(4097), None, Some(Immovable::Note)),
            (ResolvedInvalidProducer, "wrong", None, None),
        ] {
            let moved = conflict(Triaged).moved(&to(next, note, compensating), "anna", Timestamp(0));
            assert_eq!(moved.err(), fault, "{next:?} {note} {compensating:?}");
        }
        let triaged = conflict(Open).moved(&to(Triaged, "looking", None), "anna", Timestamp(0)).unwrap();
        let done =
            triaged.moved(&to(ResolvedInvalidProducer, "sent twice", None), "ben", Timestamp(1000)).unwrap();
        let lines: Vec<_> = done.notes.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[1].ends_with("ben: RESOLVED_INVALID_PRODUCER: sent twice"), "{lines:?}");
    }
}
