//! Addresses that the sink must not call, in all notations that lead to them (QUA-6).

use snavio_sink::{HttpProcessor, Network, Sink};

use crate::server::{Act, Server};
use crate::{call, processor, told};

/// QUA-6
#[tokio::test]
async fn nothing_is_sent_to_where_nobody_outside_could_send_it() {
    let mut server = Server::start(Act::answer("200 OK", "", "{}")).await;
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
            let told = told(&processor.send(call(&format!("{scheme}://{host}:{port}/"))).await);
            assert!(told.starts_with("again: the processor may not be called: "), "{scheme} {host}: {told}");
            assert!(!told.contains("secret"), "{told}");
        }
    }
    for url in ["ftp://127.0.0.1/", "file:///etc/passwd", "gopher://127.0.0.1/", "127.0.0.1", ""] {
        let told = told(&strict.send(call(url)).await);
        assert!(told.starts_with("again: the processor may not be called: "), "{url}: {told}");
    }
    assert!(server.is_quiet() && server.connections() == 0, "not even connected to");
}

/// QUA-6: the refusal does not reveal the private address behind a name, because the caller may be probing
/// for it.
#[tokio::test]
async fn who_names_an_address_does_not_learn_what_it_stands_for() {
    let strict = HttpProcessor::new(&[]).unwrap();
    let told = told(&strict.send(call("https://localhost/")).await);
    assert!(
        told.ends_with("its name stands for an address that is not public; see outgoing.allowed"),
        "{told}"
    );
    assert!(!told.contains("127.0.0.1") && !told.contains("::1"), "{told}");
}

/// QUA-6
#[tokio::test]
async fn what_an_operator_allows_is_called_and_nothing_beside_it() {
    let mut server = Server::start(Act::answer("200 OK", "", "{}")).await;
    assert_eq!(told(&processor().send(call(&server.url())).await), "done 200 -");
    server.request().await;
    let both = ["127.0.0.0/8", "::1"].map(|network| Network::parse(network).unwrap());
    let by_name = format!("http://localhost:{}/", server.address.port());
    assert_eq!(told(&HttpProcessor::new(&both).unwrap().send(call(&by_name)).await), "done 200 -");
    server.request().await;
    let other = Network::parse("127.0.0.2").unwrap();
    let told = told(&HttpProcessor::new(&[other]).unwrap().send(call(&server.url())).await);
    assert!(told.starts_with("again: the processor may not be called: "), "{told}");
    assert!(server.is_quiet());
}
