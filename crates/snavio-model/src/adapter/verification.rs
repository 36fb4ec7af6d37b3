//! How the caller of an adapter is verified. Secrets are compared in constant time, and all of them always: so a secret
//! can be replaced while the provider still uses the one before it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use subtle::Choice;

use super::config::{Origin, header_problem};
use super::request::WebhookRequest;
use super::secret::{ForeignSecret, InvalidForeignSecret};
use super::stripe;
use crate::bounds::{SIGNATURE_EVIDENCE_CHARS_MAX, SIGNATURE_TOLERANCE_SECONDS_MAX};
use crate::refusal::{Reason, Refusal, Skew};
use crate::signature::webhook::WebhookSignature;
use crate::time::Timestamp;

/// How it is known that a request is the provider's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scheme", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Verification {
    /// A header holds the secret itself.
    SharedSecret {
        /// The header.
        header: String,
    },
    /// A header holds the HMAC of the body.
    Hmac {
        /// The header.
        header: String,
        /// The hash.
        #[serde(default)]
        algorithm: Algorithm,
        /// What comes before the signature: `sha256=`.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        prefix: String,
        /// How the signature is written.
        #[serde(default)]
        encoding: Encoding,
    },
    /// The three headers of Standard Webhooks.
    StandardWebhooks {
        /// How old or how far ahead a request may be.
        #[serde(default = "tolerance_default")]
        tolerance_seconds: u32,
    },
    /// Stripe's signed timestamp.
    Stripe {
        /// How old or how far ahead a request may be.
        #[serde(default = "tolerance_default")]
        tolerance_seconds: u32,
    },
}

/// The hash of an HMAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Algorithm {
    /// SHA-256.
    #[default]
    Sha256,
}

/// How a signature is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Encoding {
    /// Hexadecimal digits of either case.
    #[default]
    Hex,
    /// Base64 with its padding.
    Base64,
}

/// Five minutes, as Stripe and Standard Webhooks advise.
pub(super) fn tolerance_default() -> u32 {
    300
}

/// What a request was verified by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// When it was signed, where the scheme says so.
    pub signed_at: Option<Timestamp>,
    /// The signature as it was sent, as evidence; empty where the secret itself was shown.
    pub signature: String,
}

/// More than signatures need: whoever signed may have written anything beside them.
fn shortened(header: &str) -> String {
    header.chars().take(SIGNATURE_EVIDENCE_CHARS_MAX).collect()
}

/// What verifying a request costs, for one that nothing is known of: so that the time does not tell whether there is
/// such an adapter.
pub fn pretend(request: &WebhookRequest<'_>) {
    std::hint::black_box(ForeignSecret::of_nobody().has_signed(&[request.body], &[[0; 32]]));
}

impl Verification {
    /// Whether the request is from somebody who has one of the secrets, and fresh where the scheme can tell.
    pub fn verify(
        &self,
        request: &WebhookRequest<'_>,
        secrets: &[ForeignSecret],
        now: Timestamp,
    ) -> Result<Verified, Refusal> {
        match self {
            Self::SharedSecret { header } => {
                let shown = given(request, header).and_then(|given| {
                    check(any(secrets, |secret| secret.is(given)), header, "the adapter's secret")
                });
                shown.map(|()| Verified::default()).map_err(|refusal| unseen(request, refusal))
            }
            Self::Hmac { header, algorithm: Algorithm::Sha256, prefix, encoding } => {
                let form = || unverified(format!("{header} must be {prefix:?} and {}", encoding.rule()));
                let decode = |it: &str| it.strip_prefix(prefix.as_str()).and_then(|it| encoding.decode(it));
                let read = given(request, header).and_then(|it| Ok((it, decode(it).ok_or_else(form)?)));
                let (given, signature) = read.map_err(|refusal| unseen(request, refusal))?;
                let holds = any(secrets, |secret| secret.has_signed(&[request.body], &[signature]));
                check(holds, header, "the signature of the body under the adapter's secret")?;
                Ok(Verified { signed_at: None, signature: shortened(given) })
            }
            Self::StandardWebhooks { tolerance_seconds } => {
                let signed_at = standard_webhooks(request, secrets)?;
                check_age(signed_at, now, *tolerance_seconds)?;
                let signature = shortened(given(request, "webhook-signature")?);
                Ok(Verified { signed_at: Some(signed_at), signature })
            }
            Self::Stripe { tolerance_seconds } => {
                let signed_at = stripe::verify(request, secrets)?;
                check_age(signed_at, now, *tolerance_seconds)?;
                let signature = shortened(given(request, stripe::HEADER)?);
                Ok(Verified { signed_at: Some(signed_at), signature })
            }
        }
    }

    /// Whether what it is known by signs what a request says there, too. A secret that is shown signs nothing: whoever has
    /// seen one request can make others.
    pub(super) fn covers(&self, origin: &Origin) -> bool {
        match (self, origin) {
            (Self::SharedSecret { .. }, _) => false,
            (_, Origin::Pointer(_)) => true,
            (Self::StandardWebhooks { .. }, Origin::Header(name)) => {
                ["webhook-id", "webhook-timestamp"].iter().any(|it| name.eq_ignore_ascii_case(it))
            }
            (Self::Hmac { .. } | Self::Stripe { .. }, Origin::Header(_)) => false,
        }
    }

