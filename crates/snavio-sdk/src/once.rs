//! One effect for each message, in the consumer's own database (CLM-10): the common part of both databases.
//!
//! The claim is a row of `snavio_claim`. The SDK inserts it before the effect and commits it with the effect.
//! Its key is the consumer's name, the producer's tenant and the message id, so that only one of any number
//! of concurrent transactions commits. A consumer therefore needs no fencing token. A worker whose lease
//! ended long ago may still run: either it finds the claim of the other worker, or the other worker finds its
//! claim. The gateway refuses its late acknowledgement.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use snavio_model::bounds;
use snavio_model::hash::DomainHash;
use snavio_model::json::Fault;
use snavio_model::name::{CommandName, ServiceName};

use crate::client::now;
use crate::{Delivered, DeliveredCommand, DeliveredEvent};

/// The error of an effect.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The longest message id, and the longest event id in the seen-store.
pub const ID_BYTES_MAX: usize = 128;
/// The longest result of an effect. Store larger results in a table of your own.
pub const RESULT_BYTES_MAX: usize = 64 * 1024;
/// The time that a consumer waits for another one that processes the same message, or for the database's
/// lock.
pub const WAIT_MAX: Duration = Duration::from_secs(30);
/// The shortest retention of claims. The gateway delivers a message for this long, so that a claim with a
/// shorter retention would let an effect happen twice.
pub const KEPT_MIN: Duration = bounds::QUEUE_RETENTION;

/// The outcome of a delivery, with the result of its effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Once {
    /// The effect ran now and is committed with its claim.
    Done(Option<String>),
    /// An earlier delivery committed the effect; nothing ran now.
    DoneBefore(Option<String>),
}

impl Once {
    /// The result of the effect, no matter which delivery ran it.
    pub fn result(&self) -> Option<&str> {
        match self {
            Self::Done(result) | Self::DoneBefore(result) => result.as_deref(),
        }
    }
}

