//! Doing it once, in a consumer's own database (CLM-10): what both databases share.
//!
//! The claim is a row of `snavio_claim`, inserted before the effect and committed with it. Its key is the consumer's
//! name, the sender's tenant and the message's id, so of any number of transactions that try, one commits. That is
//! also why a consumer needs no fence of the gateway: one whose lease ended long ago and who comes back finds the claim
//! of the other, or is found; and what it acknowledges then, the gateway refuses.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use snavio_model::bounds;
use snavio_model::hash::DomainHash;
use snavio_model::json::Fault;
use snavio_model::name::{CommandName, ServiceName};

use crate::client::now;
use crate::{Delivered, DeliveredCommand, DeliveredEvent};

/// Whatever an effect fails with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A message's id, or that of an event in the seen-store.
pub const ID_BYTES_MAX: usize = 128;
/// What is stored with a claim: larger results belong in a table of the consumer's.
pub const RESULT_BYTES_MAX: usize = 64 * 1024;
/// For so long a consumer waits for another one that is at the same message, or for the database's lock.
pub const WAIT_MAX: Duration = Duration::from_secs(30);
/// The gateway delivers for this long: claims that are forgotten earlier would let an effect happen twice.
pub const KEPT_MIN: Duration = bounds::QUEUE_RETENTION;

/// What became of a delivery, with the result that its effect left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Once {
    /// The effect is committed, with its claim.
    Done(Option<String>),
    /// It was committed before; nothing ran now.
    DoneBefore(Option<String>),
}

impl Once {
    /// The result that the effect left, whenever it ran.
    pub fn result(&self) -> Option<&str> {
        match self {
            Self::Done(result) | Self::DoneBefore(result) => result.as_deref(),
        }
    }
}

/// Why a call did not do what it was asked. But for [`OnceError::Unknown`], nothing was done; and in every case the
/// delivery may be delivered again.
#[derive(Debug, thiserror::Error)]
pub enum OnceError {
    /// What the effect said. It was rolled back, and the claim with it.
    #[error("the effect failed and was rolled back")]
    Effect(#[source] BoxError),
    /// Another service of the sender's tenant used the id first: this is another message, and it was not done.
    #[error("the message's id was used by {first} before: this one, by {source_service}, is another message")]
    Conflict {
        /// Whose message was done.
        first: String,
        /// Whose message this is.
        source_service: ServiceName,
    },
    /// The same service used the id for another content before: this is another message, and it was not done.
    #[error("the message's id was used for another content before: this one was not done")]
    OtherContent,
    /// The answer to the commit was lost. The next delivery finds the claim, or does the effect.
    #[error("whether it was committed is unknown; deliver it again")]
    Unknown(#[source] BoxError),
    /// Another consumer is at it, and did not end within [`WAIT_MAX`].
    #[error("another consumer holds the lock; deliver it again later")]
    Busy(#[source] BoxError),
    /// Something does not have the shape it must have.
    #[error("{0}")]
    Unfit(&'static str),
    /// The consumer's database failed, or is not as it must be.
    #[error("the consumer's database failed")]
    Database(#[source] BoxError),
}

/// Whose message it is: what a claim is about.
pub(crate) struct Origin {
    pub(crate) source: ServiceName,
    pub(crate) id: String,
    /// What it says, in hex: the domain hash.
    pub(crate) hash: String,
}

impl Origin {
    pub(crate) fn of(message: &Delivered) -> Result<Self, OnceError> {
        let (source, hash) = match message {
            Delivered::Command(it) => said_by_command(it)?,
            Delivered::Event(it) => said_by_event(it)?,
        };
        let id = message.id().ok_or(OnceError::Unfit("the delivery's message has no id"))?;
        Ok(Self { source, id: check_id(id)?.to_owned(), hash: hash.to_string() })
    }

    pub(crate) fn tenant(&self) -> &str {
        self.source.tenant()
    }

    /// What a claim that is already there means for this message.
    pub(crate) fn judge(self, there: Claimed) -> Result<Once, OnceError> {
        let Claimed { source: first, hash, result } = there;
        if first != self.source.as_str() {
            return Err(OnceError::Conflict { first, source_service: self.source });
        }
        if hash == self.hash { Ok(Once::DoneBefore(result)) } else { Err(OnceError::OtherContent) }
    }
}

/// Who sent a command, and what it says.
fn said_by_command(message: &DeliveredCommand) -> Result<(ServiceName, DomainHash), OnceError> {
    #[derive(Deserialize)]
    struct Command<'a> {
        source: ServiceName,
        target: ServiceName,
        name: CommandName,
        #[serde(borrow)]
        payload: &'a RawValue,
    }
    let command = serde_json::from_str::<Command<'_>>(message.command.get());
    let Command { source, target, name, payload } = command
        .map_err(|_| OnceError::Unfit("the delivery does not say its source, target, name and payload"))?;
    let hash = DomainHash::of_command_without(&target, &name, payload.get().as_bytes(), &[]);
    Ok((source, hash.map_err(no_json)?))
}

/// Who published an event, and what it says.
fn said_by_event(event: &DeliveredEvent) -> Result<(ServiceName, DomainHash), OnceError> {
    let hash = DomainHash::of_event_without(event.event_type.as_str(), event.data.get().as_bytes(), &[]);
    Ok((event.source.clone(), hash.map_err(no_json)?))
}

fn no_json(_: Fault) -> OnceError {
    OnceError::Unfit("the delivery's payload is no JSON")
}

/// A claim that is already there.
pub(crate) struct Claimed {
    pub(crate) source: String,
    pub(crate) hash: String,
    pub(crate) result: Option<String>,
}

/// An id that both databases keep as it is.
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

/// The claim is not there any more after its effect, though nothing failed.
pub(crate) fn left() -> OnceError {
    OnceError::Database("the effect ended the transaction it was given".into())
}

/// A time as the Python reference writes it, so that both order and read each other's.
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
    fn an_origin_is_a_bounded_id_and_a_service() {
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
    fn the_origin_of_an_event_is_its_publisher_and_says_what_the_gateway_hashed() {
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
    fn times_of_the_seen_store_are_as_pythons_isoformat_writes_them() {
        let text = seen_text(Duration::ZERO);
        assert_eq!((text.len(), &text[19..20], &text[23..]), (32, ".", "000+00:00"), "{text}");
    }
}
