//! Every "no" of the gateway, and the contract of each in one table.

use std::borrow::Cow;
use std::time::Duration;

use crate::id::{MessageId, Serial};
use crate::message::MessageKind;
use crate::message::trace::{CorrelationId, Journey, Traceparent};
use crate::name::{CommandName, ServiceName};
use crate::time::Timestamp;

/// Why something was refused, in the words of the contract, with what the caller needs to know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", reason.code())]
pub struct Refusal {
    /// Which rule said no.
    pub reason: Reason,
    /// What was wrong with this very message, for a person to read. Never a value that was sent, except names that were
    /// checked to be names.
    pub detail: Cow<'static, str>,
    /// When it makes sense to try again.
    pub retry_after: Option<Duration>,
    /// How far off the clocks were, for refusals about time.
    pub skew: Option<Skew>,
    /// The record of an id that means two things.
    pub conflict: Option<Serial>,
    /// Its number and the last one of its entity, for refusals about order.
    pub numbers: Option<Box<Numbers>>,
    /// Whether something may have been written all the same: the answer to that was lost (MSG-12).
    pub in_doubt: bool,
    /// Whether the same message can never be taken, whatever is registered differently.
    pub is_for_good: bool,
    /// Whether the registry that it was judged by is not the store's any more: it may be judged anew at once.
    pub outdated: bool,
}

/// The distance between the signing time and the receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skew {
    /// The signing time as the message says it.
    pub sent_at: Timestamp,
    /// When the gateway took it.
    pub received_at: Timestamp,
}

/// How a message stands in the order of its entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// Its number.
    pub number: i64,
    /// The highest that was processed.
    pub last: i64,
}

impl Refusal {
    /// A refusal without further hints.
    pub fn new(reason: Reason, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            reason,
            detail: detail.into(),
            retry_after: None,
            skew: None,
            conflict: None,
            numbers: None,
            in_doubt: false,
            is_for_good: false,
            outdated: false,
        }
    }

    /// A refusal that says when to come back.
    pub fn retry(reason: Reason, after: Duration, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { retry_after: Some(after), ..Self::new(reason, detail) }
    }

    /// The answer of somebody who cannot know what became of it.
    pub fn lost(detail: &'static str) -> Self {
        Self { in_doubt: true, ..Self::new(Reason::Unavailable, detail) }
    }
}

/// A message that was refused while it was read, with what was known of it by then, so that the answer and
/// the report can name it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{refusal}")]
pub struct Refused {
    /// What was known of it.
    pub subject: Box<Subject>,
    /// Why.
    pub refusal: Refusal,
}

/// What is known of a message: as much as was read before a "no".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// What kind of message it is, or was sent as.
    pub kind: MessageKind,
    /// Its id.
    pub id: Option<MessageId>,
    /// Its target, in full.
    pub target: Option<ServiceName>,
    /// Its name.
    pub name: Option<CommandName>,
    /// Its correlation id.
    pub correlation: Option<CorrelationId>,
    /// Its trace.
    pub traceparent: Option<Traceparent>,
}

impl Subject {
    /// Something of which only the kind and the journey are known.
    pub fn on(kind: MessageKind, journey: Journey) -> Self {
        let Journey { correlation, traceparent } = journey;
        Self { kind, correlation: Some(correlation), traceparent: Some(traceparent), ..Self::default() }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { subject: Box::default(), refusal }
    }
}

/// How a refusal is reported to its tenant (PIP-14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// The message itself is at fault: `*.invalid`.
    Invalid,
    /// Its sender or the state of things is: `*.failed`.
    Failed,
    /// Not a refusal of a message, or of nobody known.
    Nothing,
}

/// What one reason means to a client.
#[derive(Debug, Clone, Copy)]
pub struct Contract {
    /// The stable code in `reason`.
    pub code: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// A short title, the same for every refusal of this kind.
    pub title: &'static str,
    /// How it is reported.
    pub report: Report,
    /// What the client should do.
    pub advice: &'static str,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $status:literal, $report:ident, $title:literal, $advice:literal;)*) => {
        /// The stable reasons of refusals.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[$doc])* $variant,)*
        }

        impl Reason {
            /// All reasons, in the order of the docs' table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// What this reason promises to a client.
            pub const fn contract(self) -> Contract {
                match self {
                    $(Self::$variant => Contract {
                        code: $code,
                        status: $status,
                        title: $title,
                        report: Report::$report,
                        advice: $advice,
                    },)*
                }
            }
        }
    };
}

