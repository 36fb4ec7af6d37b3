//! The door: what is decided about a request before any handler sees it.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use crate::arriving::Arriving;

/// Where a request comes from, as far as its connection tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remote(pub(crate) IpAddr);

/// What is the same for all connections of a listener.
pub(crate) struct Door {
    /// Who answers.
    pub(crate) router: TowerToHyperService<Router>,
    /// How far apart the parts of a body may come.
    pub(crate) body_timeout: Duration,
}

/// The door as one connection sees it.
#[derive(Clone)]
pub(crate) struct Doorway {
    door: Arc<Door>,
    remote: Remote,
}

impl Doorway {
    /// A connection's own.
    pub(crate) fn new(door: Arc<Door>, remote: IpAddr) -> Self {
        Self { door, remote: Remote(remote.to_canonical()) }
    }
}

impl Service<Request<Incoming>> for Doorway {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let mut request = Arriving::wrap(request, self.door.body_timeout);
        request.extensions_mut().insert(self.remote);
        Box::pin(self.door.router.call(request))
    }
}
