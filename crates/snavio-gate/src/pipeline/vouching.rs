//! Checks that cover events before they are judged one by one: batches with one signature (MSG-4), which are
//! checked once, and providers' webhooks, from which an adapter makes events (MSG-7).

use std::sync::Arc;

use bytes::Bytes;
use snavio_model::adapter::{WebhookRequest, pretend};
use snavio_model::bounds::BODY_BYTES_MAX;
use snavio_model::name::ServiceName;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::LiveAdapter;
use snavio_model::signature::webhook::WebhookSignature;
use snavio_model::time::Timestamp;

use crate::Gate;
use crate::pipeline::shield::Vouched;

/// A webhook that is verified as its provider's.
#[derive(Debug)]
pub struct VerifiedWebhook {
    adapter: Arc<LiveAdapter>,
    vouched: Vouched,
}

impl VerifiedWebhook {
    /// The service that the adapter makes events for.
    pub fn source(&self) -> &ServiceName {
        &self.adapter.adapter.service
    }

    /// Makes the native event of the request, with the proof that it is the provider's. This is the costly
    /// part; the caller must hold the tenant's concurrency permit.
    pub fn into_event(self, request: &WebhookRequest<'_>) -> Result<(Bytes, Vouched), Refusal> {
        let event = self.adapter.adapter.event(request)?;
        if event.len() > BODY_BYTES_MAX {
            let detail = format!("the event that the adapter makes is larger than {BODY_BYTES_MAX} bytes");
            return Err(Refusal::new(Reason::TooLarge, detail));
        }
        Ok((event.into(), self.vouched))
    }
}

/// Why a webhook was not verified.
#[derive(Debug)]
pub enum UnverifiedWebhook {
    /// There is no such adapter, or the request is not its provider's. The caller does not learn which.
    Stranger,
    /// The request is the provider's and came too late, or the registry was too old to verify it.
    Refused {
        /// The service that the adapter makes events for.
        source: Option<ServiceName>,
        refusal: Refusal,
    },
}

impl Gate {
    /// Checks the age and the signature of a batch, by a registry that is not too old.
    pub async fn vouch(
        &self,
        webhook: &WebhookSignature,
        body: &[u8],
        source: &ServiceName,
        received_at: Timestamp,
    ) -> Result<Vouched, Refusal> {
        self.check_age().await?;
        let vouched = Vouched::check(webhook, body, source, &self.registry(), received_at, self.window());
        vouched.map_err(|refusal| self.throttle_signature(source, refusal, received_at))
    }

    /// Checks that a request is from an adapter's provider, by a registry that is not too old.
    pub async fn verify_webhook(
        &self,
        tenant: &str,
        adapter: &str,
        request: &WebhookRequest<'_>,
        received_at: Timestamp,
    ) -> Result<VerifiedWebhook, UnverifiedWebhook> {
        self.check_age().await.map_err(|refusal| UnverifiedWebhook::Refused { source: None, refusal })?;
        match self.registry().adapter(tenant, adapter) {
            Some(adapter) => verify_webhook(adapter, request, received_at),
            None => {
                pretend(request);
                Err(UnverifiedWebhook::Stranger)
            }
        }
    }
}

fn verify_webhook(
    adapter: &Arc<LiveAdapter>,
    request: &WebhookRequest<'_>,
    received_at: Timestamp,
) -> Result<VerifiedWebhook, UnverifiedWebhook> {
    let vouched = Vouched::check_webhook(adapter, request, received_at).map_err(|refusal| {
        tracing::info!(
            target: "snavio::message", adapter = adapter.name(), reason = refusal.reason.code(), detail = &*refusal.detail,
            "a webhook was not verified"
        );
        // A caller with the secret may learn that its request came too late.
        if refusal.reason == Reason::TimestampOutOfWindow {
            UnverifiedWebhook::Refused { source: Some(adapter.adapter.service.clone()), refusal }
        } else {
            UnverifiedWebhook::Stranger
        }
    })?;
    Ok(VerifiedWebhook { adapter: Arc::clone(adapter), vouched })
}
