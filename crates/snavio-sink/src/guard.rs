//! Outgoing calls to addresses that other parties named (QUA-6). The guard resolves a name once, judges every
//! address that the name resolves to, and connects only to a judged address. A party that can name an address
//! must not reach through this node a host that it cannot reach itself.
//!
//! The guard judges before it sends anything: an address in the URL when it parses the URL, a name when it
//! resolves it. The rule depends on the scheme, so each scheme has its own client and resolver. Resolved
//! names and idle connections are kept for a moment; a kept connection goes to the address that was judged
//! when it was made.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_LENGTH, HeaderMap, HeaderValue};
use reqwest::{Body, Client, Response, Url};
use snavio_model::bounds;
use tokio::time::Instant;

use crate::address::{Network, is_allowed, may_be_called};
use crate::lookups::{Crowded, Lookups, NO_TENANT, Resolver};
use crate::parcel::Parcel;

const DOCUMENT_BYTES_MAX: usize = 64 * 1024;
/// Limit for fetching a document, from start to end.
const FETCH_TIME_MAX: Duration = Duration::from_secs(10);
/// Limit for establishing a connection, name resolution included.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// The time that an idle connection is kept. Servers keep idle connections for two seconds and more. A server
/// that closes one just when a call begins leaves that call with an unknown outcome, so this limit is
/// shorter.
const IDLE_TIME_MAX: Duration = Duration::from_secs(1);
const IDLE_PER_HOST_MAX: usize = 64;

