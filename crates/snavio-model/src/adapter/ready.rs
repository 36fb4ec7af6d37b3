//! Ready adapters: the settings of known providers, as data. The operator gives name, service and secret, and
//! may change every setting.

use serde::{Deserialize, Serialize};

use super::config::{Adapter, DataRule, IdRule, Origin};
use super::verification::{Algorithm, Encoding, Verification, tolerance_default};
use crate::json::{InvalidPointer, Pointer};
use crate::name::{AdapterName, CommandName, ServiceName};
use crate::registry::Sealed;

/// A provider with a ready adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Preset {
    /// Updates of a Telegram bot.
    Telegram,
    /// Notifications of Google Calendar, which have headers and no body.
    GoogleCalendar,
    Github,
    Stripe,
}

/// The settings that differ between providers.
struct Template<'a> {
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
    pub const ALL: [Self; 4] = [Self::Telegram, Self::GoogleCalendar, Self::Github, Self::Stripe];

    /// Creates the adapter for a service, with the provider's secrets.
    pub fn adapter(self, name: AdapterName, service: ServiceName, secrets: Vec<Sealed>) -> Adapter {
        let template = match self {
            Self::Telegram => telegram(),
            Self::GoogleCalendar => google_calendar(),
            Self::Github => github(),
            Self::Stripe => stripe(),
        };
        let template = template.expect("a test shows that the presets' pointers are valid");
        Adapter {
            name,
            service,
            source: template.source.to_owned(),
            event_type: CommandName::new(template.event_type)
                .expect("a test shows that the presets' types are valid names"),
            event_type_suffix: None,
            external_id: template.external_id,
            id: template.id,
            id_prefix: None,
            data: template.data,
            members: template.members.into_iter().map(|(name, origin)| (name.to_owned(), origin)).collect(),
            left_out: template.left_out,
            timestamp: template.timestamp,
            verification: template.verification,
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

/// For `setWebhook` with a `secret_token`. A bot uses each update number once. The ids equal those of the
/// Python reference.
fn telegram() -> Result<Template<'static>, InvalidPointer> {
    Ok(Template {
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

/// For `watch` with a `token`. Messages are numbered within their channel, with gaps.
fn google_calendar() -> Result<Template<'static>, InvalidPointer> {
    Ok(Template {
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

/// For a webhook of a repository, an organisation or an app, with the content type `application/json`. GitHub
/// repeats the delivery id when it sends a webhook again.
fn github() -> Result<Template<'static>, InvalidPointer> {
    Ok(Template {
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

/// For an endpoint with its signing secret. `pending_webhooks` changes when Stripe sends an event again.
fn stripe() -> Result<Template<'static>, InvalidPointer> {
    Ok(Template {
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
