//! Every refusal of the gateway, with the contract of each reason in one table.

use std::borrow::Cow;
use std::time::Duration;

use crate::id::{MessageId, Serial};
use crate::message::MessageKind;
use crate::message::trace::{CorrelationId, Journey, Traceparent};
use crate::name::{CommandName, ServiceName};
use crate::time::Timestamp;

/// A refusal: its reason, and the facts that the caller needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", reason.code())]
pub struct Refusal {
    /// The rule that refused.
    pub reason: Reason,
    /// The fault of this message, for people. It never repeats a value of the request, except names that were
    /// checked.
    pub detail: Cow<'static, str>,
    /// The time after which a retry makes sense.
    pub retry_after: Option<Duration>,
    /// The difference between the clocks, for refusals about time.
    pub skew: Option<Skew>,
    /// The conflict record, if the id was used with different content.
    pub conflict: Option<Serial>,
    /// The number of the message and the last number of its entity, for refusals about order.
    pub numbers: Option<Box<Numbers>>,
    /// Whether the message may have been written after all, because the store's answer was lost (MSG-12).
    pub in_doubt: bool,
    /// Whether the same message can never be accepted, whatever changes in the registry.
    pub is_for_good: bool,
    /// Whether the judgement used a registry that is older than the store's. The message may be judged again
    /// at once.
    pub outdated: bool,
}

/// The signed time and the time of receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skew {
    /// The signed time as the message states it.
    pub sent_at: Timestamp,
    pub received_at: Timestamp,
}

/// The position of a message in the order of its entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    pub number: i64,
    /// The highest number that was processed.
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

    /// A refusal with the time after which a retry makes sense.
    pub fn retry(reason: Reason, after: Duration, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { retry_after: Some(after), ..Self::new(reason, detail) }
    }

    /// A refusal after the store's answer was lost: the message may have been written.
    pub fn lost(detail: &'static str) -> Self {
        Self { in_doubt: true, ..Self::new(Reason::Unavailable, detail) }
    }
}

/// A message that was refused while the gateway read it, with the parts read so far. The answer and the
/// report identify the message by them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{refusal}")]
pub struct Refused {
    pub subject: Box<Subject>,
    pub refusal: Refusal,
}

/// The known parts of a message: those that the gateway read before the refusal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    pub kind: MessageKind,
    pub id: Option<MessageId>,
    /// The full name of the target.
    pub target: Option<ServiceName>,
    pub name: Option<CommandName>,
    pub correlation: Option<CorrelationId>,
    pub traceparent: Option<Traceparent>,
}

impl Subject {
    /// A message of which only the kind and the trace are known.
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

/// The telemetry record of a refusal for its tenant (PIP-14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// The fault lies in the message: `*.invalid`.
    Invalid,
    /// The fault lies with the sender or the registry: `*.failed`.
    Failed,
    /// No record: it is not a refusal of a message, or the sender is unknown.
    Nothing,
}

