//! Who is calling: bearer tokens resolved to a service or the operator, once verified remembered by digest.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use snavio_model::limits;
use snavio_model::name::ServiceName;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::Registry;
use snavio_model::time::Timestamp;
use snavio_model::token::TokenFault;

use crate::http::class_of;
use crate::load::{Bounded, Load, Taken, overloaded};
use crate::platform::Platform;
use crate::turns::Turns;

/// The authenticated caller.
#[derive(Debug)]
pub(crate) enum Principal {
    /// Runs the platform.
    Operator,
    /// A service, through one of its clients.
    Service(Caller),
}

/// A service's request under way, with its place among those of its tenant.
#[derive(Debug)]
pub(crate) struct Caller {
    session: Arc<Session>,
    _place: Taken,
}

impl Caller {
    /// A place for what outlives the request.
    pub(crate) fn another_place(&self) -> Result<Taken, Refusal> {
        let taken = self.session.tenant.load.requests.take(1, 0);
        taken.ok_or_else(|| overloaded("too many requests of this tenant are under way"))
    }

    /// The bytes of bodies that its tenant has in memory.
    pub(crate) fn body_bytes(&self) -> Arc<Bounded> {
        Arc::clone(&self.session.tenant.load.body_bytes)
    }

    /// For what goes on after the request was answered, and has to ask again.
    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.session)
    }
}

impl std::ops::Deref for Caller {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

/// A token that was verified.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: String,
    pub(crate) service: ServiceName,
    expires_at: Timestamp,
    tenant: Arc<OfTenant>,
}

impl Session {
    /// What its tenant may take through the pipeline at once.
    pub(crate) fn turns(&self) -> &Turns {
        &self.tenant.turns
    }

    /// The token has not ended, and whom it was given to is still there.
    pub(crate) fn check(&self, registry: &Registry, now: Timestamp) -> Result<(), Refusal> {
        if now >= self.expires_at {
            return Err(ended());
        }
        let client = registry.client(&self.client).filter(|client| client.service == self.service);
        if client.is_none() || registry.service(self.service.as_str()).is_none() {
            return Err(gone());
        }
        Ok(())
    }
}

/// What a tenant has under way, over all its tokens.
#[derive(Debug)]
struct OfTenant {
    load: Load,
    turns: Turns,
}

impl Principal {
    /// Who did something, for the record.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Operator => "operator".to_owned(),
            Self::Service(session) => format!("{} ({})", session.service, session.client),
        }
    }

    /// The operator, or nobody.
    pub(crate) fn operator(&self) -> Result<(), Refusal> {
        match self {
            Self::Operator => Ok(()),
            Self::Service(_) => Err(Refusal::new(Reason::Forbidden, "only an operator may do this")),
        }
    }

    /// What goes on after its request was answered asks again before it tells more (REG-7).
    pub(crate) fn check_again(&self, registry: &Registry, now: Timestamp) -> Result<(), Refusal> {
        let Self::Service(caller) = self else { return Ok(()) };
        caller.session.check(registry, now)?;
        check_active(registry, &caller.service)
    }

    /// The service's request, or nobody's.
    pub(crate) fn caller(&self) -> Result<&Caller, Refusal> {
        match self {
            Self::Service(caller) => Ok(caller),
            Self::Operator => {
                Err(Refusal::new(Reason::Forbidden, "only a service may do this, with its own token"))
            }
        }
    }
}

/// REG-7: a suspended tenant's services do and see nothing.
pub(crate) fn check_active(registry: &Registry, service: &ServiceName) -> Result<(), Refusal> {
    match registry.tenant(service.tenant()) {
        Some(tenant) if !tenant.suspended => Ok(()),
        _ => Err(Refusal::new(Reason::Suspended, "the tenant is suspended")),
    }
}

