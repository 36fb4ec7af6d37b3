//! The names a server answers to (QUA-7): a page in somebody's browser must not reach a node under a name of
//! its own choosing, and a request that names two hosts must not be read in two ways.

use std::net::IpAddr;

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, Request, Uri};
use snavio_model::refusal::{Reason, Refusal};

/// Configured names, each with the port it is bound to, if any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hosts(Vec<(String, Option<u16>)>);

impl Hosts {
    /// Reads `name` or `name:port`.
    pub(crate) fn new(names: &[String]) -> Result<Self, String> {
        let read = |name: &String| match name.parse::<Authority>() {
            Ok(authority) if !name.contains('@') => Ok((bare(authority.host()), authority.port_u16())),
            _ => Err(name.clone()),
        };
        names.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Whether the request is for this server, as one connection knows it: by the address it came to, as
    /// localhost, or by a configured name. Ports tell only where one is configured: a forwarded port is another.
    pub(crate) fn check<B>(&self, request: &Request<B>, local: IpAddr) -> Result<(), Refusal> {
        let authority = named(request.uri(), request.headers())?;
        let (host, port) = (authority.host(), authority.port_u16());
        if self.knows(host, port) || is_own(host, local) {
            return Ok(());
        }
        let detail = "this server does not answer to the host named; see server.hosts in its configuration";
        Err(Refusal::new(Reason::Misdirected, detail))
    }

    fn knows(&self, host: &str, port: Option<u16>) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        let same = |(name, bound): &(String, Option<u16>)| {
            name.eq_ignore_ascii_case(host) && bound.is_none_or(|bound| Some(bound) == port)
        };
        self.0.iter().any(same)
    }
}

fn bare(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_owned()
}

fn is_own(host: &str, local: IpAddr) -> bool {
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical() == local)
}

/// The one host that a request names.
fn named(uri: &Uri, headers: &HeaderMap) -> Result<Authority, Refusal> {
    let wrong = |detail: &'static str| Refusal::new(Reason::InvalidRequest, detail);
    let mut hosts = headers.get_all(HOST).iter();
    let header = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(wrong("the request has more than one Host header")),
        (Some(value), None) => {
            let host = value.to_str().ok().filter(|text| !text.contains('@'));
            let host = host.and_then(|text| text.parse::<Authority>().ok());
            Some(host.ok_or_else(|| wrong("the Host header does not name a host"))?)
        }
        (None, None) => None,
    };
    match (uri.authority(), header) {
        (Some(target), _) if target.as_str().contains('@') => {
            Err(wrong("the request's target does not name a host"))
        }
        (Some(target), Some(header)) if *target != header => {
            Err(wrong("the request names two different hosts"))
        }
        (Some(target), _) => Ok(target.clone()),
        (None, Some(header)) => Ok(header),
        (None, None) => Err(wrong("the request names no host")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(uri: &str, hosts: &[&str]) -> u16 {
        let known = Hosts::new(&["Api.Example".into(), "bound.example:8443".into()]).unwrap();
        let mut request = Request::builder().uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let checked = known.check(&request.body(()).unwrap(), "10.1.2.3".parse().unwrap());
        checked.err().map_or(200, |refusal| refusal.reason.contract().status)
    }

    /// QUA-7
    #[test]
    fn only_configured_names_and_the_own_address_are_answered_to() {
        for (uri, hosts, status) in [
            ("/", &["api.example"][..], 200),
            ("/", &["API.example.:80"], 200),
            ("/", &["bound.example:8443"], 200),
            ("/", &["bound.example"], 421),
            ("/", &["localhost:9000"], 200),
            ("/", &["10.1.2.3:8080"], 200),
            ("/", &["[::ffff:10.1.2.3]"], 200),
            ("/", &["10.1.2.4"], 421),
            ("/", &["evil.example"], 421),
            ("/", &["localhost.evil.example"], 421),
            ("/", &["user@localhost"], 400),
            ("/", &[""], 400),
            ("/", &["local host"], 400),
            ("/", &[], 400),
            ("/", &["localhost", "localhost"], 400),
            ("http://localhost/", &[], 200),
            ("http://localhost/", &["localhost"], 200),
            ("http://localhost/", &["evil.example"], 400),
            ("http://evil.example/", &["evil.example"], 421),
            ("http://a@localhost/", &[], 400),
        ] {
            assert_eq!(verdict(uri, hosts), status, "{uri} {hosts:?}");
        }
    }
}