reasons! {
    /// Not JSON, or not of the form a message has.
    Malformed = "malformed", 400, Invalid, "Malformed message", "correct the message at the place named";
    /// A member that only the platform sets.
    ReservedField = "reserved_field", 400, Invalid, "Reserved member", "leave out members that only the platform sets";
    /// The same member twice in one object.
    DuplicateMember = "duplicate_member", 400, Invalid, "Repeated member", "send every member of an object once";
    /// A number with too many digits or too large an exponent.
    NumberRange = "number_range", 400, Invalid, "Number out of range", "send the number as text, or with at most 34 digits";
    /// Nested past the limit.
    TooDeep = "too_deep", 400, Invalid, "Nested too deeply", "nest at most 64 levels";
    /// A member that no message has.
    UnknownField = "unknown_field", 400, Invalid, "Unknown member", "leave out the member named, or move it into the payload";
    /// The producer says who it is.
    SourcePresent = "source_present", 400, Invalid, "Source is not the producer's to say", "leave out the source: the gateway fills it in";
    /// Not a name.
    InvalidName = "invalid_name", 400, Invalid, "Invalid name", "use a name of the form described";
    /// Not an id.
    InvalidId = "invalid_id", 400, Invalid, "Invalid id", "use a hyphenated UUID that is not nil for a command, 1 to 128 printable ASCII characters for an event, without a space at either end";
    /// Not a timestamp.
    InvalidTimestamp = "invalid_timestamp", 400, Invalid, "Invalid timestamp", "use RFC 3339 with T and an offset, without leap seconds";
    /// Not a number of a sequence.
    InvalidSequence = "invalid_sequence", 400, Invalid, "Invalid number in its order", "number the messages of an entity with whole numbers from 0 to 9223372036854775807";
    /// Signed too long ago or in the future.
    TimestampOutOfWindow = "timestamp_out_of_window", 401, Invalid, "Signed outside the replay window", "check the clock, renew the timestamp and sign again";
    /// No signature.
    HmacMissing = "hmac_missing", 401, Invalid, "Signature missing", "sign the message with the service's key";
    /// Not the signature of this message under this key.
    HmacInvalid = "hmac_invalid", 401, Invalid, "Signature does not match", "check the secret and the signing text; see the vectors in the docs";
    /// The service has no such key.
    KeyUnknown = "key_unknown", 401, Invalid, "Unknown key version", "use a version_id of this service";
    /// The key is not accepted any more.
    KeyExpired = "key_expired", 401, Invalid, "Key has expired", "fetch the current key and sign again";
    /// A signed request that was taken before.
    Replayed = "replayed", 401, Nothing, "Taken before", "sign a new request, under an id of its own";
    /// Not JSON by its headers, or compressed.
    UnsupportedMediaType = "unsupported_media_type", 415, Invalid, "Content type or encoding not taken", "send the content type named, without a content encoding";
    /// Over the body limit.
    TooLarge = "too_large", 413, Invalid, "Body too large", "split a batch; a larger message belongs in object storage, with a reference to it in the payload";
    /// No credential, or none that holds.
    Unauthenticated = "unauthenticated", 401, Nothing, "Not authenticated", "send a valid bearer token; get one at POST /v1/token";
    /// Too many failed attempts.
    AuthThrottled = "auth_throttled", 429, Nothing, "Too many failed attempts", "wait before you try again";
    /// Too many messages of one sender with wrong signatures or keys.
    SignatureThrottled = "signature_throttled", 429, Nothing, "Too many wrong signatures", "waiting alone does not help: correct what the detail names last; messages signed rightly are taken at once";
    /// The tenant is suspended.
    Suspended = "suspended", 403, Failed, "Tenant is suspended", "ask the platform's operators";
    /// An operator shut the source out.
    Banned = "banned", 403, Failed, "Source is banned", "ask the platform's operators";
    /// No grant for this source, target and name.
    AclDeny = "acl-deny", 403, Failed, "Not granted", "ask the target's owner for a grant; register an event type before it is published";
    /// A grant, but nowhere to go.
    RouteMissing = "route-missing", 404, Failed, "No route", "ask the target's owner to register the route, or a consumer to subscribe";
    /// The store cannot take it now.
    Unavailable = "unavailable", 503, Nothing, "Unavailable", "retry with the same id after the time given";
    /// Too much is waiting already.
    Overloaded = "overloaded", 503, Nothing, "Overloaded", "retry with the same id after the time given";
    /// The id means something else already.
    Conflict = "conflict", 409, Failed, "Conflict", "use a new id for a new message";
    /// A number below the last one of its entity.
    OutOfOrder = "out_of_order", 409, Failed, "Out of order", "do not send it again: a later message of its entity was accepted";
    /// The number of its entity's last message, under another id.
    SequenceConflict = "sequence_conflict", 409, Failed, "Number taken", "number the messages of an entity one by one, and use one id for one message";
    /// Not above the last number of an entity that its completion has closed.
    EntityClosed = "entity_closed", 409, Failed, "Entity is closed", "do not send it again: the completion of its entity was accepted";
    /// The conflict does not make this move, or not any more.
    ConflictState = "conflict_state", 409, Nothing, "Not a move of this conflict", "look where the conflict stands, and try again";
    /// The same message is being processed.
    InProgress = "in_progress", 409, Nothing, "In progress", "ask again after the time given, with the same id, or wait for it with Prefer: wait=10";
    /// It failed, and its next attempt is not due yet.
    RetryLater = "retry_later", 409, Nothing, "Failed, and tried again later", "ask again after the time given, with the same id; it is tried again without that too";
    /// The claim is `IN_DOUBT`.
    OutcomeUnknown = "outcome_unknown", 409, Nothing, "Outcome unknown", "ask the owner of the target, who looks whether it was done: snavio claims settle if it was, snavio claims reprocess if it was not";
    /// The id may have been taken up again since: its claim is over.
    BeyondHorizon = "beyond_horizon", 409, Nothing, "Its claim is over", "make sure that it was not sent and processed again since; then say beyond_horizon, with a reason";
    /// A legal hold is on it.
    Held = "held", 409, Nothing, "Held", "lift the hold first: nothing under it is deleted or erased";
    /// A newer lease or claim was given meanwhile.
    Fenced = "fenced", 409, Nothing, "Fenced", "drop the work: the delivery was handed out again";
    /// The role does not allow this.
    Forbidden = "forbidden", 403, Nothing, "Not allowed", "use a credential that may do this";
    /// Nothing here under that name, or nothing of yours.
    NotFound = "not_found", 404, Nothing, "Not found", "check the name";
    /// The path does not know this method.
    MethodNotAllowed = "method_not_allowed", 405, Nothing, "Method not allowed", "see /openapi.json";
    /// The request is for a host that this server is not.
    Misdirected = "misdirected", 421, Nothing, "Not this server", "use a host name that the server is configured for";
    /// The client paused for too long within its request.
    RequestTimeout = "request_timeout", 408, Nothing, "Request took too long", "send the whole request without long pauses";
    /// The request contradicts the state of the registry.
    RegistryConflict = "registry_conflict", 409, Nothing, "Contradicts the registry", "do what the detail names, or read the current state and try again";
    /// Parameters or body of a management call that cannot be right.
    InvalidRequest = "invalid_request", 400, Nothing, "Invalid request", "correct what is named";
}

impl Reason {
    /// The stable code.
    pub const fn code(self) -> &'static str {
        self.contract().code
    }

    /// Whether the signature or key of a message is wrong or missing.
    pub const fn is_of_signature(self) -> bool {
        matches!(self, Self::HmacMissing | Self::HmacInvalid | Self::KeyUnknown | Self::KeyExpired)
    }
}