/// The error of a call. Except for [`OnceError::Unknown`], nothing was committed. After every error the
/// message may be delivered again.
#[derive(Debug, thiserror::Error)]
pub enum OnceError {
    /// The effect returned an error. The SDK rolled back the effect and the claim.
    #[error("the effect failed and was rolled back")]
    Effect(#[source] BoxError),
    /// Another service of the producer's tenant used the message id first. This is a different message, and
    /// its effect did not run.
    #[error("the message's id was used by {first} before: this one, by {source_service}, is another message")]
    Conflict {
        /// The service that used the id first.
        first: String,
        /// The producer of this message.
        source_service: ServiceName,
    },
    /// The same service used the id before for other content. This is a different message, and its effect did
    /// not run.
    #[error("the message's id was used before with other content; the effect of this message did not run")]
    OtherContent,
    /// The response of the commit was lost. The next delivery finds the claim, or runs the effect.
    #[error("whether it was committed is unknown; deliver it again")]
    Unknown(#[source] BoxError),
    /// Another consumer holds the lock and did not end within [`WAIT_MAX`].
    #[error("another consumer holds the lock; deliver it again later")]
    Busy(#[source] BoxError),
    /// An argument or the delivery is invalid.
    #[error("{0}")]
    Unfit(&'static str),
    /// The consumer's database failed, or its tables or transaction are not as the SDK needs them.
    #[error("the consumer's database failed")]
    Database(#[source] BoxError),
}

/// The identity of a message, as the claim stores it.
pub(crate) struct Origin {
    pub(crate) source: ServiceName,
    pub(crate) id: String,
    /// The content hash, in hexadecimal.
    pub(crate) hash: String,
}

impl Origin {
    pub(crate) fn of(message: &Delivered) -> Result<Self, OnceError> {
        let (source, hash) = match message {
            Delivered::Command(message) => command_content(message)?,
            Delivered::Event(message) => event_content(message)?,
        };
        let id = message.id().ok_or(OnceError::Unfit("invalid delivery: its message has no id"))?;
        Ok(Self { source, id: check_id(id)?.to_owned(), hash: hash.to_string() })
    }

    pub(crate) fn tenant(&self) -> &str {
        self.source.tenant()
    }

    /// Judges the message by the claim that exists for its id.
    pub(crate) fn judge(self, there: StoredClaim) -> Result<Once, OnceError> {
        let StoredClaim { source: first, hash, result } = there;
        if first != self.source.as_str() {
            return Err(OnceError::Conflict { first, source_service: self.source });
        }
        if hash == self.hash { Ok(Once::DoneBefore(result)) } else { Err(OnceError::OtherContent) }
    }
}

/// The producer and the content hash of a command.
fn command_content(message: &DeliveredCommand) -> Result<(ServiceName, DomainHash), OnceError> {
    #[derive(Deserialize)]
    struct Command<'a> {
        source: ServiceName,
        target: ServiceName,
        name: CommandName,
        #[serde(borrow)]
        payload: &'a RawValue,
    }
    let command = serde_json::from_str::<Command<'_>>(message.command.get());
    let Command { source, target, name, payload } = command.map_err(|_| {
        OnceError::Unfit("invalid delivery: its command lacks a valid source, target, name or payload")
    })?;
    let hash = DomainHash::of_command_without(&target, &name, payload.get().as_bytes(), &[]);
    Ok((source, hash.map_err(invalid_json)?))
}

/// The producer and the content hash of an event.
fn event_content(event: &DeliveredEvent) -> Result<(ServiceName, DomainHash), OnceError> {
    let hash = DomainHash::of_event_without(event.event_type.as_str(), event.data.get().as_bytes(), &[]);
    Ok((event.source.clone(), hash.map_err(invalid_json)?))
}

fn invalid_json(_: Fault) -> OnceError {
    OnceError::Unfit("invalid delivery: its payload is not JSON")
}

/// A claim that exists in the database.
pub(crate) struct StoredClaim {
    pub(crate) source: String,
    pub(crate) hash: String,
    pub(crate) result: Option<String>,
}

/// Checks that an id is valid in both databases.
pub(crate) fn check_id(id: &str) -> Result<&str, OnceError> {
    let fits = (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if fits { Ok(id) } else { Err(OnceError::Unfit("an id must be 1 to 128 printable ASCII characters")) }
}

pub(crate) fn check_result(result: Option<&str>) -> Result<(), OnceError> {
    if result.is_none_or(|result| result.len() <= RESULT_BYTES_MAX && !result.contains('\0')) {
        return Ok(());
    }
    Err(OnceError::Unfit("a result must be at most 65536 bytes, without NUL"))
}

pub(crate) fn check_kept(kept: Duration) -> Result<(), OnceError> {
    if kept >= KEPT_MIN {
        return Ok(());
    }
    Err(OnceError::Unfit("claims must be kept for at least 14 days, for as long as the gateway delivers"))
}

/// The error if the claim is missing after the effect, although no statement failed.
pub(crate) fn transaction_ended() -> OnceError {
    OnceError::Database("the effect ended its transaction; remove its commit or rollback".into())
}

/// The time `ago`, in the format of the Python reference. Both programs read each other's rows and order them
/// as text.
pub(crate) fn seen_text(ago: Duration) -> String {
    format!("{}000+00:00", now().minus(ago).to_string().trim_end_matches('Z'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn delivered(metadata: &serde_json::Value, command: &serde_json::Value) -> Delivered {
        serde_json::from_value(json!({ "metadata": metadata, "command": command })).unwrap()
    }

    /// CLM-10, CLM-1
    #[test]
    fn command_origin_is_bounded_id_and_service() {
        let named = json!({ "source": "acme/billing", "target": "acme/bot", "name": "pay", "payload": { "b": 1, "a": 2 } });
        let origin = Origin::of(&delivered(&json!({ "id": "id-1" }), &named)).unwrap();
        assert_eq!((origin.tenant(), origin.id.as_str()), ("acme", "id-1"));
        let (target, name) = ("acme/bot".parse().unwrap(), "pay".parse().unwrap());
        let hash = DomainHash::of_command(&target, &name, br#"{"a":2,"b":1}"#);
        assert_eq!(origin.hash, hash.to_string(), "the same as the gateway's");
        for (metadata, command) in [
            (json!({}), named.clone()),
            (json!({ "id": "" }), named.clone()),
            (json!({ "id": "a\u{0}b" }), named.clone()),
            (json!({ "id": "é" }), named.clone()),
            (json!({ "id": "x".repeat(129) }), named),
            (json!({ "id": "id-1" }), json!({})),
            (json!({ "id": "id-1" }), json!({ "source": "acme" })),
            (json!({ "id": "id-1" }), json!({ "source": "acme/billing" })),
        ] {
            let read = Origin::of(&delivered(&metadata, &command));
            assert!(matches!(read, Err(OnceError::Unfit(_))), "{metadata} {command}");
        }
    }

    /// CLM-10, MSG-9
    #[test]
    fn event_origin_has_publisher_and_gateways_hash() {
        let event = |id: &str| -> Delivered {
            let event = json!({
                "eventId": id, "eventType": "order.paid", "correlationId": "c", "timestamp": "t",
                "version": "1.0", "source": "acme/shop", "traceparent": "p", "receivedAt": "r",
                "data": { "b": 1, "a": 2 },
            });
            serde_json::from_value(event).unwrap()
        };
        let origin = Origin::of(&event("e-1")).unwrap();
        assert_eq!((origin.tenant(), origin.id.as_str()), ("acme", "e-1"));
        let hash = DomainHash::of_event("order.paid", br#"{"a":2,"b":1}"#);
        assert_eq!(origin.hash, hash.to_string(), "the same as the gateway's");
        assert!(matches!(Origin::of(&event("é")), Err(OnceError::Unfit(_))));
    }

    /// CLM-10
    #[test]
    fn seen_store_times_match_pythons_isoformat() {
        let text = seen_text(Duration::ZERO);
        assert_eq!((text.len(), &text[19..20], &text[23..]), (32, ".", "000+00:00"), "{text}");
    }
}
