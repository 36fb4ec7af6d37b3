//! Stripe's signature: `t=<seconds>,v1=<hex>` in `Stripe-Signature`, over the time, a point and the body.

use super::request::WebhookRequest;
use super::secret::ForeignSecret;
use super::verification::{Encoding, any, given, unseen, unverified};
use crate::bounds::WEBHOOK_SIGNATURES_MAX;
use crate::refusal::Refusal;
use crate::signature::webhook::whole_seconds;
use crate::time::Timestamp;

pub(super) const HEADER: &str = "stripe-signature";

/// When the request was signed, if it was by somebody who has one of the secrets.
pub(super) fn verify(request: &WebhookRequest<'_>, secrets: &[ForeignSecret]) -> Result<Timestamp, Refusal> {
    let form = || unverified("stripe-signature must be t=<seconds>,v1=<hex>, with 1 to 8 signatures");
    let signed = given(request, HEADER).and_then(|it| Signed::parse(it).ok_or_else(form));
    let signed = signed.map_err(|refusal| unseen(request, refusal))?;
    let parts = [signed.time.as_bytes(), b".", request.body];
    let holds = any(secrets, |secret| secret.has_signed(&parts, &signed.signatures));
    if !holds {
        return Err(unverified("stripe-signature is not that of the body under the adapter's secret"));
    }
    Ok(Timestamp(signed.seconds.saturating_mul(1000)))
}

struct Signed<'a> {
    time: &'a str,
    seconds: i64,
    signatures: Vec<[u8; 32]>,
}

impl<'a> Signed<'a> {
    /// Reads the header. Signatures of other schemes than `v1` can never match and are passed over.
    fn parse(header: &'a str) -> Option<Self> {
        let (mut time, mut signatures) = (None, Vec::new());
        for part in header.split(',') {
            match part.trim().split_once('=')? {
                ("t", value) if time.is_none() => time = Some(value),
                ("t", _) => return None,
                ("v1", value) => signatures.push(Encoding::Hex.decode(value)?),
                _ => {}
            }
        }
        let (time, count) = (time?, signatures.len());
        let seconds = whole_seconds(time)?;
        (1..=WEBHOOK_SIGNATURES_MAX).contains(&count).then_some(Self { time, seconds, signatures })
    }
}
