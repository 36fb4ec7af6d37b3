//! A workload's own token, exchanged for one of the platform's (REG-7): nobody keeps a long-lived secret for it.

use http::Extensions;
use snavio_model::identity::assertion;
use snavio_model::identity::assertion::Assertion;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::Workload;
use snavio_model::time::Clock;

use super::App;
use crate::jws::Parts;

/// Why a workload's token is not exchanged.
pub(super) enum Unfit {
    /// Told in OAuth's words.
    Wrong(String),
    /// Told as a problem: too many were wrong, or the issuer's keys cannot be had.
    Refused(Refusal),
}

/// The workload that a token proves to be, if a trusted issuer signed it and a service is bound to it.
pub(super) async fn workload(app: &App, extensions: &Extensions, token: &str) -> Result<Workload, Unfit> {
    let guess = || guess(app, extensions);
    let parts = Parts::of(token).ok_or_else(guess)?;
    let claims: Assertion = serde_json::from_slice(&parts.payload).map_err(|_| guess())?;
    let issuer = app.gate.registry().issuer(&claims.iss).cloned().ok_or_else(guess)?;
    let key = app.key_sets.find(&issuer, &parts).await.map_err(|error| {
        let cause = &error as &dyn std::error::Error;
        tracing::error!(issuer = issuer.issuer, error = cause, "the keys of a trusted issuer cannot be had");
        metrics::counter!("snavio_issuer_failures_total").increment(1);
        Unfit::Refused(Refusal::new(Reason::Unavailable, "the issuer's keys cannot be had now"))
    })?;
    if !key.is_some_and(|key| parts.is_signed_by(&key)) {
        return Err(guess());
    }
    assertion::check(&claims, &issuer, app.clock.now()).map_err(|fault| Unfit::Wrong(fault.to_string()))?;
    let bound = app.gate.registry().workload(&claims.iss, &claims.sub).cloned();
    bound.ok_or_else(|| Unfit::Wrong("no service is bound to this workload".to_owned()))
}

/// What no trusted issuer signed is counted like any other wrong credential.
fn guess(app: &App, extensions: &Extensions) -> Unfit {
    const DETAIL: &str = "the assertion is not a JWT of a trusted issuer, signed with RS256, ES256 or EdDSA";
    let refusal = app.failures.refuse(extensions, app.clock.now(), DETAIL);
    match refusal.reason {
        Reason::AuthThrottled => Unfit::Refused(refusal),
        _ => Unfit::Wrong(DETAIL.to_owned()),
    }
}
