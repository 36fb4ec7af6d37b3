//! Calls HTTP processors with messages as consumers see them.

use async_trait::async_trait;
use snavio_gate::Processor;
use snavio_model::processing::Ending;
use snavio_model::registry::BoundRoute;
use snavio_sink::{Call, HttpProcessor};
use snavio_store::Received;

use crate::http::written;

/// Calls what routes name.
pub(crate) struct Calls(pub(crate) HttpProcessor);

impl Calls {
    /// Why an address may not be called, as far as can be told before its name is resolved.
    pub(crate) fn problem(&self, url: &str) -> Option<String> {
        self.0.check(url).err().map(|error| error.to_string())
    }
}

#[async_trait]
impl Processor for Calls {
    async fn call(&self, work: &Received, route: &BoundRoute) -> Ending {
        let processing = &route.route.processing;
        let failed = |error: &str| Ending::Failed {
            error: error.to_owned(),
            is_final: true,
            answer: None,
            retry_after: None,
        };
        let Some(url) = &processing.url else { return failed("the route names no processor") };
        let Some(body) = written(&work.message) else { return failed("the stored message cannot be read") };
        let call = Call {
            url: url.clone(),
            timeout: processing.timeout(),
            reference: processing.reference.clone(),
            idempotency_key: work.message.id.clone(),
            source: work.message.source.clone(),
            fence: work.fence,
            delivery_id: work.delivery_id,
            attempt: work.attempt,
            correlation: work.message.correlation.clone(),
            traceparent: work.message.traceparent.clone(),
            content_type: "application/json",
            body,
        };
        let ending = self.0.call(call).await;
        if let Ending::Completed { note: Some(note), .. } = &ending {
            let id = &work.message.id;
            tracing::warn!(target: "snavio::message", %id, note, "a processor is done, but not all of its answer is kept");
        }
        ending
    }
}
