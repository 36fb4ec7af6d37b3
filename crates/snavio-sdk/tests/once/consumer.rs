//! A consumer under test: its own database with claims and effects, and deliveries for it. An effect is a
//! row.

use serde_json::json;
use snavio_sdk::Delivery;
use snavio_sdk::once::{Once, OnceError};

/// The behaviour of an effect after it has written its row.
#[derive(Debug, Clone)]
pub(crate) enum AfterWrite {
    Return(Option<String>),
    Fail,
    Panic,
    /// Ignores an error that has ended or spoilt its transaction.
    IgnoreError,
    RollBack,
}

impl AfterWrite {
    pub(crate) fn returning(result: &str) -> Self {
        Self::Return(Some(result.to_owned()))
    }
}

/// A consumer with a database. Every call opens its own connection, as if another process made it.
pub(crate) trait Consumer: Clone + Send + Sync + 'static {
    /// Creates a consumer with a new database.
    fn new() -> impl Future<Output = Self> + Send;

    /// Returns a consumer of another name over the same database.
    fn named(&self, name: &str) -> Self;

    fn once(
        &self,
        delivery: Delivery,
        then: AfterWrite,
    ) -> impl Future<Output = Result<Once, OnceError>> + Send + 'static;

    /// Counts the effects of all messages.
    fn effects(&self) -> impl Future<Output = i64> + Send;

    fn run(&self, sql: &str) -> impl Future<Output = ()> + Send;

    /// Deletes claims older than this many days, and returns their number.
    fn cleanup(&self, days: u64) -> impl Future<Output = Result<u64, OnceError>> + Send;
}

/// A delivery of a message of `acme/billing`.
pub(crate) fn delivery(id: &str) -> Delivery {
    delivery_from("acme/billing", id)
}

/// A delivery of a message with another name or amount.
pub(crate) fn delivery_with(id: &str, name: &str, amount: u32) -> Delivery {
    let mut delivery = delivery(id);
    let command = json!({ "source": "acme/billing", "target": "acme/bot", "name": name, "payload": { "amount": amount } });
    let message = json!({ "metadata": { "id": id }, "command": command });
    delivery.message = serde_json::from_value(message).unwrap();
    delivery
}

pub(crate) fn delivery_from(source: &str, id: &str) -> Delivery {
    let delivery = json!({
        "delivery_id": 1, "fence": 2, "attempt": 1,
        "message": {
            "metadata": { "id": id },
            "command": { "source": source, "target": "acme/bot", "name": "pay", "payload": { "amount": 10 } },
        },
    });
    serde_json::from_str(&delivery.to_string()).unwrap()
}

/// Renders the result of a call in one line, for assertions.
pub(crate) fn describe(ended: &Result<Once, OnceError>) -> String {
    match ended {
        Ok(once) => format!("{once:?}"),
        Err(error) => {
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(error);
            while let Some(error) = cause {
                text += &format!(": {error}");
                cause = error.source();
            }
            text
        }
    }
}
