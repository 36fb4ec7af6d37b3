//! Adapters that are ready to use: what is known of a provider, as data. Only the name, the service and the secret are
//! still to be given; everything may be changed.

use serde::{Deserialize, Serialize};

use super::config::{Adapter, DataRule, IdRule, Origin};
use super::verification::{Algorithm, Encoding, Verification, tolerance_default};
use crate::json::{InvalidPointer, Pointer};
use crate::name::{AdapterName, CommandName, ServiceName};
use crate::registry::Sealed;

/// A provider whose webhooks are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Preset {
    /// Updates of a Telegram bot.
    Telegram,
    /// Notifications of Google Calendar, which have headers and no body.
    GoogleCalendar,
    /// Events of GitHub.
    Github,
    /// Events of Stripe.
    Stripe,
}

/// What differs from one provider to the next.
struct Known<'a> {
    source: &'a str,
    event_type: &'a str,
    external_id: Vec<Origin>,
    id: IdRule,
    data: DataRule,
    members: Vec<(&'a str, Origin)>,
    left_out: Vec<Pointer>,
    timestamp: Option<Origin>,
    verification: Verification,
}

impl Preset {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Telegram, Self::GoogleCalendar, Self::Github, Self::Stripe];

    /// An adapter for a service, with the provider's secrets.
    pub fn adapter(self, name: AdapterName, service: ServiceName, secrets: Vec<Sealed>) -> Adapter {
        let known = match self {
            Self::Telegram => telegram(),
            Self::GoogleCalendar => google_calendar(),
            Self::Github => github(),
            Self::Stripe => stripe(),
        };
        let known = known.expect("the pointers of the presets are ones, as a test shows");
        Adapter {
            name,
            service,
            source: known.source.to_owned(),
            event_type: CommandName::new(known.event_type)
                .expect("the types of the presets are names, as a test shows"),
            event_type_suffix: None,
            external_id: known.external_id,
            id: known.id,
            id_prefix: None,
            data: known.data,
            members: known.members.into_iter().map(|(name, it)| (name.to_owned(), it)).collect(),
            left_out: known.left_out,
            timestamp: known.timestamp,
            verification: known.verification,
            secrets,
        }
    }
}

fn header(name: &str) -> Origin {
    Origin::Header(name.to_owned())
}

fn at(pointer: &str) -> Result<Origin, InvalidPointer> {
    Pointer::new(pointer).map(Origin::Pointer)
}

/// `setWebhook` with a `secret_token`. The number of an update is given once by a bot; ids are those of the reference.
fn telegram() -> Result<Known<'static>, InvalidPointer> {
    Ok(Known {
        source: "telegram",
        event_type: "telegram.update",
        external_id: vec![at("/update_id")?],
        id: IdRule::Derived,
        data: DataRule::Body,
        members: Vec::new(),
        left_out: Vec::new(),
        timestamp: Some(at("/message/date")?),
        verification: Verification::SharedSecret { header: "X-Telegram-Bot-Api-Secret-Token".to_owned() },
    })
}

/// `watch` with a `token`. Messages are numbered within their channel, not one by one.
fn google_calendar() -> Result<Known<'static>, InvalidPointer> {
    Ok(Known {
        source: "gcal",
        event_type: "google-calendar.notification",
        external_id: vec![header("X-Goog-Channel-ID"), header("X-Goog-Message-Number")],
        id: IdRule::Derived,
        data: DataRule::Members,
        members: vec![
            ("channelId", header("X-Goog-Channel-ID")),
            ("channelExpiration", header("X-Goog-Channel-Expiration")),
            ("messageNumber", header("X-Goog-Message-Number")),
            ("resourceId", header("X-Goog-Resource-ID")),
            ("resourceState", header("X-Goog-Resource-State")),
            ("resourceUri", header("X-Goog-Resource-URI")),
        ],
        left_out: Vec::new(),
        timestamp: None,
        verification: Verification::SharedSecret { header: "X-Goog-Channel-Token".to_owned() },
    })
}

/// A webhook of a repository, an organisation or an app, with the content type `application/json`. The id of a delivery
/// is the same when GitHub sends it again.
fn github() -> Result<Known<'static>, InvalidPointer> {
    Ok(Known {
        source: "github",
        event_type: "github.event",
        external_id: vec![header("X-GitHub-Delivery")],
        id: IdRule::External,
        data: DataRule::Body,
        members: vec![("githubEvent", header("X-GitHub-Event")), ("githubHook", header("X-GitHub-Hook-ID"))],
        left_out: Vec::new(),
        timestamp: None,
        verification: Verification::Hmac {
            header: "X-Hub-Signature-256".to_owned(),
            algorithm: Algorithm::Sha256,
            prefix: "sha256=".to_owned(),
            encoding: Encoding::Hex,
        },
    })
}

/// An endpoint with its signing secret. How many webhooks still wait changes while Stripe sends an event again.
fn stripe() -> Result<Known<'static>, InvalidPointer> {
    Ok(Known {
        source: "stripe",
        event_type: "stripe.event",
        external_id: vec![at("/id")?],
        id: IdRule::External,
        data: DataRule::Body,
        members: vec![("stripeType", at("/type")?)],
        left_out: vec![Pointer::new("/pending_webhooks")?],
        timestamp: Some(at("/created")?),
        verification: Verification::Stripe { tolerance_seconds: tolerance_default() },
    })
}