/// The meaning of one reason for a client.
#[derive(Debug, Clone, Copy)]
pub struct Contract {
    /// The stable code in `reason`.
    pub code: &'static str,
    pub status: u16,
    /// A short title, the same for all refusals with this reason.
    pub title: &'static str,
    pub report: Report,
    /// The action that the client should take.
    pub advice: &'static str,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $status:literal, $report:ident, $title:literal, $advice:literal;)*) => {
        /// The stable reasons of refusals. The documentation lists them in the same order.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[$doc])* $variant,)*
        }

        impl Reason {
            /// All reasons, in the order of the table in the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The meaning of this reason for a client.
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
    /// Not JSON, or not in the form of a message.
    Malformed = "malformed", 400, Invalid, "Malformed message", "correct the message at the place named";
    /// A member that only the platform may set.
    ReservedField = "reserved_field", 400, Invalid, "Reserved member", "leave out members that only the platform sets";
    /// The same member twice in one object.
    DuplicateMember = "duplicate_member", 400, Invalid, "Repeated member", "send every member of an object once";
    /// A number with too many digits or too large an exponent.
    NumberRange = "number_range", 400, Invalid, "Number out of range", "send the number as text, or with at most 34 digits";
    /// Nested beyond the limit.
    TooDeep = "too_deep", 400, Invalid, "Nested too deeply", "nest at most 64 levels";
    /// A member that messages do not have.
    UnknownField = "unknown_field", 400, Invalid, "Unknown member", "leave out the member named, or move it into the payload";
    /// A message that states its own source.
    SourcePresent = "source_present", 400, Invalid, "Source is not the producer's to say", "leave out the source: the gateway fills it in";
    InvalidName = "invalid_name", 400, Invalid, "Invalid name", "use a name of the form described";
    InvalidId = "invalid_id", 400, Invalid, "Invalid id", "use a hyphenated UUID that is not nil for a command, 1 to 128 printable ASCII characters for an event, without a space at either end";
    InvalidTimestamp = "invalid_timestamp", 400, Invalid, "Invalid timestamp", "use RFC 3339 with T and an offset, without leap seconds";
    /// A sequence number that is not a whole number in range.
    InvalidSequence = "invalid_sequence", 400, Invalid, "Invalid number in its order", "number the messages of an entity with whole numbers from 0 to 9223372036854775807";
    /// Signed too long ago or in the future.
    TimestampOutOfWindow = "timestamp_out_of_window", 401, Invalid, "Signed outside the replay window", "check the clock, renew the timestamp and sign again";
    HmacMissing = "hmac_missing", 401, Invalid, "Signature missing", "sign the message with the service's key";
    /// A signature that does not match the message under its key.
    HmacInvalid = "hmac_invalid", 401, Invalid, "Signature does not match", "check the secret and the signing text; see the vectors in the docs";
    /// The service has no such key.
    KeyUnknown = "key_unknown", 401, Invalid, "Unknown key version", "use a version_id of this service";
    /// The gateway no longer accepts the key.
    KeyExpired = "key_expired", 401, Invalid, "Key has expired", "fetch the current key and sign again";
    /// A signed request that was used before.
    Replayed = "replayed", 401, Nothing, "Taken before", "sign a new request, under an id of its own";
    /// A content type or encoding that the gateway does not accept.
    UnsupportedMediaType = "unsupported_media_type", 415, Invalid, "Content type or encoding not taken", "send the content type named, without a content encoding";
    TooLarge = "too_large", 413, Invalid, "Body too large", "split a batch; a larger message belongs in object storage, with a reference to it in the payload";
    /// No valid credential.
    Unauthenticated = "unauthenticated", 401, Nothing, "Not authenticated", "send a valid bearer token; get one at POST /v1/token";
    /// Too many failed authentications.
    AuthThrottled = "auth_throttled", 429, Nothing, "Too many failed attempts", "wait before you try again";
    /// Too many messages of one sender with wrong signatures or keys.
    SignatureThrottled = "signature_throttled", 429, Nothing, "Too many wrong signatures", "waiting alone does not help: correct what the detail names last; messages signed rightly are taken at once";
    Suspended = "suspended", 403, Failed, "Tenant is suspended", "ask the platform's operators";
    /// An operator banned the source.
    Banned = "banned", 403, Failed, "Source is banned", "ask the platform's operators";
    /// No grant for this source, target and name.
    AclDeny = "acl-deny", 403, Failed, "Not granted", "ask the target's owner for a grant; register an event type before it is published";
    /// The sender has a grant, but there is no route or subscription.
    RouteMissing = "route-missing", 404, Failed, "No route", "ask the target's owner to register the route, or a consumer to subscribe";
    /// The store cannot commit now.
    Unavailable = "unavailable", 503, Nothing, "Unavailable", "retry with the same id after the time given";
    /// Too many messages or requests are waiting.
    Overloaded = "overloaded", 503, Nothing, "Overloaded", "retry with the same id after the time given";
    /// The id was already used with different content.
    Conflict = "conflict", 409, Failed, "Conflict", "use a new id for a new message";
    /// A number below the last one of its entity.
    OutOfOrder = "out_of_order", 409, Failed, "Out of order", "do not send it again: a later message of its entity was accepted";
    /// The last number of its entity, under another id.
    SequenceConflict = "sequence_conflict", 409, Failed, "Number taken", "number the messages of an entity one by one, and use one id for one message";
    /// Not above the last number of an entity that a completion has closed.
    EntityClosed = "entity_closed", 409, Failed, "Entity is closed", "do not send it again: the completion of its entity was accepted";
    /// The state of the conflict does not allow this step.
    ConflictState = "conflict_state", 409, Nothing, "Not a move of this conflict", "look where the conflict stands, and try again";
    /// The same message is being processed.
    InProgress = "in_progress", 409, Nothing, "In progress", "ask again after the time given, with the same id, or wait for it with Prefer: wait=10";
    /// The attempt failed, and the next one is not due yet.
    RetryLater = "retry_later", 409, Nothing, "Failed, and tried again later", "ask again after the time given, with the same id; it is tried again without that too";
    /// The claim is `IN_DOUBT`.
    OutcomeUnknown = "outcome_unknown", 409, Nothing, "Outcome unknown", "ask the owner of the target, who looks whether it was done: snavio claims settle if it was, snavio claims reprocess if it was not";
    /// The claim has expired, so the id may have been used again since.
    BeyondHorizon = "beyond_horizon", 409, Nothing, "Its claim is over", "make sure that it was not sent and processed again since; then say beyond_horizon, with a reason";
    /// A legal hold covers it.
    Held = "held", 409, Nothing, "Held", "lift the hold first: nothing under it is deleted or erased";
    /// A newer lease or claim exists.
    Fenced = "fenced", 409, Nothing, "Fenced", "drop the work: the delivery was handed out again";
    Forbidden = "forbidden", 403, Nothing, "Not allowed", "use a credential that may do this";
    /// It does not exist, or belongs to another tenant.
    NotFound = "not_found", 404, Nothing, "Not found", "check the name";
    MethodNotAllowed = "method_not_allowed", 405, Nothing, "Method not allowed", "see /openapi.json";
    /// The request names a host that this server does not serve.
    Misdirected = "misdirected", 421, Nothing, "Not this server", "use a host name that the server is configured for";
    /// The client paused for too long within its request.
    RequestTimeout = "request_timeout", 408, Nothing, "Request took too long", "send the whole request without long pauses";
    /// The request contradicts the state of the registry.
    RegistryConflict = "registry_conflict", 409, Nothing, "Contradicts the registry", "do what the detail names, or read the current state and try again";
    /// Invalid parameters or body of a management call.
    InvalidRequest = "invalid_request", 400, Nothing, "Invalid request", "correct what is named";
}

impl Reason {
    pub const fn code(self) -> &'static str {
        self.contract().code
    }

    /// Whether the signature or key of a message is wrong or missing.
    pub const fn is_of_signature(self) -> bool {
        matches!(self, Self::HmacMissing | Self::HmacInvalid | Self::KeyUnknown | Self::KeyExpired)
    }
}
