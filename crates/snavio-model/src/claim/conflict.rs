//! Conflicts: an id that was used for two contents (CLM-8, CLM-12, CLM-13), and what people make of it.

use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::hash::DomainHash;
use crate::id::{MessageId, Serial};
use crate::name::{ServiceName, TenantName};
use crate::time::Timestamp;

/// Where a conflict stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ConflictState {
    /// Nobody has looked at it.
    Open,
    /// Somebody has.
    Triaged,
    /// What came first is right.
    ResolvedAcceptOriginal,
    /// What came second is right: a reversal under a new id says so.
    ResolvedAcceptNew,
    /// The producer sent nonsense.
    ResolvedInvalidProducer,
}

impl ConflictState {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Open,
        Self::Triaged,
        Self::ResolvedAcceptOriginal,
        Self::ResolvedAcceptNew,
        Self::ResolvedInvalidProducer,
    ];

    /// The word in answers and stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Triaged => "TRIAGED",
            Self::ResolvedAcceptOriginal => "RESOLVED_ACCEPT_ORIGINAL",
            Self::ResolvedAcceptNew => "RESOLVED_ACCEPT_NEW",
            Self::ResolvedInvalidProducer => "RESOLVED_INVALID_PRODUCER",
        }
    }

    /// Takes back what [`ConflictState::as_str`] gave.
    pub fn stored(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == text)
    }

    /// Whether somebody still has to do something.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::Triaged)
    }

    /// Whether a conflict may be moved there (CLM-12): looked at first, then resolved, and that for good.
    pub fn may_become(self, next: Self) -> bool {
        match self {
            Self::Open => next == Self::Triaged,
            Self::Triaged => !next.is_open(),
            _ => false,
        }
    }
}

/// An id that was used for a second content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Its id, in the order of the log. The conflicting message has the number of the first one that was made of it.
    pub id: Serial,
    /// Which of those under this id it is, from 1.
    pub place: u32,
    /// The tenant whose id it is: the sender's.
    pub tenant: TenantName,
    /// Whose affair it is: the tenant of the target.
    pub owner: TenantName,
    /// The id that means two things.
    pub event_id: MessageId,
    /// Where the conflicting message was going.
    pub destination: std::sync::Arc<str>,
    /// Who sent the conflicting message.
    pub source: ServiceName,
    /// The message that was first,
    pub original: Serial,
    /// what it says,
    pub original_hash: DomainHash,
    /// and what the conflicting one says.
    pub hash: DomainHash,
    /// The dead letter with the conflicting message.
    pub dead_letter: Serial,
    /// When it was noticed.
    pub flagged_at: Timestamp,
    /// When it was sent last.
    pub last_seen_at: Timestamp,
    /// How often it was sent; of the last one under an id that has as many as may be recorded, together with all others.
    pub count: u64,
    /// Where it stands,
    pub state: ConflictState,
    /// what people wrote, newest last,
    pub notes: String,
    /// and the event that makes up for it, where the new content was accepted.
    pub compensating: Option<MessageId>,
}

/// What somebody wants to do with a conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Where it shall stand.
    pub to: ConflictState,
    /// Why.
    pub note: String,
    /// The event that makes up for it.
    pub compensating: Option<MessageId>,
}

/// Why a conflict does not move.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Immovable {
    /// Somebody else was first, or it is not a move at all.
    #[error("the conflict is {}, from where it does not become {}", from.as_str(), to.as_str())]
    State {
        /// Where it stands.
        from: ConflictState,
        /// Where it was to stand.
        to: ConflictState,
    },
    /// Every move says why.
    #[error("a note is required, of one line and at most {} bytes", bounds::CONFLICT_NOTE_BYTES_MAX)]
    Note,
    /// CLM-13
    #[error("RESOLVED_ACCEPT_NEW requires the id of a compensating event, which is not the id in conflict")]
    Compensation,
    /// CLM-13: nobody has seen it.
    #[error(
        "no compensating event of this id has come to a destination of yours that claims: send the reversal first, then name it while its claim is kept"
    )]
    Unsent,
    /// CLM-13: what was there before made up for nothing.
    #[error(
        "the event of this id came before the conflict was noticed, so it does not make up for it: send a reversal under a new id"
    )]
    SentBefore,
    /// CLM-13: one reversal makes up for one posting.
    #[error("conflict {0} names this event already: send a reversal of its own for this one")]
    Named(Serial),
    /// Nothing is made up for.
    #[error("only RESOLVED_ACCEPT_NEW has a compensating event")]
    NoCompensation,
}

/// What a conflict is about. What the id means by another time, and what another tenant must decide, is another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispute {
    /// The message that was first,
    pub original: Serial,
    /// and whether its number was given in this very batch.
    pub is_original_new: bool,
    /// Whose destination it went to.
    pub owner: TenantName,
    /// What the other one says.
    pub hash: DomainHash,
}

impl Dispute {
    /// Whether only their contents differ.
    pub fn is_beside(&self, other: &Self) -> bool {
        *self == Self { hash: self.hash, ..other.clone() }
    }
}

impl Conflict {
    /// What it is about, once it is on record.
    pub fn dispute(&self) -> Dispute {
        let (owner, hash) = (self.owner.clone(), self.hash);
        Dispute { original: self.original, is_original_new: false, owner, hash }
    }

    /// Whether an event that came at these times, or did not come, can make up for it (CLM-13).
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
        // A line of its own would look like another's note.
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
    fn a_conflict_makes_only_the_moves_of_the_contract() {
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
    fn what_came_before_a_conflict_does_not_make_up_for_it() {
        let conflict = Conflict { flagged_at: Timestamp(1000), ..conflict(ConflictState::Triaged) };
        for (first_seen, told) in [
            (vec![], Err(Immovable::Unsent)),
            (vec![999], Err(Immovable::SentBefore)),
            (vec![1000], Ok(())),
            (vec![5, 1001], Ok(())),
        ] {
            let times = first_seen.iter().copied().map(Timestamp);
            assert_eq!(conflict.check_reversal(times), told, "{first_seen:?}");
        }
    }

    /// CLM-12, CLM-13
    #[test]
    fn a_move_says_why_and_the_new_content_needs_a_reversal() {
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
