//! Consumers: each receives up to ten deliveries, acknowledges them, and repeats.

use memchr::memmem;

use super::http::{answer, head, number};
use super::load::{Tally, Wire};

/// The most deliveries in a receive request and in the acknowledgement after it.
const DELIVERIES: usize = 10;

/// Consumes a queue over any number of connections.
pub(super) struct Consume {
    ack_path: String,
    host: String,
    token: String,
    receive: Vec<u8>,
    /// Whether a connection ends once the queue is empty, instead of waiting for more.
    until_empty: bool,
    connections: Vec<ConsumerState>,
}

/// The next request of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ConsumerState {
    Receive,
    Acknowledge(Vec<u8>),
    Ended,
}

impl Consume {
    pub(super) fn new(queue: &str, host: &str, token: &str, connections: usize, until_empty: bool) -> Self {
        let wait = if until_empty { 0 } else { 1 };
        let body = format!(r#"{{"max":{DELIVERIES},"visibility_seconds":60,"wait_seconds":{wait}}}"#);
        let mut receive = head(&format!("/v1/queues/{queue}/receive"), host, token, body.len());
        receive.extend_from_slice(body.as_bytes());
        Self {
            ack_path: format!("/v1/queues/{queue}/ack"),
            host: host.to_owned(),
            token: token.to_owned(),
            receive,
            until_empty,
            connections: vec![ConsumerState::Receive; connections],
        }
    }

    fn state_after_receive(&self, body: &[u8]) -> ConsumerState {
        match acknowledgement(body) {
            Some(body) => ConsumerState::Acknowledge(body),
            None if self.until_empty => ConsumerState::Ended,
            None => ConsumerState::Receive,
        }
    }
}

impl Wire for Consume {
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) -> bool {
        match &self.connections[connection] {
            ConsumerState::Receive => out.extend_from_slice(&self.receive),
            ConsumerState::Acknowledge(body) => {
                out.extend_from_slice(&head(&self.ack_path, &self.host, &self.token, body.len()));
                out.extend_from_slice(body);
            }
            ConsumerState::Ended => return false,
        }
        true
    }

    fn answer(
        &mut self,
        connection: usize,
        received: &[u8],
        tally: &mut Tally,
    ) -> std::io::Result<Option<usize>> {
        let Some(answer) = answer(received)? else { return Ok(None) };
        let body = &received[answer.body.clone()];
        let next = match &self.connections[connection] {
            _ if answer.status != 200 => {
                tally.count(answer.status, 1);
                ConsumerState::Receive
            }
            ConsumerState::Receive => self.state_after_receive(body),
            _ => {
                count_outcomes(body, tally);
                ConsumerState::Receive
            }
        };
        self.connections[connection] = next;
        Ok(Some(answer.body.end))
    }
}

/// The acknowledgement of all deliveries in a response; none if it contains no deliveries.
fn acknowledgement(body: &[u8]) -> Option<Vec<u8>> {
    let numbers = |name: &'static str| {
        memmem::find_iter(body, name).filter_map(move |start| number(&body[start + name.len()..]))
    };
    let receipts: Vec<_> = numbers(r#""delivery_id":"#)
        .zip(numbers(r#""fence":"#))
        .map(|(delivery, fence)| format!(r#"{{"delivery_id":{delivery},"fence":{fence}}}"#))
        .collect();
    (!receipts.is_empty()).then(|| format!(r#"{{"receipts":[{}]}}"#, receipts.join(",")).into_bytes())
}

/// Counts an acknowledged delivery as accepted, and a delivery that was gone or fenced as refused.
fn count_outcomes(body: &[u8], tally: &mut Tally) {
    for (outcome, status) in [("done", 202), ("gone", 410), ("fenced", 409)] {
        let text = format!(r#""outcome":"{outcome}""#);
        let count = memmem::find_iter(body, &text).count() as u64;
        if count > 0 {
            tally.count(status, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_deliveries_are_acknowledged() {
        let body =
            br#"{"deliveries":[{"attempt":1,"delivery_id":7,"fence":9},{"delivery_id":8,"fence":10}]}"#;
        let wanted = br#"{"receipts":[{"delivery_id":7,"fence":9},{"delivery_id":8,"fence":10}]}"#;
        assert_eq!(acknowledgement(body).as_deref(), Some(&wanted[..]));
        assert_eq!(acknowledgement(br#"{"deliveries":[]}"#), None);
    }

    #[test]
    fn outcomes_are_counted() {
        let body =
            br#"{"results":[{"delivery_id":7,"outcome":"done"},{"outcome":"fenced"},{"outcome":"done"}]}"#;
        let mut tally = Tally::default();
        count_outcomes(body, &mut tally);
        assert_eq!((tally.accepted, tally.answered()), (2, 3));
    }
}
