//! The fan-out of a message, estimated before it is checked: the cost of a message depends on its number of
//! destinations (PIP-9, PIP-13).

use snavio_model::bounds;
use snavio_model::json::{Found, Pointer};
use snavio_model::message::MessageKind;
use snavio_model::name::CommandName;
use snavio_model::registry::Registry;

use crate::gate::Gate;
use crate::pipeline::shield::{Arrival, Form};

/// If no event type of a service has more subscriptions than this, its events are not parsed for their
/// fan-out: a batch of them is never too wide.
const NARROW_MAX: usize = 16;
const _: () = assert!(NARROW_MAX * bounds::BATCH_MESSAGES_MAX <= bounds::BATCH_DESTINATIONS_MAX);

impl Gate {
    /// The number of messages that an arrival counts as: one for each destination.
    pub fn breadth(&self, arrival: &Arrival) -> usize {
        breadth(arrival, &self.registry())
    }
}

fn breadth(arrival: &Arrival, registry: &Registry) -> usize {
    if arrival.kind == MessageKind::Command || registry.widest(&arrival.source) <= NARROW_MAX {
        return 1;
    }
    event_type(arrival).map_or(1, |name| registry.subscriptions_to(&arrival.source, &name).len().max(1))
}

fn event_type(arrival: &Arrival) -> Option<CommandName> {
    let in_body = |pointer: &str| {
        let pointer = Pointer::new(pointer).ok()?;
        Found::at(&arrival.body, &pointer).ok()??.text()
    };
    let text = match &arrival.form {
        Form::Native => in_body("/eventType"),
        Form::Structured => in_body("/type"),
        Form::Binary(headers) => headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("ce-type"))
            .map(|(_, value)| value.clone()),
    };
    CommandName::event_type(&text?).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use snavio_model::registry::{Entry, Sealed, Service, Tenant, Unseal};
    use snavio_model::signature::signing::Secret;
    use snavio_model::time::Timestamp;

    use super::*;

    struct NoKeys;

    impl Unseal for NoKeys {
        fn unseal(&self, _: &Sealed) -> Option<Secret> {
            None
        }
    }

    /// In this registry `acme/shop` publishes `wide` to so many subscriptions, and `narrow` to one.
    fn registry(wide: usize) -> Registry {
        let subscription = |name: &str, n: usize| {
            let text = format!(
                r#"{{"target":"acme/s{n}","events_of":"acme/shop","name":"{name}","queue":"q","dead_letter_queue":"d"}}"#
            );
            Entry::Subscription(serde_json::from_str(&text).unwrap())
        };

        let mut entries =
            vec![Entry::Tenant(Tenant { name: "acme".parse().unwrap(), contact: None, suspended: false })];
        let names = (0..wide).map(|n| format!("acme/s{n}").parse().unwrap());
        entries.extend(names.map(|name| Entry::Service(Service::new(name))));
        entries.extend((0..wide).map(|n| subscription("wide", n)));
        entries.push(subscription("narrow", 0));
        let mut registry = Registry::default();
        registry.fill(entries, &NoKeys);
        registry
    }

    fn event(form: Form, body: &str) -> Arrival {
        Arrival {
            kind: MessageKind::Event,
            form,
            source: "acme/shop".parse().unwrap(),
            body: body.to_owned().into(),
            webhook: None,
            vouched: None,
            correlation: None,
            traceparent: None,
            received_at: Timestamp(0),
            random: [0; 40],
        }
    }

    /// PIP-9, PIP-13
    #[test]
    fn event_counts_once_for_each_subscription_in_every_form() {
        let headers = [("CE-Type".to_owned(), "wide".to_owned())];
        let registry = registry(100);
        for (form, body, expected) in [
            (Form::Native, r#"{"data":{"eventType":"narrow"},"eventType":"wide"}"#, 100),
            (Form::Native, r#"{"eventType":"narrow"}"#, 1),
            (Form::Native, r#"{"eventType":"unknown"}"#, 1),
            (Form::Native, r#"{"eventType":"#, 1),
            (Form::Structured, r#"{"type":"wide"}"#, 100),
            (Form::Binary(Arc::new(headers)), "anything", 100),
        ] {
            assert_eq!(breadth(&event(form, body), &registry), expected, "{body}");
        }
        let command =
            Arrival { kind: MessageKind::Command, ..event(Form::Native, r#"{"eventType":"wide"}"#) };
        assert_eq!(breadth(&command, &registry), 1);
        let few = event(Form::Native, r#"{"eventType":"wide"}"#);
        assert_eq!(breadth(&few, &self::registry(NARROW_MAX)), 1, "a few subscriptions count as one");
    }
}
