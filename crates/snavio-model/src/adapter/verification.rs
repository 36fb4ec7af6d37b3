//! Verifies the caller of an adapter. Comparisons take constant time and always try all secrets, so that time
//! reveals nothing. Several secrets let an operator replace one while the provider still uses the previous
//! one.

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

/// The check that the provider sent a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scheme", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Verification {
    /// A header holds the secret itself.
    SharedSecret { header: String },
    /// A header holds the HMAC of the body.
    Hmac {
        header: String,
        #[serde(default)]
        algorithm: Algorithm,
        /// The text before the signature, such as `sha256=`.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        prefix: String,
        #[serde(default)]
        encoding: Encoding,
    },
    /// The three headers of Standard Webhooks.
    StandardWebhooks {
        /// The largest difference between the signed time and the receipt, in either direction.
        #[serde(default = "tolerance_default")]
        tolerance_seconds: u32,
    },
    /// Stripe's header with a signed time.
    Stripe {
        /// The largest difference between the signed time and the receipt, in either direction.
        #[serde(default = "tolerance_default")]
        tolerance_seconds: u32,
    },
}

/// The hash function of an HMAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Algorithm {
    #[default]
    Sha256,
}

/// The text form of a signature.
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

/// The result of a successful verification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// The signed time, if the scheme has one.
    pub signed_at: Option<Timestamp>,
    /// The signature as sent, as evidence. Empty for a shared secret.
    pub signature: String,
}

/// Limits the evidence. A real signature is shorter; a sender may have added any text to the header.
fn shortened(header: &str) -> String {
    header.chars().take(SIGNATURE_EVIDENCE_CHARS_MAX).collect()
}

/// Takes as long as the verification of a request. The gateway calls it if there is no such adapter, so that
/// the response time does not reveal which adapters exist.
pub fn pretend(request: &WebhookRequest<'_>) {
    std::hint::black_box(ForeignSecret::dummy().has_signed(&[request.body], &[[0; 32]]));
}

impl Verification {
    /// Checks that the sender has one of the secrets and, if the scheme signs a time, that the request is
    /// recent.
    pub fn verify(
        &self,
        request: &WebhookRequest<'_>,
        secrets: &[ForeignSecret],
        now: Timestamp,
    ) -> Result<Verified, Refusal> {
        match self {
            Self::SharedSecret { header } => {
                let shown = required_header(request, header).and_then(|shown| {
                    let is_secret = any_secret(secrets, |secret| secret.matches(shown));
                    require(is_secret, header, "the adapter's secret")
                });
                shown.map(|()| Verified::default()).map_err(|refusal| refuse_in_equal_time(request, refusal))
            }
            Self::Hmac { header, algorithm: Algorithm::Sha256, prefix, encoding } => {
                let form = || unverified(format!("{header} must be {prefix:?} and {}", encoding.rule()));
                let read = required_header(request, header).and_then(|text| {
                    let encoded = text.strip_prefix(prefix.as_str());
                    let signature = encoded.and_then(|encoded| encoding.decode(encoded));
                    Ok((text, signature.ok_or_else(form)?))
                });
                let (text, signature) = read.map_err(|refusal| refuse_in_equal_time(request, refusal))?;
                let holds = any_secret(secrets, |secret| secret.has_signed(&[request.body], &[signature]));
                require(holds, header, "the signature of the body under the adapter's secret")?;
                Ok(Verified { signed_at: None, signature: shortened(text) })
            }
            Self::StandardWebhooks { tolerance_seconds } => {
                let signed_at = standard_webhooks(request, secrets)?;
                check_age(signed_at, now, *tolerance_seconds)?;
                let signature = shortened(required_header(request, "webhook-signature")?);
                Ok(Verified { signed_at: Some(signed_at), signature })
            }
            Self::Stripe { tolerance_seconds } => {
                let signed_at = stripe::verify(request, secrets)?;
                check_age(signed_at, now, *tolerance_seconds)?;
                let signature = shortened(required_header(request, stripe::HEADER)?);
                Ok(Verified { signed_at: Some(signed_at), signature })
            }
        }
    }

