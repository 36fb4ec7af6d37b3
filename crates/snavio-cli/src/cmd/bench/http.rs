//! The part of HTTP/1.1 that a load generator needs: fixed request heads, and answers with a content length.

use std::ops::Range;

use memchr::memmem;

use super::load::{Tally, Wire};
use super::messages::MessageStock;

/// The head of a POST with a JSON body of `length` bytes.
pub(super) fn head(path: &str, host: &str, token: &str, length: usize) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
    .into_bytes()
}

/// A complete answer at the front of the received bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Range<usize>,
}

/// Reads an answer; none while it is incomplete.
pub(super) fn answer(received: &[u8]) -> std::io::Result<Option<Answer>> {
    let Some(head_end) = memmem::find(received, b"\r\n\r\n") else { return Ok(None) };
    let head = &received[..head_end];
    let status = head.get(9..12).and_then(number).and_then(|status| u16::try_from(status).ok());
    let length = memmem::find(head, b"content-length: ").and_then(|start| number(&head[start + 16..]));
    let (Some(status), Some(length)) = (status, length) else {
        return Err(std::io::Error::other(format!(
            "an answer without a status or a content-length: {}",
            String::from_utf8_lossy(head)
        )));
    };
    let body = head_end + 4..head_end + 4 + length;
    Ok((received.len() >= body.end).then_some(Answer { status, body }))
}

/// Parses the number at the front of a text.
pub(super) fn number(text: &[u8]) -> Option<usize> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

/// The client side of prepared commands, one by one or in batches, until they run out.
pub(super) struct Ingest {
    stock: MessageStock,
    batch: usize,
    head: Vec<u8>,
}

impl Ingest {
    pub(super) fn new(stock: MessageStock, batch: usize, host: &str, token: &str) -> Self {
        let message = stock.message_bytes();
        let head = match batch {
            1 => head("/v1/commands", host, token, message),
            // The brackets, and a comma before each message except the first.
            _ => head("/v1/commands/batch", host, token, batch * message + batch + 1),
        };
        Self { stock, batch, head }
    }
}

impl Wire for Ingest {
    fn request(&mut self, _: usize, out: &mut Vec<u8>) -> bool {
        let Some(messages) = self.stock.take(self.batch) else { return false };
        out.extend_from_slice(&self.head);
        if self.batch == 1 {
            messages.for_each(|message| out.extend_from_slice(message));
            return true;
        }
        let mut mark = b'[';
        for message in messages {
            out.push(mark);
            out.extend_from_slice(message);
            mark = b',';
        }
        out.push(b']');
        true
    }

    fn answer(&mut self, _: usize, received: &[u8], tally: &mut Tally) -> std::io::Result<Option<usize>> {
        let Some(answer) = answer(received)? else { return Ok(None) };
        if self.batch == 1 || answer.status != 200 {
            tally.count(answer.status, self.batch as u64);
        } else {
            count_verdicts(&received[answer.body.clone()], tally);
        }
        Ok(Some(answer.body.end))
    }
}

/// Counts the statuses in the answer to a batch: each message has its own.
fn count_verdicts(body: &[u8], tally: &mut Tally) {
    const STATUS: &[u8] = br#""status":"#;
    for start in memmem::find_iter(body, STATUS) {
        let status = number(&body[start + STATUS.len()..]).and_then(|status| u16::try_from(status).ok());
        tally.count(status.unwrap_or(0), 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_complete_with_its_body() {
        let text =
            b"HTTP/1.1 202 Accepted\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}HT";
        let found = answer(text).unwrap().unwrap();
        assert_eq!((found.status, &text[found.body.clone()]), (202, &b"{}"[..]));
        for end in 0..found.body.end {
            assert_eq!(answer(&text[..end]).unwrap(), None);
        }
        assert!(answer(b"HTTP/1.1 202 Accepted\r\n\r\n").is_err());
    }

    #[test]
    fn batch_verdicts_are_counted_one_by_one() {
        let body =
            br#"{"results":[{"accepted":true,"status":202},{"status":200},{"status":202},{"status":429}]}"#;
        let mut tally = Tally::default();
        count_verdicts(body, &mut tally);
        assert_eq!((tally.accepted, tally.duplicate, tally.refused[&429]), (2, 1, 1));
        assert_eq!(tally.answered(), 4);
    }
}
