//! Addresses that the sink must not call, in all notations that lead to them (QUA-6).

use snavio_sink::{HttpProcessor, Network, Sink};

use crate::server::{Server, ServerAction};
use crate::{call, processor, summary};

/// QUA-6
#[tokio::test]
async fn private_addresses_are_never_called() {
    let mut server = Server::start(ServerAction::answer("200 OK", "", "{}")).await;
    let port = server.address.port();
    let private = Network::parse("10.0.0.0/8").unwrap();
    let (strict, with_private) = (HttpProcessor::new(&[]).unwrap(), HttpProcessor::new(&[private]).unwrap());
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "127.0.0.1.",
        "127.0.0.1%2e",
        "①②⑦.0.0.1",
        "0",
        "0.0.0.0",
        "[::]",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "169.254.169.254",
        "user@localhost",
        "user:secret@localhost",
        "1.1.1.1@127.0.0.1",
        "localhost",
        "LOCALHOST",
    ] {
        for (processor, scheme) in
            [(&strict, "http"), (&strict, "https"), (&with_private, "http"), (&with_private, "https")]
        {
            let summary = summary(&processor.send(call(&format!("{scheme}://{host}:{port}/"))).await);
            assert!(
                summary.starts_with("again: the processor may not be called: "),
                "{scheme} {host}: {summary}"
            );
            assert!(!summary.contains("secret"), "{summary}");
        }
    }
    for url in ["ftp://127.0.0.1/", "file:///etc/passwd", "gopher://127.0.0.1/", "127.0.0.1", ""] {
        let summary = summary(&strict.send(call(url)).await);
        assert!(summary.starts_with("again: the processor may not be called: "), "{url}: {summary}");
    }
    assert!(server.is_quiet() && server.connections() == 0, "not even connected to");
}

/// QUA-6: the refusal does not reveal the private address behind a name, because the caller may be probing
/// for it.
#[tokio::test]
async fn refusal_does_not_reveal_a_private_address() {
    let strict = HttpProcessor::new(&[]).unwrap();
    let summary = summary(&strict.send(call("https://localhost/")).await);
    assert!(
        summary.ends_with("its name stands for an address that is not public; see outgoing.allowed"),
        "{summary}"
    );
    assert!(!summary.contains("127.0.0.1") && !summary.contains("::1"), "{summary}");
}

/// QUA-6
#[tokio::test]
async fn only_allowed_private_networks_are_called() {
    let mut server = Server::start(ServerAction::answer("200 OK", "", "{}")).await;
    assert_eq!(summary(&processor().send(call(&server.url())).await), "done 200 -");
    server.request().await;
    let both = ["127.0.0.0/8", "::1"].map(|network| Network::parse(network).unwrap());
    let by_name = format!("http://localhost:{}/", server.address.port());
    assert_eq!(summary(&HttpProcessor::new(&both).unwrap().send(call(&by_name)).await), "done 200 -");
    server.request().await;
    let other = Network::parse("127.0.0.2").unwrap();
    let summary = summary(&HttpProcessor::new(&[other]).unwrap().send(call(&server.url())).await);
    assert!(summary.starts_with("again: the processor may not be called: "), "{summary}");
    assert!(server.is_quiet());
}
