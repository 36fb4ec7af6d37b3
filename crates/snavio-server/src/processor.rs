//! Calls HTTP processors and receivers of pushes, with messages as their routes want them.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use snavio_gate::{Attempt, Processor};
use snavio_model::cloudevents::CloudEvent;
use snavio_model::delivery::breaker::Presence;
use snavio_model::delivery::processing::{Called, Ending, Processing, ProcessingKind, PushForm};
use snavio_model::message::Message;
use snavio_model::signature::webhook;
use snavio_sink::guard::GuardError;
use snavio_sink::{Call, HttpProcessor, HttpPush, Network, Sink};

use crate::http::written;

/// Calls what routes name.
pub(crate) struct Calls {
    processor: Arc<dyn Sink>,
    push: Arc<dyn Sink>,
}

/// What a sink is called with.
type Make = fn(&Attempt<'_>) -> Result<Call, Unsendable>;

impl Calls {
    /// Calls public addresses, and those allowed.
    pub(crate) fn new(allowed: &[Network]) -> Result<Self, GuardError> {
        let (processor, push) = (HttpProcessor::new(allowed)?, HttpPush::new(allowed)?);
        Ok(Self { processor: Arc::new(processor), push: Arc::new(push) })
    }

    /// Who makes the calls of a kind, and with what; nobody of one that somebody else takes from a queue.
    fn sink(&self, kind: ProcessingKind) -> Option<(&dyn Sink, Make)> {
        match kind {
            ProcessingKind::Http => Some((&*self.processor, processed)),
            ProcessingKind::Push => Some((&*self.push, pushed)),
            ProcessingKind::Queue | ProcessingKind::Tracked | ProcessingKind::Reported => None,
        }
    }

    /// Why what a route names may not be called, as far as can be told before its name is resolved. Only the sink that would
    /// call it knows.
    pub(crate) fn problem(&self, processing: &Processing) -> Option<String> {
        let (sink, _) = self.sink(processing.kind)?;
        sink.check(processing.url.as_deref()?).err().map(|error| error.to_string())
    }
}

#[async_trait]
impl Processor for Calls {
    async fn call(&self, attempt: Attempt<'_>) -> Called {
        let Some((sink, make)) = self.sink(attempt.route.route.processing.kind) else {
            return Unsendable::Yet("the route names nobody to call").into();
        };
        let call = match make(&attempt) {
            Ok(call) => call,
            Err(why) => return why.into(),
        };
        let called = sink.send(call).await;
        if let Ending::Completed { note: Some(note), .. } = &called.ending {
            let id = &attempt.work.message.id;
            tracing::warn!(target: "snavio::message", %id, note, "a processor is done, but not all of its answer is kept");
        }
        called
    }
}

/// Why a message is not sent.
enum Unsendable {
    /// No attempt of this one would end otherwise.
    Ever(&'static str),
    /// Nothing is wrong with the message: it waits until somebody has seen to it.
    Yet(&'static str),
}

impl From<Unsendable> for Called {
    fn from(why: Unsendable) -> Self {
        let (error, is_final) = match why {
            Unsendable::Ever(error) => (error, true),
            Unsendable::Yet(error) => (error, false),
        };
        let ending = Ending::Failed { error: error.to_owned(), is_final, answer: None, retry_after: None };
        Self { ending, presence: Presence::Unasked }
    }
}

/// What a processor is called with.
fn processed(attempt: &Attempt<'_>) -> Result<Call, Unsendable> {
    let (headers, body) = native(&attempt.work.message)?;
    call(attempt, headers, body)
}

/// What a receiver is sent, signed.
fn pushed(attempt: &Attempt<'_>) -> Result<Call, Unsendable> {
    let message = &attempt.work.message;
    let (mut headers, body) = match attempt.route.route.processing.form {
        PushForm::Native => native(message)?,
        PushForm::Cloudevents => structured(&cloud_event(message)?),
        PushForm::CloudeventsBinary => {
            let event = cloud_event(message)?;
            match event.to_binary() {
                Some(binary) => (binary.headers, Bytes::copy_from_slice(&binary.body)),
                // More headers than receivers take, or nothing that an empty body could say: every receiver of CloudEvents
                // reads the other mode too.
                None => structured(&event),
            }
        }
    };
    let Some(secret) = &attempt.secret else {
        return Err(Unsendable::Yet(
            "there is no secret to sign it with: rotate the push secret of its route",
        ));
    };
    // Of the time of this attempt: receivers refuse what is old.
    let seconds = attempt.now.0.div_euclid(1000);
    let signature = webhook::headers(secret.at(attempt.now), message.id.as_str(), seconds, &body);
    headers.extend(signature.map(|(name, value)| (name.to_owned(), value)));
    call(attempt, headers, body)
}

type Written = (Vec<(String, String)>, Bytes);

fn typed(content_type: &str) -> Vec<(String, String)> {
    vec![("content-type".to_owned(), content_type.to_owned())]
}

fn native(message: &Message) -> Result<Written, Unsendable> {
    let body = written(message).ok_or(Unsendable::Ever("the stored message cannot be read"))?;
    Ok((typed("application/json"), body))
}

fn structured(event: &CloudEvent<'_>) -> Written {
    (typed("application/cloudevents+json; charset=UTF-8"), event.to_structured().into())
}

fn cloud_event(message: &Message) -> Result<CloudEvent<'_>, Unsendable> {
    if message.is_erased() {
        return Err(Unsendable::Ever("what it said was destroyed, and a CloudEvent cannot say so"));
    }
    CloudEvent::of(message)
        .ok_or(Unsendable::Ever("a command is no event: its route must push it in native form"))
}

fn call(attempt: &Attempt<'_>, headers: Vec<(String, String)>, body: Bytes) -> Result<Call, Unsendable> {
    let (work, processing) = (attempt.work, &attempt.route.route.processing);
    let url = processing.url.clone().ok_or(Unsendable::Ever("the route names nobody to call"))?;
    Ok(Call {
        url,
        target: attempt.route.route.target.clone(),
        timeout: attempt.timeout,
        reference: processing.reference.clone(),
        on_unknown_outcome: processing.on_unknown_outcome,
        message_id: work.message.id.clone(),
        source: work.message.source.clone(),
        fence: work.fence,
        delivery_id: work.delivery_id,
        attempt: work.attempt,
        correlation: work.message.correlation.clone(),
        traceparent: work.message.traceparent.clone(),
        headers,
        body,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes addresses of one scheme.
    struct Only(&'static str);

    #[async_trait]
    impl Sink for Only {
        fn check(&self, address: &str) -> Result<(), GuardError> {
            address.starts_with(self.0).then_some(()).ok_or(GuardError::Address(self.0))
        }

        async fn send(&self, _: Call) -> Called {
            Unsendable::Yet("it is not called here").into()
        }
    }

    /// DLV-1, QUA-6
    #[test]
    fn an_address_is_judged_by_the_sink_that_would_call_it() {
        let calls = Calls { processor: Arc::new(Only("https:")), push: Arc::new(Only("nats:")) };
        let problem = |processing: Processing| calls.problem(&processing).is_some();
        for (url, is_wrong) in
            [("https://ledger.example/", [false, true]), ("nats://ledger.example/", [true, false])]
        {
            assert_eq!([problem(Processing::http(url)), problem(Processing::push(url))], is_wrong, "{url}");
        }
        assert!(!problem(Processing::default()), "nobody is called");
    }
}