/// A caller that did not prove who it is, or may not do anything now.
#[derive(Debug)]
pub(crate) enum Nobody {
    /// It shows nothing, or what was right once, or what is right and not enough.
    Refused(Refusal),
    /// It shows what this platform never issued.
    Forger,
}

impl From<Refusal> for Nobody {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

fn unknown(detail: &'static str) -> Refusal {
    Refusal::new(Reason::Unauthenticated, detail)
}

/// What a token was given to is not there any more.
pub(crate) fn gone() -> Refusal {
    unknown("the client is not registered any more")
}

fn ended() -> Refusal {
    unknown("the token has ended; get a new one at POST /v1/token")
}

/// Tokens that were verified, by digest, and what their tenants have under way.
pub(crate) struct Sessions {
    known: RwLock<HashMap<[u8; 32], Arc<Session>>>,
    tenants: Mutex<HashMap<String, Arc<OfTenant>>>,
    requests_max: usize,
    body_bytes_max: usize,
}

impl Sessions {
    /// None yet; each tenant may have this many requests, and bytes of their bodies, under way.
    pub(crate) fn new(requests_max: usize, body_bytes_max: usize) -> Self {
        Self { known: RwLock::default(), tenants: Mutex::default(), requests_max, body_bytes_max }
    }

    /// Resolves the caller of a request. Each use checks that client, service and tenant are still there.
    pub(crate) fn principal(
        &self,
        headers: &HeaderMap,
        path: &str,
        platform: &Platform,
        registry: &Registry,
        now: Timestamp,
    ) -> Result<Principal, Nobody> {
        let header =
            headers.get(AUTHORIZATION).ok_or_else(|| unknown("the request has no Authorization header"))?;
        let token = header.to_str().ok().and_then(|text| text.split_once(' '));
        let token =
            token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
        let token = token.ok_or_else(|| unknown("the Authorization header must be: Bearer <token>"))?;
        if platform.is_operator(token) {
            return Ok(Principal::Operator);
        }
        let session = self.session(token, platform, now)?;
        session.check(registry, now)?;
        // Messages are refused by the shield, in the order of PIP-1.
        if !path.starts_with("/v1/commands") {
            check_active(registry, &session.service)?;
        }
        let place = session.tenant.load.requests.take(1, class_of(path).spare(self.requests_max));
        let place = place.ok_or_else(|| overloaded("too many requests of this tenant are under way"))?;
        Ok(Principal::Service(Caller { session, _place: place }))
    }

    fn session(&self, token: &str, platform: &Platform, now: Timestamp) -> Result<Arc<Session>, Nobody> {
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&digest).cloned();
        if let Some(session) = known {
            return Ok(session);
        }
        let claims = platform.verify(token, now).map_err(|fault| match fault {
            TokenFault::Forged => Nobody::Forger,
            TokenFault::Ended => ended().into(),
        })?;
        let session = Arc::new(Session {
            client: claims.sub,
            tenant: self.tenant(claims.service.tenant()),
            service: claims.service,
            expires_at: Timestamp(claims.exp * 1000),
        });
        self.remember(digest, Arc::clone(&session), now);
        Ok(session)
    }

    fn remember(&self, digest: [u8; 32], session: Arc<Session>, now: Timestamp) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= limits::TOKENS_REMEMBERED_MAX {
            known.retain(|_, session| now < session.expires_at);
            if known.len() >= limits::TOKENS_REMEMBERED_MAX {
                known.clear();
            }
        }
        known.insert(digest, session);
    }

    fn tenant(&self, tenant: &str) -> Arc<OfTenant> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants.len() >= limits::TOKENS_REMEMBERED_MAX {
            tenants.retain(|_, tenant| Arc::strong_count(tenant) > 1);
        }
        let make = || {
            let load = Load::new(self.requests_max, self.body_bytes_max);
            Arc::new(OfTenant { load, turns: Turns::default() })
        };
        Arc::clone(tenants.entry(tenant.to_owned()).or_insert_with(make))
    }
}
