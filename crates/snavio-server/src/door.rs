//! The door: what is decided about a request before any handler sees it.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use http::header::{CONNECTION, FORWARDED, VIA};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Version};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio_util::sync::CancellationToken;

use crate::ambiguous;
use crate::arriving::Arriving;
use crate::host::Hosts;
use crate::http::{Problem, class_of};
use crate::load::Load;

/// Where a request comes from, as far as its connection tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remote(pub(crate) IpAddr);

/// Whether nobody on the way can read what is said: it is encrypted, or does not leave the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Confidential(pub(crate) bool);

/// What a proxy adds: the request comes from somewhere else, whatever the connection's address.
const FORWARDING: [HeaderName; 5] = [
    FORWARDED,
    VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
];

fn is_forwarded(headers: &HeaderMap) -> bool {
    FORWARDING.iter().any(|name| headers.contains_key(name))
}

/// What is the same for all connections of a listener.
pub(crate) struct Door {
    /// Who answers.
    pub(crate) router: TowerToHyperService<Router>,
    /// What is under way.
    pub(crate) load: Arc<Load>,
    /// The names it answers to.
    pub(crate) hosts: Hosts,
    /// How far apart the parts of a body may come.
    pub(crate) body_timeout: Duration,
    /// Told when the node is about to stop.
    pub(crate) draining: CancellationToken,
}

/// The door as one connection sees it.
#[derive(Clone)]
pub(crate) struct Doorway {
    door: Arc<Door>,
    local: IpAddr,
    remote: Remote,
    encrypted: bool,
}

impl Doorway {
    /// A connection's own: the address it came to, the one it came from, and whether it is encrypted.
    pub(crate) fn new(door: Arc<Door>, local: IpAddr, remote: IpAddr, encrypted: bool) -> Self {
        Self { door, local: local.to_canonical(), remote: Remote(remote.to_canonical()), encrypted }
    }

    fn confidential(&self, headers: &HeaderMap) -> Confidential {
        let is_local = self.remote.0.is_loopback() && !is_forwarded(headers);
        Confidential(self.encrypted || is_local)
    }
}

impl Service<Request<Incoming>> for Doorway {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let mut request = Arriving::wrap(request, self.door.body_timeout);
        let refused = |refusal| Box::pin(ready(Ok(Problem::from(refusal).into_response())));
        if let Err(refusal) = ambiguous::check_framing(request.headers()) {
            let mut answer = Problem::from(refusal).into_response();
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            return Box::pin(ready(Ok(answer)));
        }
        let checked = self.door.hosts.check(&request, self.local);
        if let Err(refusal) = checked.and_then(|()| ambiguous::check(request.headers())) {
            return refused(refusal);
        }
        let place = match self.door.load.enter(class_of(request.uri().path())) {
            Ok(place) => place,
            Err(refusal) => return refused(refusal),
        };
        let confidential = self.confidential(request.headers());
        request.extensions_mut().insert(self.remote);
        request.extensions_mut().insert(confidential);
        let (door, http1) = (Arc::clone(&self.door), request.version() < Version::HTTP_2);
        Box::pin(async move {
            let _place = place;
            let mut answer = door.router.call(request).await?;
            // The next request should find another node, while this one can still say so.
            if http1 && door.draining.is_cancelled() {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(answer)
        })
    }
}
