//! Outgoing calls to addresses that others named (QUA-6): a name is resolved once, every address it stands for is
//! looked at, and the connection goes to one of those. Whoever can name an address must not reach through this node
//! what they cannot reach themselves.
//!
//! Everything is judged before anything is sent: an address in the URL when the URL is read, a name when it is
//! resolved, by the rule of its scheme, which is why each scheme has a client and a resolver of its own. Connections are
//! kept for a moment, and one that is kept goes to the address that was judged when it was made.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::HeaderMap;
use reqwest::{Body, Client, Response, Url};
use snavio_model::limits;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::address::{Network, is_allowed, may_be_called};
use crate::parcel::Parcel;

/// The longest document that is fetched.
const DOCUMENT_BYTES_MAX: usize = 64 * 1024;
/// How long fetching one may take as a whole.
const FETCH_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a connection may take to be there, its name's resolution included.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// How long a lookup waits for its place.
const PLACE_TIME_MAX: Duration = Duration::from_secs(2);
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
    /// Whether the call came to nothing on this side only.
    pub(crate) fn is_crowded(&self) -> bool {
        causes(self).any(<dyn Error>::is::<Crowded>)
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
    allowed: Arc<[Network]>,
}

impl Guarded {
    /// Calls public addresses over TLS, and those allowed also without.
    pub fn new(allowed: &[Network]) -> Result<Self, GuardError> {
        Self::by_names(allowed, &Arc::new(Names::System))
    }