    /// How old or how far ahead a request may be, where the scheme can tell.
    pub fn tolerance(&self) -> Option<Duration> {
        match self {
            Self::StandardWebhooks { tolerance_seconds } | Self::Stripe { tolerance_seconds } => {
                Some(Duration::from_secs(u64::from(*tolerance_seconds)))
            }
            Self::SharedSecret { .. } | Self::Hmac { .. } => None,
        }
    }

    /// Whether a secret is of the form that the scheme needs.
    pub fn check_secret(&self, secret: &ForeignSecret) -> Result<(), InvalidForeignSecret> {
        match self {
            Self::StandardWebhooks { .. } => secret.standard_webhooks().map(drop),
            Self::SharedSecret { .. } | Self::Hmac { .. } | Self::Stripe { .. } => Ok(()),
        }
    }

    /// What is wrong with it, if anything.
    pub(super) fn problem(&self) -> Option<String> {
        match self {
            Self::SharedSecret { header } => header_problem(header),
            Self::Hmac { header, prefix, .. } => {
                let fits = prefix.len() <= 32 && prefix.bytes().all(|byte| matches!(byte, b' '..=b'~'));
                let wrong = "verification.prefix must be at most 32 printable ASCII characters";
                header_problem(header).or_else(|| (!fits).then(|| wrong.to_owned()))
            }
            Self::StandardWebhooks { tolerance_seconds } | Self::Stripe { tolerance_seconds } => {
                let most = SIGNATURE_TOLERANCE_SECONDS_MAX;
                let wrong =
                    || format!("verification.tolerance_seconds is {tolerance_seconds}, not 1 to {most}");
                (!(1..=most).contains(tolerance_seconds)).then(wrong)
            }
        }
    }
}

impl Encoding {
    /// The signature that a text is.
    pub(super) fn decode(self, text: &str) -> Option<[u8; 32]> {
        match self {
            Self::Hex => {
                let mut bytes = [0; 32];
                // The decoder would take a prefix of its own.
                let is_bare = text.len() == 64;
                is_bare.then(|| hex::decode_to_slice(text, &mut bytes).ok())?.map(|()| bytes)
            }
            Self::Base64 => STANDARD.decode(text).ok()?.try_into().ok(),
        }
    }

    fn rule(self) -> &'static str {
        match self {
            Self::Hex => "64 hexadecimal digits",
            Self::Base64 => "the base64 of 32 bytes",
        }
    }
}

/// Whether something holds of one of the secrets. All are tried.
pub(super) fn any(secrets: &[ForeignSecret], holds: impl Fn(&ForeignSecret) -> Choice) -> bool {
    secrets.iter().fold(Choice::from(0), |found, secret| found | holds(secret)).into()
}

/// The refusal of a caller who did not show to be the provider: nobody is known to have sent anything.
pub(super) fn unverified(detail: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::new(Reason::Unauthenticated, detail)
}

/// A request that is refused before any signature is made costs as much as one whose signature is wrong.
pub(super) fn unseen(request: &WebhookRequest<'_>, refusal: Refusal) -> Refusal {
    pretend(request);
    refusal
}

pub(super) fn given<'a>(request: &WebhookRequest<'a>, header: &str) -> Result<&'a str, Refusal> {
    request.header(header)?.ok_or_else(|| unverified(format!("{} is missing", header.to_ascii_lowercase())))
}

fn check(holds: bool, header: &str, what: &str) -> Result<(), Refusal> {
    let wrong = || unverified(format!("{} is not {what}", header.to_ascii_lowercase()));
    if holds { Ok(()) } else { Err(wrong()) }
}

fn standard_webhooks(request: &WebhookRequest<'_>, secrets: &[ForeignSecret]) -> Result<Timestamp, Refusal> {
    let [id, timestamp, signatures] = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let read = || {
        let [id, timestamp, signatures] = [id, timestamp, signatures].map(|it| given(request, it));
        let parsed = WebhookSignature::parse(id?, timestamp?, signatures?);
        parsed.map_err(|refusal| unverified(refusal.detail))
    };
    let signature = read().map_err(|refusal| unseen(request, refusal))?;
    let holds = any(secrets, |secret| {
        // One of another form is no secret of this scheme, and nobody's signature is by it.
        let mac = secret.standard_webhooks();
        mac.map_or(Choice::from(0), |mac| {
            Choice::from(u8::from(signature.verify_with(mac, request.body).is_some()))
        })
    });
    check(holds, signatures, "the signature of the body under the adapter's secret")?;
    Ok(Timestamp(signature.timestamp.saturating_mul(1000)))
}

/// Whoever has the secret signed it; whether that was lately is asked only then.
fn check_age(signed_at: Timestamp, now: Timestamp, tolerance_seconds: u32) -> Result<(), Refusal> {
    if now.skew(signed_at) <= Duration::from_secs(u64::from(tolerance_seconds)) {
        return Ok(());
    }
    let detail = format!("signed more than {tolerance_seconds} s away from its receipt");
    let skew = Some(Skew { sent_at: signed_at, received_at: now });
    Err(Refusal { skew, ..Refusal::new(Reason::TimestampOutOfWindow, detail) })
}