/// Why the guard made no call, or why a call has no usable response.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The address in the URL is forbidden.
    #[error("the address may not be called: {0}")]
    Address(&'static str),
    /// The name resolves to a forbidden address.
    #[error("the address may not be called: {0}")]
    Name(Forbidden),
    /// Too many lookups are in flight.
    #[error("the call was not started")]
    Crowded(#[source] Crowded),
    #[error("the call failed")]
    Call(#[source] reqwest::Error),
    #[error("the response has status {0} instead of 200")]
    Status(u16),
    #[error("the response is longer than {0} bytes")]
    TooLong(usize),
}

impl From<reqwest::Error> for GuardError {
    fn from(error: reqwest::Error) -> Self {
        let forbidden = causes(&error).find_map(|cause| cause.downcast_ref::<Forbidden>().cloned());
        match forbidden {
            Some(forbidden) => Self::Name(forbidden),
            // The URL may contain a secret.
            None => Self::Call(error.without_url()),
        }
    }
}

impl GuardError {
    /// Whether the call failed only because this node had no free lookup for it.
    pub(crate) fn is_crowded(&self) -> bool {
        causes(self).any(<dyn Error>::is::<Crowded>)
    }

    /// Whether this node refused the call before it connected.
    fn is_refused_locally(&self) -> bool {
        matches!(self, Self::Address(_) | Self::Name(_)) || self.is_crowded()
    }
}

/// An error and its causes, outermost first.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// A name that resolves to an address that may not be called. The address is for the operator only: the party
/// that named the host may be probing for it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{name} resolves to {address}, which may not be called{}", if *.is_plain { " over plain http" } else { "" })]
pub struct Forbidden {
    name: String,
    address: IpAddr,
    is_plain: bool,
}

/// Why a POST has no response.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// No part of the body was sent, and no part will be.
    #[error("nothing was sent")]
    Unsent(#[source] GuardError),
    /// The request may have been sent and processed.
    #[error("the request may have been processed")]
    Unanswered(#[source] GuardError),
}

/// A response with any status.
#[derive(Debug)]
pub struct Answered {
    pub status: u16,
    pub headers: HeaderMap,
    /// The whole body, or `None` if it is longer than the limit.
    pub body: Option<Bytes>,
}

/// A response whose status and headers are read, and whose body is not.
#[derive(Debug)]
pub struct Begun {
    pub status: u16,
    pub headers: HeaderMap,
    rest: Response,
}

impl Begun {
    /// Reads the body. The body is `None` if it is longer than `bytes_max`.
    pub async fn read(self, bytes_max: usize) -> Result<Answered, GuardError> {
        let body = read(self.rest, bytes_max).await?;
        Ok(Answered { status: self.status, headers: self.headers, body })
    }
}

/// A client for outgoing calls that judges every address before it connects.
pub struct Guarded {
    secure: Client,
    plain: Client,
    pub(crate) lookups: Arc<Lookups>,
    allowed: Arc<[Network]>,
}

impl Guarded {
    /// A client that calls public addresses over TLS. It also calls the allowed networks, with or without
    /// TLS.
    pub fn new(allowed: &[Network]) -> Result<Self, GuardError> {
        Self::with_resolver(allowed, Resolver::System, IDLE_TIME_MAX)
    }

    pub(crate) fn with_resolver(
        allowed: &[Network],
        resolver: Resolver,
        lookup_ttl: Duration,
    ) -> Result<Self, GuardError> {
        let lookups = Arc::new(Lookups::new(resolver, lookup_ttl));
        // The process has one crypto provider. A second installation fails and keeps the first, so the error
        // is ignored.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let allowed: Arc<[Network]> = allowed.into();
        let (secure, plain) = (client(&lookups, &allowed, false)?, client(&lookups, &allowed, true)?);
        Ok(Self { secure, plain, lookups, allowed })
    }

    /// Checks whether the address may be called, as far as this can be judged before its name is resolved.
    pub fn check(&self, address: &str) -> Result<Url, GuardError> {
        check_url(address, &self.allowed)
    }

    /// Fetches the document at an address.
    pub async fn get(&self, address: &str) -> Result<Bytes, GuardError> {
        let url = self.check(address)?;
        let response = self.client(&url).get(url).timeout(FETCH_TIME_MAX).send().await?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(GuardError::Status(response.status().as_u16()));
        }
        read(response, DOCUMENT_BYTES_MAX).await?.ok_or(GuardError::TooLong(DOCUMENT_BYTES_MAX))
    }

    /// Sends one POST to an address that a tenant named and reads the response, all within `timeout`.
    pub async fn post(
        &self,
        (address, tenant): (&str, &str),
        headers: HeaderMap,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Answered, PostError> {
        let begun = self.begin_post((address, tenant), headers, body, timeout).await?;
        begun.read(bounds::ANSWER_BYTES_MAX).await.map_err(PostError::Unanswered)
    }

    /// Sends one POST to an address that a tenant named and returns the head of the response.
    pub async fn begin_post(
        &self,
        (address, tenant): (&str, &str),
        mut headers: HeaderMap,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Begun, PostError> {
        let url = self.check(address).map_err(PostError::Unsent)?;
        let started = Instant::now();
        if let Some(name) = url.domain() {
            // At most half of the time: waiting for other lookups must not look as if the target did not
            // answer.
            let lookup = self.lookups.begin(name, tenant, timeout / 2).await;
            lookup.map_err(|crowded| PostError::Unsent(GuardError::Crowded(crowded)))?;
        }
        let timeout = timeout.saturating_sub(started.elapsed());
        if body.is_empty() {
            // An empty body has no implicit length, and servers may require one (RFC 9110, 8.6).
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        let (parcel, outgoing) = Parcel::new(body);
        let request = self.client(&url).post(url).headers(headers).timeout(timeout);
        let sent = request.body(Body::wrap(outgoing)).send().await;
        let failed = |error: reqwest::Error| {
            let (is_reclaimed, is_unconnected) = (parcel.reclaim(), error.is_connect());
            let error = GuardError::from(error);
            // Without a connection nothing was sent. An empty body needs this check, because its parcel
            // cannot tell.
            let is_unsent = is_reclaimed || is_unconnected || error.is_refused_locally();
            if is_unsent { PostError::Unsent(error) } else { PostError::Unanswered(error) }
        };
        let mut response = sent.map_err(failed)?;
        let (status, headers) = (response.status().as_u16(), std::mem::take(response.headers_mut()));
        Ok(Begun { status, headers, rest: response })
    }

    fn client(&self, url: &Url) -> &Client {
        if url.scheme() == "http" { &self.plain } else { &self.secure }
    }
}

fn client(lookups: &Arc<Lookups>, allowed: &Arc<[Network]>, is_plain: bool) -> reqwest::Result<Client> {
    Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        // A proxy would resolve names itself, without this guard.
        .no_proxy()
        .dns_resolver(Guard { lookups: Arc::clone(lookups), allowed: Arc::clone(allowed), is_plain })
        .https_only(!is_plain)
        // HTTP/1.1 carries one call at a time over a connection, so that a call that hangs blocks no other.
        .http1_only()
        .pool_idle_timeout(IDLE_TIME_MAX)
        .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
        .connect_timeout(CONNECT_TIME_MAX)
        .build()
}

/// Reads the body of a response, or returns `None` if it is longer than `bytes_max`. In that case it stops
/// reading, and the connection is closed with the rest.
async fn read(mut response: Response, bytes_max: usize) -> Result<Option<Bytes>, GuardError> {
    if response.content_length().is_some_and(|length| length > bytes_max as u64) {
        return Ok(None);
    }
    let mut bytes = BytesMut::new();
    while let Some(chunk) = response.chunk().await? {
        if bytes.len() + chunk.len() > bytes_max {
            return Ok(None);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Some(bytes.freeze()))
}

/// Resolves names to addresses that may be called. One forbidden address makes the whole name forbidden,
/// because only the owner of the name can have put it there.
struct Guard {
    lookups: Arc<Lookups>,
    allowed: Arc<[Network]>,
    is_plain: bool,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let lookups = Arc::clone(&self.lookups);
        let (allowed, is_plain) = (Arc::clone(&self.allowed), self.is_plain);
        Box::pin(async move {
            let judge = if is_plain { is_allowed } else { may_be_called };
            // For a call to a tenant's address, `begin_post` has already started this lookup.
            let found = lookups.find(name.as_str(), NO_TENANT).await?;
            if let Some(bad) = found.iter().find(|address| !judge(address.ip(), &allowed)) {
                let name = name.as_str().to_owned();
                return Err(Forbidden { name, address: bad.ip(), is_plain }.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn check_url(address: &str, allowed: &[Network]) -> Result<Url, GuardError> {
    // The parser turns decimal and hexadecimal hosts into IP addresses.
    let url = Url::parse(address).map_err(|_| GuardError::Address("it is not a valid URL"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(GuardError::Address("it contains a user name or a password; remove them"));
    }
    let host = url.host_str().ok_or(GuardError::Address("it has no host"))?;
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    if literal.is_some_and(|address| !may_be_called(address, allowed)) {
        return Err(GuardError::Address(
            "its IP address is not public; an operator can allow it in outgoing.allowed",
        ));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if literal.map_or(!allowed.is_empty(), |address| is_allowed(address, allowed)) => Ok(url),
        _ => Err(GuardError::Address(
            "its scheme must be https; http is only for networks in outgoing.allowed",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// QUA-6
    #[test]
    fn address_in_url_is_judged_after_parsing() {
        let loopback = [Network::parse("127.0.0.0/8").unwrap()];
        for (url, by_default, with_loopback) in [
            ("https://keys.example/jwks", true, true),
            ("http://keys.example/jwks", false, true),
            ("https://1.1.1.1/", true, true),
            ("http://1.1.1.1/", false, false),
            ("https://127.0.0.1/", false, true),
            ("http://127.0.0.1:8080/", false, true),
            ("https://2130706433/", false, true),
            ("https://0x7f000001/", false, true),
            ("https://0177.0.0.1/", false, true),
            ("https://127.1/", false, true),
            ("https://[::ffff:127.0.0.1]/", false, true),
            ("https://[::1]/", false, false),
            ("https://[64:ff9b::7f00:1]/", false, false),
            ("https://169.254.169.254/latest/meta-data", false, false),
            ("https://user@keys.example/", false, false),
            ("https://user:pass@keys.example/", false, false),
            ("https://1.1.1.1@127.0.0.1/", false, false),
            ("ftp://keys.example/", false, false),
            ("file:///etc/passwd", false, false),
            ("keys.example", false, false),
            ("", false, false),
        ] {
            assert_eq!(check_url(url, &[]).is_ok(), by_default, "{url}");
            assert_eq!(check_url(url, &loopback).is_ok(), with_loopback, "{url} with loopback");
        }
    }

    /// QUA-6
    #[tokio::test]
    async fn name_of_loopback_is_not_called() {
        let private = [Network::parse("10.0.0.0/8").unwrap()];
        for (allowed, url) in [(&[][..], "https://localhost:1/"), (&private, "http://localhost:1/")] {
            let guard = Guarded::new(allowed).unwrap();
            let error = guard.get(url).await.unwrap_err().to_string();
            assert!(error.contains("which may not be called"), "{error}");
            // A connection never asks for an empty body, and still the body counts as unsent.
            for body in ["{}", ""] {
                let unsent = guard.post((url, "acme"), HeaderMap::new(), body.into(), FETCH_TIME_MAX).await;
                assert!(matches!(unsent, Err(PostError::Unsent(GuardError::Name(_)))), "{unsent:?}");
            }
        }
    }

    /// QUA-6: the resolver refuses before there is a connection, and not after the body is sent.
    #[tokio::test]
    async fn plain_http_name_must_resolve_to_allowed_address() {
        let allowed: Arc<[Network]> = [Network::parse("10.0.0.0/8").unwrap()].into();
        // A number as a name resolves to itself, without a name server.
        for (name, is_plain, is_called) in [
            ("1.1.1.1", false, true),
            ("1.1.1.1", true, false),
            ("10.1.1.1", false, true),
            ("10.1.1.1", true, true),
            ("192.168.1.1", false, false),
            ("192.168.1.1", true, false),
        ] {
            let lookups = Arc::new(Lookups::new(Resolver::System, IDLE_TIME_MAX));
            let guard = Guard { lookups, allowed: Arc::clone(&allowed), is_plain };
            let resolved = guard.resolve(name.parse().unwrap()).await;
            assert_eq!(resolved.is_ok(), is_called, "{name}, plain: {is_plain}");
        }
    }

    /// QUA-6: a connection uses one resolution of its name and goes to the judged address. A party that
    /// changes the name between two calls, or between a check and its call, gains nothing.
    #[tokio::test]
    async fn rebound_name_is_judged_at_send_time() {
        let allowed = start_server("127.0.0.2", 0).await;
        // The same port: the port is part of the URL, and the URL does not change.
        let other = start_server("127.0.0.1", allowed.address.port()).await;
        // The script is consumed from its end: the allowed address, then loopback, then the allowed address
        // again.
        let script = [allowed.address, other.address, allowed.address].to_vec();
        let resolver = Resolver::Script(script.into());
        let guard = Guarded::with_resolver(&[Network::parse("127.0.0.2").unwrap()], resolver, FETCH_TIME_MAX)
            .unwrap();
        let url = format!("http://rebound.example:{}/", allowed.address.port());
        let post = async || guard.post((&url, "acme"), HeaderMap::new(), "{}".into(), FETCH_TIME_MAX).await;
        assert_eq!(post().await.unwrap().status, 200);
        guard.lookups.clear_names();
        assert!(guard.check(&url).is_ok(), "the name alone cannot be refused");
        let refused = post().await.unwrap_err();
        assert!(matches!(refused, PostError::Unsent(GuardError::Name(_))), "{refused:?}");
        guard.lookups.clear_names();
        assert_eq!(post().await.unwrap().status, 200);
        assert!(guard.lookups.is_script_exhausted(), "each connection asked once");
        assert_eq!((allowed.connections(), other.connections()), (2, 0));
    }

    struct TestServer {
        address: SocketAddr,
        connections: Arc<std::sync::atomic::AtomicUsize>,
    }

    impl TestServer {
        fn connections(&self) -> usize {
            self.connections.load(std::sync::atomic::Ordering::SeqCst)
        }
    }

    /// A server that answers the first request of each connection and closes it.
    async fn start_server(ip: &str, port: u16) -> TestServer {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind((ip, port)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::<std::sync::atomic::AtomicUsize>::default();
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let mut request = Vec::new();
                while !request.ends_with(b"{}") {
                    if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
                        break;
                    }
                }
                let response = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                let _ = stream.write_all(response).await;
            }
        });
        TestServer { address, connections }
    }
}
