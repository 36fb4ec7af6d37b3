//! What is vouched for before its events are looked at one by one: batches that are signed as a whole (MSG-4), checked once
//! for all that is in them, and webhooks of providers, which an adapter makes events of (MSG-7).

use std::sync::Arc;

use bytes::Bytes;
use snavio_model::adapter::{WebhookRequest, pretend};
use snavio_model::limits::BODY_BYTES_MAX;
use snavio_model::name::ServiceName;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::LiveAdapter;
use snavio_model::time::Timestamp;
use snavio_model::webhook::WebhookSignature;

use crate::Gate;
use crate::shield::Vouched;

/// A webhook that its provider showed to be its own, as an event of the adapter's service.
#[derive(Debug)]
pub struct Adapted {
    /// The service that the adapter speaks for.
    pub source: ServiceName,
    /// The native event.
    pub event: Bytes,
    /// That it is the provider's.
    pub vouched: Vouched,
}

/// Why a webhook is no event.
#[derive(Debug)]
pub enum Unadapted {
    /// There is no such adapter, or the request is not its provider's: whoever asks is not told which.
    Unverified,
    /// The request is the provider's, or whose it is could not be asked.
    Refused {
        /// The service that the adapter speaks for.
        source: Option<ServiceName>,
        /// Why.
        refusal: Refusal,
    },
}

impl Gate {
    /// Checks age and signature of a batch, by a registry that is not too old.
    pub async fn vouch(
        &self,
        webhook: &WebhookSignature,
        body: &[u8],
        source: &ServiceName,
        received_at: Timestamp,
    ) -> Result<Vouched, Refusal> {
        self.check_age().await?;
        Vouched::check(webhook, body, source, &self.registry(), received_at, self.window())
    }

    /// Checks that a request is from an adapter's provider, by a registry that is not too old, and makes an event of it.
    pub async fn adapt(
        &self,
        tenant: &str,
        adapter: &str,
        request: &WebhookRequest<'_>,
        received_at: Timestamp,
    ) -> Result<Adapted, Unadapted> {
        self.check_age().await.map_err(|refusal| Unadapted::Refused { source: None, refusal })?;
        match self.registry().adapter(tenant, adapter) {
            Some(adapter) => adapt(adapter, request, received_at),
            None => {
                pretend(request);
                Err(Unadapted::Unverified)
            }
        }
    }
}

fn adapt(
    adapter: &Arc<LiveAdapter>,
    request: &WebhookRequest<'_>,
    received_at: Timestamp,
) -> Result<Adapted, Unadapted> {
    let source = adapter.adapter.service.clone();
    let refused = |refusal| Unadapted::Refused { source: Some(adapter.adapter.service.clone()), refusal };
    let vouched = Vouched::by_adapter(adapter, request, received_at).map_err(|refusal| {
        tracing::info!(
            target: "snavio::message", adapter = adapter.name(), reason = refusal.reason.code(), detail = &*refusal.detail,
            "a webhook was not verified"
        );
        // Whoever has the secret may know that it came too late.
        if refusal.reason == Reason::TimestampOutOfWindow { refused(refusal) } else { Unadapted::Unverified }
    })?;
    let event = adapter.adapter.event(request).map_err(refused)?;
    if event.len() > BODY_BYTES_MAX {
        let detail = format!("the event that the adapter makes is larger than {BODY_BYTES_MAX} bytes");
        return Err(refused(Refusal::new(Reason::TooLarge, detail)));
    }
    Ok(Adapted { source, event: event.into(), vouched })
}