    /// Whether the provider's signature covers the value at `origin`. A shared secret covers nothing: anyone
    /// who has seen one request can forge others.
    pub(super) fn covers(&self, origin: &Origin) -> bool {
        match (self, origin) {
            (Self::SharedSecret { .. }, _) => false,
            (_, Origin::Pointer(_)) => true,
            (Self::StandardWebhooks { .. }, Origin::Header(name)) => {
                ["webhook-id", "webhook-timestamp"].iter().any(|signed| name.eq_ignore_ascii_case(signed))
            }
            (Self::Hmac { .. } | Self::Stripe { .. }, Origin::Header(_)) => false,
        }
    }

    /// The largest difference between the signed time and the receipt, if the scheme signs a time.
    pub fn tolerance(&self) -> Option<Duration> {
        match self {
            Self::StandardWebhooks { tolerance_seconds } | Self::Stripe { tolerance_seconds } => {
                Some(Duration::from_secs(u64::from(*tolerance_seconds)))
            }
            Self::SharedSecret { .. } | Self::Hmac { .. } => None,
        }
    }

    /// Checks that a secret has the form that the scheme needs.
    pub fn check_secret(&self, secret: &ForeignSecret) -> Result<(), InvalidForeignSecret> {
        match self {
            Self::StandardWebhooks { .. } => secret.standard_webhooks().map(drop),
            Self::SharedSecret { .. } | Self::Hmac { .. } | Self::Stripe { .. } => Ok(()),
        }
    }

    /// The first invalid setting and its rule, if any.
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
    /// Decodes a signature of 32 bytes.
    pub(super) fn decode(self, text: &str) -> Option<[u8; 32]> {
        match self {
            Self::Hex => {
                let mut bytes = [0; 32];
                // The length check excludes the prefix `0x`, which the decoder accepts.
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

/// Whether the check holds for one of the secrets. It always tries all of them.
pub(super) fn any_secret(secrets: &[ForeignSecret], holds: impl Fn(&ForeignSecret) -> Choice) -> bool {
    secrets.iter().fold(Choice::from(0), |any, secret| any | holds(secret)).into()
}

/// Refuses a caller who did not prove to be the provider.
pub(super) fn unverified(detail: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::new(Reason::Unauthenticated, detail)
}

/// Refuses a request before its signature was computed, in the time that the computation takes. Time then
/// does not reveal the cause of the refusal.
pub(super) fn refuse_in_equal_time(request: &WebhookRequest<'_>, refusal: Refusal) -> Refusal {
    pretend(request);
    refusal
}

pub(super) fn required_header<'a>(request: &WebhookRequest<'a>, header: &str) -> Result<&'a str, Refusal> {
    request.header(header)?.ok_or_else(|| unverified(format!("{} is missing", header.to_ascii_lowercase())))
}

fn require(holds: bool, header: &str, expected: &str) -> Result<(), Refusal> {
    if holds {
        return Ok(());
    }
    Err(unverified(format!("{} is not {expected}", header.to_ascii_lowercase())))
}

fn standard_webhooks(request: &WebhookRequest<'_>, secrets: &[ForeignSecret]) -> Result<Timestamp, Refusal> {
    let [id, timestamp, signatures] = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let read = || {
        let [id, timestamp, signatures] =
            [id, timestamp, signatures].map(|name| required_header(request, name));
        let parsed = WebhookSignature::parse(id?, timestamp?, signatures?);
        parsed.map_err(|refusal| unverified(refusal.detail))
    };
    let signature = read().map_err(|refusal| refuse_in_equal_time(request, refusal))?;
    let holds = any_secret(secrets, |secret| {
        // A secret of another form does not belong to this scheme, and no signature is valid under it.
        let mac = secret.standard_webhooks();
        mac.map_or(Choice::from(0), |mac| {
            Choice::from(u8::from(signature.verify_with(mac, request.body).is_some()))
        })
    });
    require(holds, signatures, "the signature of the body under the adapter's secret")?;
    Ok(Timestamp(signature.timestamp.saturating_mul(1000)))
}

/// Compares the signed time with the tolerance. The caller has verified the signature before.
fn check_age(signed_at: Timestamp, now: Timestamp, tolerance_seconds: u32) -> Result<(), Refusal> {
    if now.skew(signed_at) <= Duration::from_secs(u64::from(tolerance_seconds)) {
        return Ok(());
    }
    let detail = format!("signed more than {tolerance_seconds} s before or after its receipt");
    let skew = Some(Skew { sent_at: signed_at, received_at: now });
    Err(Refusal { skew, ..Refusal::new(Reason::TimestampOutOfWindow, detail) })
}