    fn by_names(allowed: &[Network], names: &Arc<Names>) -> Result<Self, GuardError> {
        let lookups = Arc::<Lookups>::default();
        // One provider for the process; a second one asking is told so and goes on with the first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let allowed: Arc<[Network]> = allowed.into();
        let client = |is_plain| {
            Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                // A proxy would resolve names itself.
                .no_proxy()
                .dns_resolver(Guard {
                    names: Arc::clone(names),
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
        Ok(Self { secure: client(false)?, plain: client(true)?, allowed })
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

    /// Sends a body to an address, once, and reads the answer, all within `timeout`.
    pub async fn post(
        &self,
        address: &str,
        headers: HeaderMap,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Answered, PostError> {
        let begun = self.begin_post(address, headers, body, timeout).await?;
        begun.read(limits::ANSWER_BYTES_MAX).await.map_err(PostError::Unanswered)
    }

    /// Sends a body to an address, once, and says what the answer begins with.
    pub async fn begin_post(
        &self,
        address: &str,
        headers: HeaderMap,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Begun, PostError> {
        let url = self.check(address).map_err(PostError::Unsent)?;
        let (parcel, outgoing) = Parcel::of(body);
        let request = self.client(&url).post(url).headers(headers).timeout(timeout);
        let sent = request.body(Body::wrap(outgoing)).send().await;
        let failed = |error: reqwest::Error| {
            let told = if parcel.take_back() { PostError::Unsent } else { PostError::Unanswered };
            told(error.into())
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
    names: Arc<Names>,
    lookups: Arc<Lookups>,
    allowed: Arc<[Network]>,
    is_plain: bool,
}

/// What a lookup came to, for all who wait for it.
type Found = Result<Vec<SocketAddr>, Arc<std::io::Error>>;

/// Lookups under way: so many at a time, and one of each name, or one that nobody answers for would take all places.
struct Lookups {
    places: Arc<Semaphore>,
    by_name: Mutex<HashMap<String, watch::Receiver<Option<Found>>>>,
}

impl Default for Lookups {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(limits::LOOKUPS_MAX)), by_name: Mutex::default() }
    }
}

/// Names were to be looked up for others, and there was no place for this one: nothing is known of whom it stands for.
#[derive(Debug, thiserror::Error)]
#[error("too many names are being looked up")]
pub(crate) struct Crowded;

/// Who says what names stand for.
enum Names {
    /// The machine.
    System,
    /// A script, for names that stand for something else each time they are asked for.
    #[cfg(test)]
    Script(std::sync::Mutex<Vec<SocketAddr>>),
    /// One that answers nobody until it may, and counts those who wait.
    #[cfg(test)]
    Stuck { waiting: std::sync::atomic::AtomicUsize, may: Semaphore },
}

impl Names {
    async fn find(&self, name: &str) -> std::io::Result<Vec<SocketAddr>> {
        match self {
            Self::System => Ok(tokio::net::lookup_host((name, 0)).await?.collect()),
            #[cfg(test)]
            Self::Script(script) => Ok(script.lock().unwrap().pop().into_iter().collect()),
            #[cfg(test)]
            Self::Stuck { waiting, may } => {
                waiting.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let _ = may.acquire().await;
                waiting.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                Ok(Vec::new())
            }
        }
    }
}

impl Lookups {
    /// Looks a name up as soon as there is a place for it, or waits for whoever does so already. The place is kept until the
    /// lookup has ended, whoever waits for it: one that was given up still has its thread.
    async fn find(
        self: Arc<Self>,
        names: Arc<Names>,
        name: String,
    ) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
        let mut looking = match self.under_way(&name) {
            Some(looking) => looking,
            None => {
                let place = Arc::clone(&self.places).acquire_owned();
                let place = tokio::time::timeout(PLACE_TIME_MAX, place).await.map_err(|_| Crowded)??;
                Arc::clone(&self).begin(names, name, place)
            }
        };
        let found = looking.wait_for(Option::is_some).await?.clone();
        found.unwrap_or_else(|| Ok(Vec::new())).map_err(Into::into)
    }

    fn by_name(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<Option<Found>>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn under_way(&self, name: &str) -> Option<watch::Receiver<Option<Found>>> {
        self.by_name().get(name).cloned()
    }

    fn begin(
        self: Arc<Self>,
        names: Arc<Names>,
        name: String,
        place: OwnedSemaphorePermit,
    ) -> watch::Receiver<Option<Found>> {
        let (told, looking) = watch::channel(None);
        // Somebody may have begun while this one waited for its place.
        match self.by_name().entry(name.clone()) {
            Entry::Occupied(other) => return other.get().clone(),
            Entry::Vacant(free) => drop(free.insert(looking.clone())),
        }
        tokio::spawn(async move {
            let found = names.find(&name).await.map_err(Arc::new);
            self.by_name().remove(&name);
            drop(place);
            told.send_replace(Some(found));
        });
        looking
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let (names, lookups) = (Arc::clone(&self.names), Arc::clone(&self.lookups));
        let (allowed, is_plain) = (Arc::clone(&self.allowed), self.is_plain);
        Box::pin(async move {
            let judge = if is_plain { is_allowed } else { may_be_called };
            let found = lookups.find(names, name.as_str().to_owned()).await?;
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
            let unsent = guard.post(url, HeaderMap::new(), "{}".into(), FETCH_TIME_MAX).await;
            assert!(matches!(unsent, Err(PostError::Unsent(GuardError::Name(_)))), "{unsent:?}");
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
            let (names, lookups) = (Arc::new(Names::System), Arc::<Lookups>::default());
            let guard = Guard { names, lookups, allowed: Arc::clone(&allowed), is_plain };
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
        let names = Arc::new(Names::Script(script.into()));
        let guard = Guarded::by_names(&[Network::parse("127.0.0.2").unwrap()], &names).unwrap();
        let url = format!("http://rebound.example:{}/", allowed.address.port());
        let post = async || guard.post(&url, HeaderMap::new(), "{}".into(), FETCH_TIME_MAX).await;
        assert_eq!(post().await.unwrap().status, 200);
        assert!(guard.check(&url).is_ok(), "the name alone is none that could be refused");
        let refused = post().await.unwrap_err();
        assert!(matches!(refused, PostError::Unsent(GuardError::Name(_))), "{refused:?}");
        assert_eq!(post().await.unwrap().status, 200);
        let Names::Script(script) = &*names else { panic!("it is a script") };
        assert!(script.lock().unwrap().is_empty(), "each connection asked once");
        assert_eq!((allowed.connections(), other.connections()), (2, 0));
    }

    /// DLV-4, QUA-6: names that nobody answers for take no more threads than they may, also once nobody waits for them.
    #[tokio::test]
    async fn names_are_looked_up_so_many_at_a_time_whoever_has_given_up() {
        use std::sync::atomic::Ordering::SeqCst;
        let names = Arc::new(Names::Stuck { waiting: Default::default(), may: Semaphore::new(0) });
        let Names::Stuck { waiting, may } = &*names else { panic!("it is stuck") };
        let guard = Arc::new(Guarded::by_names(&[], &names).unwrap());
        let timeout = Duration::from_millis(300);
        let call = |number: usize| {
            let guard = Arc::clone(&guard);
            tokio::spawn(async move {
                let url = format!("https://shop-{number}.example/");
                guard.post(&url, HeaderMap::new(), "{}".into(), timeout).await
            })
        };
        for call in (0..3 * limits::LOOKUPS_MAX).map(call).collect::<Vec<_>>() {
            let ended = call.await.unwrap();
            assert!(matches!(ended, Err(PostError::Unsent(_))), "its own time is over: {ended:?}");
            assert!(waiting.load(SeqCst) <= limits::LOOKUPS_MAX);
        }
        assert_eq!(waiting.load(SeqCst), limits::LOOKUPS_MAX, "they have not ended");
        may.add_permits(1);
        let all_ended = async {
            while waiting.load(SeqCst) > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(FETCH_TIME_MAX, all_ended).await.expect("each makes room for the next");
    }

    /// DLV-4: a name that nobody answers for takes one place, and who finds none free says nothing of whom it calls.
    #[tokio::test]
    async fn one_name_has_one_place_however_many_wait_for_it() {
        use std::sync::atomic::Ordering::SeqCst;
        let names = Arc::new(Names::Stuck { waiting: Default::default(), may: Semaphore::new(0) });
        let Names::Stuck { waiting, .. } = &*names else { panic!("it is stuck") };
        let guard = Guarded::by_names(&[], &names).unwrap();
        let call = |name: String, timeout| {
            let url = format!("https://{name}/");
            let guard = &guard;
            async move { guard.post(&url, HeaderMap::new(), "{}".into(), timeout).await }
        };
        let short = Duration::from_millis(300);
        let calls = (0..3 * limits::LOOKUPS_MAX).map(|_| call("dead.example".to_owned(), short));
        futures_util::future::join_all(calls).await;
        assert_eq!(waiting.load(SeqCst), 1);
        let others = (1..limits::LOOKUPS_MAX).map(|n| call(format!("dead-{n}.example"), short));
        futures_util::future::join_all(others).await;
        assert_eq!(waiting.load(SeqCst), limits::LOOKUPS_MAX);
        let crowded = call("alive.example".to_owned(), 2 * CONNECT_TIME_MAX).await;
        let Err(PostError::Unsent(error)) = crowded else { panic!("{crowded:?}") };
        assert!(error.is_crowded(), "{error:?}");
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
