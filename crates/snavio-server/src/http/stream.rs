//! Messages as a stream of lines: read as they come, answered in order, a bounded number under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::response::{IntoResponse, Response};
use bytes::{Buf, Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::{FuturesOrdered, Stream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use snavio_gate::Arrival;
use snavio_model::bounds;
use snavio_model::message::MessageKind;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::time::Clock;
use tokio::sync::mpsc;

use super::body::broken;
use super::commands::{Entry, arrival, on_record, send_entry};
use super::{Places, Shared};
use crate::load::{Kept, Room, overloaded};
use crate::principal::Session;
use crate::turns::{Turn, Turns};

/// Takes each line to its verdict. What cannot be read ends the stream, after the answers to what came before.
pub(super) fn send_lines(
    app: Shared,
    kind: MessageKind,
    session: Arc<Session>,
    headers: HeaderMap,
    body: Body,
    places: Places,
    room: Room,
) -> Response {
    let (sender, mut lines) = mpsc::channel(bounds::STREAM_ANSWERS_WAITING_MAX);
    let whole = Arc::new(AtomicBool::new(false));
    let answers = Answers { sender: Some(sender), patience: app.body_timeout, whole: Arc::clone(&whole) };
    tokio::spawn(async move {
        let _places = places;
        let lines = Lines::new(body.into_data_stream(), app.body_bytes_max, room);
        run(app, kind, session, headers, lines, answers).await;
    });
    // An answer that lacks lines must not look whole.
    let end = move |line: Option<Bytes>| match line {
        Some(line) => Some(Ok(line)),
        None => (!whole.swap(true, Ordering::AcqRel)).then(|| Err(std::io::ErrorKind::BrokenPipe.into())),
    };
    let answers = futures_util::stream::poll_fn(move |context| {
        lines.poll_recv(context).map(|line| -> Option<std::io::Result<Bytes>> { end(line) })
    });
    let mut response = Body::from_stream(answers).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    response
}

async fn run(
    app: Shared,
    kind: MessageKind,
    session: Arc<Session>,
    headers: HeaderMap,
    lines: Lines<BodyDataStream>,
    mut answers: Answers,
) {
    let source = session.service.clone();
    let mut under_way = FuturesOrdered::new();
    let mut held = Size::default();
    // Received as it comes, however long its turn takes.
    let received = |line| arrival(&app, kind, source.clone(), line, &headers);
    let mut lines = std::pin::pin!(in_turn(lines, session.turns(), received, |it| app.gate.breadth(it)));
    // Not on a task of its own: two lines with one id must not overtake each other.
    let take = |arrival: Arrival, size: Size, turn| {
        let (app, session) = (&app, &session);
        async move { (size, send_entry(app, session, arrival, turn).await) }
    };
    let refusal = loop {
        tokio::select! {
            line = lines.next(), if held.has_room() => match line {
                Some(Ok((line, destinations, turn))) => {
                    // Each line is a use of the token (REG-7).
                    if let Err(refusal) = session.check(&app.gate.registry(), app.clock.now()) {
                        break Some(refusal);
                    }
                    let size = Size { messages: 1, bytes: line.body.len(), destinations };
                    held = held.with(size);
                    under_way.push_back(take(line, size, turn));
                }
                Some(Err(refusal)) => break Some(refusal),
                None => break None,
            },
            Some((size, entry)) = under_way.next() => {
                held = held.without(size);
                answers.send(&entry).await;
            }
            () = app.stopping.cancelled() => break Some(stopping()),
        }
        if answers.sender.is_none() {
            // Nobody reads: what was taken is settled, and nothing more is.
            break None;
        }
    };
    while let Some((_, entry)) = under_way.next().await {
        answers.send(&entry).await;
    }
    if let Some(refusal) = refusal {
        answers.send(&on_record(&app, kind, &source, &headers, refusal).into()).await;
    }
    answers.end();
}

/// How much of a stream is under way: with each message come its bytes, and a verdict for each destination.
#[derive(Debug, Default, Clone, Copy)]
struct Size {
    messages: usize,
    bytes: usize,
    destinations: usize,
}

impl Size {
    /// Whether one more may come.
    fn has_room(&self) -> bool {
        self.messages < bounds::STREAM_IN_FLIGHT_MAX
            && self.bytes < bounds::STREAM_IN_FLIGHT_BYTES_MAX
            && self.destinations < bounds::STREAM_IN_FLIGHT_DESTINATIONS_MAX
    }

    fn with(self, more: Self) -> Self {
        Self {
            messages: self.messages + more.messages,
            bytes: self.bytes + more.bytes,
            destinations: self.destinations + more.destinations,
        }
    }

    fn without(self, gone: Self) -> Self {
        Self {
            messages: self.messages.saturating_sub(gone.messages),
            bytes: self.bytes.saturating_sub(gone.bytes),
            destinations: self.destinations.saturating_sub(gone.destinations),
        }
    }
}

/// Lines as they come, each with how many destinations it has and its turn at the pipeline (PIP-9). In their order: two with one id must not
/// overtake each other. The request's own part goes with the first line and ends with it, so that a stream that
/// sends nothing for a while keeps nobody from theirs.
fn in_turn<S, E, T>(
    lines: Lines<S>,
    turns: &Turns,
    received: impl Fn(Bytes) -> T,
    breadth: impl Fn(&T) -> usize,
) -> impl Stream<Item = Result<(T, usize, Turn), Refusal>>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: std::error::Error + 'static,
{
    let begin = (lines, true, received, breadth);
    futures_util::stream::unfold(begin, async |(mut lines, is_first, received, breadth)| {
        let line = match lines.next().await? {
            Ok(line) => received(line),
            Err(refusal) => return Some((Err(refusal), (lines, is_first, received, breadth))),
        };
        let wide = breadth(&line);
        let turn = if is_first { turns.take(wide).await } else { turns.take_more(wide).await };
        Some((Ok((line, wide, turn)), (lines, false, received, breadth)))
    })
}

fn stopping() -> Refusal {
    overloaded("the node is stopping; what was not answered was not taken: go on with another node")
}

/// Where the answers go.
struct Answers {
    /// Nothing once a line could not be handed over in time.
    sender: Option<mpsc::Sender<Bytes>>,
    patience: Duration,
    /// Set when every line was handed over.
    whole: Arc<AtomicBool>,
}

impl Answers {
    /// A reader that went away, or that does not read, gets no answers; its messages are settled all the same.
    async fn send(&mut self, entry: &Entry) {
        let Some(sender) = &self.sender else { return };
        let mut line = serde_json::to_vec(entry).unwrap_or_default();
        line.push(b'\n');
        if sender.send_timeout(line.into(), self.patience).await.is_err() {
            self.sender = None;
        }
    }

    fn end(self) {
        self.whole.store(self.sender.is_some(), Ordering::Release);
    }
}

/// Cuts a stream of bytes into lines of bounded length.
struct Lines<S> {
    parts: S,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line feed.
    searched: usize,
    limit: usize,
    /// For what is in the buffer.
    room: Room,
}

impl<S: Stream<Item = Result<Bytes, E>> + Unpin, E: std::error::Error + 'static> Lines<S> {
    fn new(parts: S, limit: usize, room: Room) -> Self {
        Self { parts, buffer: BytesMut::new(), searched: 0, limit, room }
    }

    /// The next line that is not blank. Nothing is lost when the future is dropped.
    async fn next(&mut self) -> Option<Result<Bytes, Refusal>> {
        loop {
            while let Some(line) = self.cut() {
                if !is_blank(&line) {
                    return Some(self.checked(line));
                }
            }
            if self.buffer.len() > self.limit {
                return Some(self.rest());
            }
            match self.parts.next().await {
                Some(Ok(part)) => match self.room.grow(part.len()) {
                    Ok(()) => self.buffer.extend_from_slice(&part),
                    Err(refusal) => return Some(Err(refusal)),
                },
                Some(Err(error)) => return Some(Err(broken(&error))),
                None if is_blank(&self.buffer) => return None,
                None => return Some(self.rest()),
            }
        }
    }

    /// The first line in the buffer. What was searched before is not searched again: a client that sends a long
    /// line byte by byte must not make the server look at each of them again for every further one.
    fn cut(&mut self) -> Option<Bytes> {
        let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + end).freeze();
        self.buffer.advance(1);
        self.searched = 0;
        let room = self.room.split(line.len() + 1);
        Some(Kept::with(line, room))
    }

    /// What is in the buffer, as a line that has no end.
    fn rest(&mut self) -> Result<Bytes, Refusal> {
        self.searched = 0;
        let line = self.buffer.split().freeze();
        let room = self.room.split(line.len());
        self.checked(Kept::with(line, room))
    }

    fn checked(&self, line: Bytes) -> Result<Bytes, Refusal> {
        if line.len() > self.limit {
            let detail = format!("a line is larger than {} bytes; the stream ends here", self.limit);
            return Err(Refusal::new(Reason::TooLarge, detail));
        }
        Ok(line)
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::load::{Class, Load};

    type Part = Result<Bytes, std::io::Error>;

    fn cut(parts: Vec<&'static str>, limit: usize) -> Lines<impl Stream<Item = Part> + Unpin> {
        let parts = parts.into_iter().map(|part| Part::Ok(Bytes::from_static(part.as_bytes())));
        let room = Load::new(1, 20).room(Class::Ordinary, None).unwrap();
        Lines::new(futures_util::stream::iter(parts), limit, room)
    }

    async fn lines(parts: Vec<&'static str>, limit: usize) -> Vec<String> {
        let mut lines = cut(parts, limit);
        let mut told = Vec::new();
        while let Some(line) = lines.next().await {
            match line {
                Ok(line) => told.push(String::from_utf8(line.to_vec()).unwrap()),
                Err(refusal) => {
                    told.push(refusal.reason.code().to_owned());
                    return told;
                }
            }
        }
        told
    }

    /// PIP-8
    #[tokio::test]
    async fn lines_are_cut_wherever_the_parts_end() {
        assert_eq!(lines(vec!["a\nb", "b\n", "\n \r\n", "c"], 10).await, ["a", "bb", "c"]);
        assert_eq!(lines(vec!["a", "\n", "b\nc\nd\n"], 10).await, ["a", "b", "c", "d"]);
        assert_eq!(lines(vec![" \n "], 10).await, [""; 0]);
    }

    /// MSG-10
    #[tokio::test]
    async fn a_line_over_the_limit_is_refused_whether_or_not_its_end_was_seen() {
        assert_eq!(lines(vec!["1234\n12345\n"], 4).await, ["1234", "too_large"]);
        assert_eq!(lines(vec!["1234\n", "12", "345"], 4).await, ["1234", "too_large"]);
    }

    /// PIP-9
    #[tokio::test]
    async fn lines_wait_for_their_turns_and_a_stream_at_rest_holds_none() {
        let turns = Turns::default();
        let mut lines = std::pin::pin!(in_turn(cut(vec!["a\nb\n"], 10), &turns, |line| line, |_| 1));
        // No request has more than half of them.
        let others = [turns.take(usize::MAX / 2).await, turns.take(usize::MAX / 2).await];
        assert!(lines.next().now_or_never().is_none(), "the first waits");
        drop(others);
        let (first, _, held) = lines.next().await.unwrap().unwrap();
        let rest = bounds::TENANT_TURNS - 3 * bounds::TURN_OF_REQUEST - 1;
        let others = [rest / 2, rest - rest / 2]
            .map(|part| turns.take(part).now_or_never().expect("it holds its request's part and one"));
        assert!(lines.next().now_or_never().is_none(), "the second waits");
        drop(held);
        let (second, _, held) = lines.next().now_or_never().expect("its turn has come").unwrap().unwrap();
        assert_eq!((&first[..], &second[..]), (&b"a"[..], &b"b"[..]));
        assert!(turns.take(0).now_or_never().is_some(), "it holds one alone");
        drop((held, others));
        let all = [(); 2].map(|()| turns.take(usize::MAX / 2).now_or_never());
        assert!(all.iter().all(Option::is_some), "at rest it holds nothing");
        assert!(lines.next().await.is_none());
    }

    /// PIP-9, PIP-13
    #[test]
    fn no_more_of_a_stream_is_under_way_than_its_verdicts_have_room_for() {
        let event = Size { messages: 1, bytes: 100, destinations: bounds::SUBSCRIPTIONS_PER_TYPE_MAX };
        let mut held = Size::default();
        while held.has_room() {
            held = held.with(event);
        }
        assert_eq!(held.destinations, bounds::STREAM_IN_FLIGHT_DESTINATIONS_MAX);
        assert!(held.without(event).has_room());
        let narrow = Size { destinations: 1, ..event };
        let mut held = Size::default();
        (0..bounds::STREAM_IN_FLIGHT_MAX).for_each(|_| held = held.with(narrow));
        assert!(!held.has_room() && held.without(narrow).has_room());
        assert!(!Size { bytes: bounds::STREAM_IN_FLIGHT_BYTES_MAX, ..narrow }.has_room());
    }

    /// PIP-9
    #[tokio::test]
    async fn what_is_in_memory_of_a_stream_takes_room_and_gives_it_back_line_by_line() {
        assert_eq!(lines(vec!["12345678\n"; 9], 20).await, ["12345678"; 9]);
        assert_eq!(
            lines(vec!["12345678\n", "1234567890", "1234567890", "1"], 30).await,
            ["12345678", "overloaded"]
        );
    }
}
