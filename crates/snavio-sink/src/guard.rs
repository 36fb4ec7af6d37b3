//! Outgoing calls to addresses that others named (QUA-6): a name is resolved once, every address it stands for is
//! looked at, and the connection goes to one of those. Whoever can name an address must not reach through this node
//! what they cannot reach themselves.
//!
//! Everything is judged before anything is sent: an address in the URL when the URL is read, a name when it is
//! resolved, by the rule of its scheme, which is why each scheme has a client and a resolver of its own. Names and
//! connections are kept for a moment, and a connection that is kept goes to the address that was judged when it was made.

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
use crate::lookups::{Crowded, Lookups, NOBODY, Names};
use crate::parcel::Parcel;

/// The longest document that is fetched.
const DOCUMENT_BYTES_MAX: usize = 64 * 1024;
/// How long fetching one may take as a whole.
const FETCH_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a connection may take to be there, its name's resolution included.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// How long a connection is kept that nobody uses. Servers keep theirs for two seconds and more: one that hangs up just
/// when a call begins leaves that in doubt.
const KEPT_IDLE: Duration = Duration::from_secs(1);
/// How many are kept for each address.
const KEPT_PER_HOST_MAX: usize = 64;

/// Why a call was not made, or came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// Not an address that is called.
    #[error("the address is not one that may be called: {0}")]
    Address(&'static str),
    /// A name that stands for such an address.
    #[error("the address is not one that may be called: {0}")]
    Name(Forbidden),
    /// There was no place for it.
    #[error("the call was not begun")]
    Crowded(#[source] Crowded),
    /// The call failed.
    #[error("the call failed")]
    Call(#[source] reqwest::Error),
    /// Another status than 200.
    #[error("the answer's status is {0}, not 200")]
    Status(u16),
    /// More than is read.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
}

impl From<reqwest::Error> for GuardError {
    fn from(error: reqwest::Error) -> Self {
        let forbidden = causes(&error).find_map(|cause| cause.downcast_ref::<Forbidden>().cloned());
        match forbidden {
            Some(forbidden) => Self::Name(forbidden),
            // A URL may hold a secret.
            None => Self::Call(error.without_url()),
        }
    }
}

impl GuardError {
    /// Whether the call came to nothing on this side only, for want of a place.
    pub(crate) fn is_crowded(&self) -> bool {
        causes(self).any(<dyn Error>::is::<Crowded>)
    }

    /// Whether it came to nothing before anybody was connected to, by what was decided here.
    fn is_of_this_side(&self) -> bool {
        matches!(self, Self::Address(_) | Self::Name(_)) || self.is_crowded()
    }
}

/// An error and what it came from, outermost first.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// A name stands for an address that may not be called. What it stands for is for the operator: who named it may be
/// asking for just that.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{name} stands for {address}, which may not be called{}", if *.is_plain { " over plain http" } else { "" })]
pub struct Forbidden {
    name: String,
    address: IpAddr,
    is_plain: bool,
}

/// Why a POST has no answer.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// Nothing of its body was sent, nor will be.
    #[error("nothing was sent")]
    Unsent(#[source] GuardError),
    /// It may have been sent, and done.
    #[error("it may have been done")]
    Unanswered(#[source] GuardError),
}

/// An answer, whatever its status.
#[derive(Debug)]
pub struct Answered {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// All of its body; none of one that is too long.
    pub body: Option<Bytes>,
}

/// An answer that has begun.
#[derive(Debug)]
pub struct Begun {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    rest: Response,
}

impl Begun {
    /// Reads the rest of it, unless that is too long.
    pub async fn read(self, bytes_max: usize) -> Result<Answered, GuardError> {
        let body = read(self.rest, bytes_max).await?;
        Ok(Answered { status: self.status, headers: self.headers, body })
    }
}

/// Makes outgoing calls.
pub struct Guarded {
    secure: Client,
    plain: Client,
    pub(crate) lookups: Arc<Lookups>,
    allowed: Arc<[Network]>,
}

impl Guarded {
    /// Calls public addresses over TLS, and those allowed also without.
    pub fn new(allowed: &[Network]) -> Result<Self, GuardError> {
        Self::by_names(allowed, Names::System, KEPT_IDLE)
    }

    pub(crate) fn by_names(allowed: &[Network], names: Names, kept: Duration) -> Result<Self, GuardError> {
        let lookups = Arc::new(Lookups::by(names, kept));
        // One provider for the process; a second one asking is told so and goes on with the first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let allowed: Arc<[Network]> = allowed.into();
        let client = |is_plain| {
            Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                // A proxy would resolve names itself.
                .no_proxy()
                .dns_resolver(Guard {
                    lookups: Arc::clone(&lookups),
                    allowed: Arc::clone(&allowed),
                    is_plain,
                })
                .https_only(!is_plain)
                // One call at a time over a connection: one that hangs takes no other with it.
                .http1_only()
                .pool_idle_timeout(KEPT_IDLE)
                .pool_max_idle_per_host(KEPT_PER_HOST_MAX)
                .connect_timeout(CONNECT_TIME_MAX)
                .build()
        };
        Ok(Self { secure: client(false)?, plain: client(true)?, lookups, allowed })
    }

    /// Whether the address may be called, as far as can be told before its name is resolved.
    pub fn check(&self, address: &str) -> Result<Url, GuardError> {
        check_url(address, &self.allowed)
    }

    /// The document under an address.
    pub async fn get(&self, address: &str) -> Result<Bytes, GuardError> {
        let url = self.check(address)?;
        let answer = self.client(&url).get(url).timeout(FETCH_TIME_MAX).send().await?;
        if answer.status() != reqwest::StatusCode::OK {
            return Err(GuardError::Status(answer.status().as_u16()));
        }
        read(answer, DOCUMENT_BYTES_MAX).await?.ok_or(GuardError::TooLong(DOCUMENT_BYTES_MAX))
    }

    /// Sends a body to an address that a tenant named, once, and reads the answer, all within `timeout`.
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

    /// Sends a body to an address that a tenant named, once, and says what the answer begins with.
    pub async fn begin_post(
        &self,
        (address, tenant): (&str, &str),
        mut headers: HeaderMap,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Begun, PostError> {
        let url = self.check(address).map_err(PostError::Unsent)?;
        let begun = Instant::now();
        if let Some(name) = url.domain() {
            // Waiting for others must not look like the silence of whom this one calls.
            let most = timeout / 2;
            let lookup = self.lookups.begin(name, tenant, most).await;
            lookup.map_err(|crowded| PostError::Unsent(GuardError::Crowded(crowded)))?;
        }
        let timeout = timeout.saturating_sub(begun.elapsed());
        if body.is_empty() {
            // Nothing says by itself how long it is, and servers may insist (RFC 9110, 8.6).
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        let (parcel, outgoing) = Parcel::of(body);
        let request = self.client(&url).post(url).headers(headers).timeout(timeout);
        let sent = request.body(Body::wrap(outgoing)).send().await;
        let failed = |error: reqwest::Error| {
            let (is_back, is_unconnected) = (parcel.take_back(), error.is_connect());
            let error = GuardError::from(error);
            // Without a connection nothing was sent, not even an empty body, of which its parcel cannot tell.
            let is_unsent = is_back || is_unconnected || error.is_of_this_side();
            let told = if is_unsent { PostError::Unsent } else { PostError::Unanswered };
            told(error)
        };
        let mut answer = sent.map_err(failed)?;
        let (status, headers) = (answer.status().as_u16(), std::mem::take(answer.headers_mut()));
        Ok(Begun { status, headers, rest: answer })
    }

    fn client(&self, url: &Url) -> &Client {
        if url.scheme() == "http" { &self.plain } else { &self.secure }
    }
}

/// The body of an answer; none if it is too long, of which no more is read than that can be told. The connection goes
/// with the rest of it.
async fn read(mut answer: Response, bytes_max: usize) -> Result<Option<Bytes>, GuardError> {
    if answer.content_length().is_some_and(|length| length > bytes_max as u64) {
        return Ok(None);
    }
    let mut bytes = BytesMut::new();
    while let Some(chunk) = answer.chunk().await? {
        if bytes.len() + chunk.len() > bytes_max {
            return Ok(None);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Some(bytes.freeze()))
}

/// Resolves names to addresses that may be called; one that may not spoils all others, since only the owner of a name
/// can have put it there.
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
            // Of a call to others it is under way already.
            let found = lookups.find(name.as_str(), NOBODY).await?;
            if let Some(bad) = found.iter().find(|it| !judge(it.ip(), &allowed)) {
                let name = name.as_str().to_owned();
                return Err(Forbidden { name, address: bad.ip(), is_plain }.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn check_url(address: &str, allowed: &[Network]) -> Result<Url, GuardError> {
    // Hosts in decimal or hexadecimal come out as the addresses they are.
    let url = Url::parse(address).map_err(|_| GuardError::Address("it is not a URL"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(GuardError::Address("it holds a user or a password"));
    }
    let host = url.host_str().ok_or(GuardError::Address("it has no host"))?;
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    if literal.is_some_and(|it| !may_be_called(it, allowed)) {
        return Err(GuardError::Address("it is not a public one; see outgoing.allowed"));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if literal.map_or(!allowed.is_empty(), |it| is_allowed(it, allowed)) => Ok(url),
        _ => Err(GuardError::Address("use https")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// QUA-6
    #[test]
    fn addresses_are_judged_as_they_will_be_called() {
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
    async fn a_name_that_stands_for_this_machine_is_not_called() {
        let private = [Network::parse("10.0.0.0/8").unwrap()];
        for (allowed, url) in [(&[][..], "https://localhost:1/"), (&private, "http://localhost:1/")] {
            let guard = Guarded::new(allowed).unwrap();
            let told = guard.get(url).await.unwrap_err().to_string();
            assert!(told.contains("which may not be called"), "{told}");
            // An empty body is never asked for, and was not sent all the same.
            for body in ["{}", ""] {
                let unsent = guard.post((url, "acme"), HeaderMap::new(), body.into(), FETCH_TIME_MAX).await;
                assert!(matches!(unsent, Err(PostError::Unsent(GuardError::Name(_)))), "{unsent:?}");
            }
        }
    }

    /// QUA-6: the resolver says so before there is a connection, and not after the body is gone.
    #[tokio::test]
    async fn over_plain_http_a_name_must_stand_for_what_is_allowed() {
        let allowed: Arc<[Network]> = [Network::parse("10.0.0.0/8").unwrap()].into();
        // A number as a name: no server need be asked what it stands for.
        for (name, is_plain, is_called) in [
            ("1.1.1.1", false, true),
            ("1.1.1.1", true, false),
            ("10.1.1.1", false, true),
            ("10.1.1.1", true, true),
            ("192.168.1.1", false, false),
            ("192.168.1.1", true, false),
        ] {
            let lookups = Arc::new(Lookups::by(Names::System, KEPT_IDLE));
            let guard = Guard { lookups, allowed: Arc::clone(&allowed), is_plain };
            let resolved = guard.resolve(name.parse().unwrap()).await;
            assert_eq!(resolved.is_ok(), is_called, "{name}, plain: {is_plain}");
        }
    }

    /// QUA-6: a name is resolved once for a connection, and the connection goes to what was judged: whoever changes it
    /// between two calls, or between a check and its call, reaches nothing by that.
    #[tokio::test]
    async fn a_name_that_stands_for_something_else_at_send_time_is_judged_by_that() {
        let allowed = listening("127.0.0.2", 0).await;
        // The same port: a URL has one, whatever its name stands for.
        let other = listening("127.0.0.1", allowed.address.port()).await;
        // Taken from the end: what is allowed, then loopback, then what is allowed again.
        let script = [allowed.address, other.address, allowed.address].to_vec();
        let names = Names::Script(script.into());
        let guard =
            Guarded::by_names(&[Network::parse("127.0.0.2").unwrap()], names, FETCH_TIME_MAX).unwrap();
        let url = format!("http://rebound.example:{}/", allowed.address.port());
        let post = async || guard.post((&url, "acme"), HeaderMap::new(), "{}".into(), FETCH_TIME_MAX).await;
        assert_eq!(post().await.unwrap().status, 200);
        guard.lookups.forget();
        assert!(guard.check(&url).is_ok(), "the name alone is none that could be refused");
        let refused = post().await.unwrap_err();
        assert!(matches!(refused, PostError::Unsent(GuardError::Name(_))), "{refused:?}");
        guard.lookups.forget();
        assert_eq!(post().await.unwrap().status, 200);
        assert!(guard.lookups.is_script_over(), "each connection asked once");
        assert_eq!((allowed.connections(), other.connections()), (2, 0));
    }

    struct Listening {
        address: SocketAddr,
        connections: Arc<std::sync::atomic::AtomicUsize>,
    }

    impl Listening {
        fn connections(&self) -> usize {
            self.connections.load(std::sync::atomic::Ordering::SeqCst)
        }
    }

    /// A server that answers each connection's first request, and hangs up.
    async fn listening(ip: &str, port: u16) -> Listening {
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
                let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                let _ = stream.write_all(answer).await;
            }
        });
        Listening { address, connections }
    }
}
