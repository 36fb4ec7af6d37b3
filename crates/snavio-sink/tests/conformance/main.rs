//! HTTP push and the HTTP processor pass the suite of every sink.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[expect(dead_code, reason = "it can do more than the suite asks for")]
#[path = "../processor/server.rs"]
mod server;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use snavio_sink::conformance::{ASKED_FOR, Behaviour, Outside, Receiver, Taken};
use snavio_sink::{HttpProcessor, HttpPush, Network, Sink};
use tokio::net::TcpListener;

use crate::server::{Server, ServerAction};

/// Longer than anything in these tests takes.
const AMPLE: Duration = Duration::from_secs(30);

/// A sink over HTTP that sends the message's id in this header.
struct Http {
    id_header: &'static str,
    sink: fn(&[Network]) -> Arc<dyn Sink>,
    refuses_for_good: bool,
}

#[async_trait]
impl Outside for Http {
    fn sink(&self, calls_this_machine: bool) -> Arc<dyn Sink> {
        let loopback = [Network::parse("127.0.0.0/8").unwrap()];
        (self.sink)(if calls_this_machine { &loopback } else { &[] })
    }

    async fn receiver(&self, behaviour: Behaviour) -> Box<dyn Receiver> {
        let retry_after = format!("Retry-After: {}\r\n", ASKED_FOR.as_secs());
        let action = match behaviour {
            Behaviour::Takes => ServerAction::answer("204 Taken", "", ""),
            Behaviour::IsBusy => ServerAction::answer("503 Busy", &retry_after, "later"),
            Behaviour::Refuses => ServerAction::answer("422 No", "", "no"),
            Behaviour::IsSilent => ServerAction::Hang,
            Behaviour::HangsUp => ServerAction::HangUp,
            Behaviour::Floods => ServerAction::RespondEndlessly("200 OK"),
        };
        Box::new(Listening { id_header: self.id_header, server: Server::start(action).await })
    }

    async fn nobody(&self) -> String {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        format!("http://127.0.0.1:{port}/")
    }

    fn refuses_for_good(&self) -> bool {
        self.refuses_for_good
    }
}

struct Listening {
    id_header: &'static str,
    server: Server,
}

#[async_trait]
impl Receiver for Listening {
    fn address(&self) -> String {
        self.server.url()
    }

    fn disguises(&self) -> Vec<String> {
        let port = self.server.address.port();
        let hosts = [
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.1",
            "127.1",
            "0",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b::127.0.0.1]",
            "[2002:7f00:1::]",
            "localhost",
            "user@localhost",
            "user:secret@127.0.0.1",
            "1.1.1.1@127.0.0.1",
        ];
        let of = |host: &str| ["http", "https"].map(|scheme| format!("{scheme}://{host}:{port}/"));
        hosts.into_iter().flat_map(of).collect()
    }

    async fn next(&mut self) -> Taken {
        let request = self.server.request().await;
        let header = |name: &str| {
            let value = request.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value.unwrap_or_default().to_owned()
        };
        Taken {
            message_id: header(self.id_header),
            delivery_id: header("snavio-delivery-id"),
            body: request.bytes,
        }
    }

    fn connections(&self) -> usize {
        self.server.connections()
    }
}

mod processor {
    use super::*;

    snavio_sink::conformance!(Http {
        id_header: "idempotency-key",
        sink: |allowed| Arc::new(HttpProcessor::new(allowed).unwrap()),
        refuses_for_good: true,
    });
}

mod push {
    use super::*;

    snavio_sink::conformance!(Http {
        id_header: "webhook-id",
        sink: |allowed| Arc::new(HttpPush::new(allowed).unwrap()),
        refuses_for_good: false,
    });
}
