//! Who is calling: bearer tokens resolved to a service, a person or the operator; those of services, once verified,
//! remembered by digest.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use snavio_model::bounds;
use snavio_model::identity::permission::{Over, Permission, Standing, Verdict};
use snavio_model::identity::token::TokenFault;
use snavio_model::name::ServiceName;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::Registry;
use snavio_model::time::Timestamp;

use crate::http::class_of;
use crate::load::{Bounded, Load, Taken, overloaded};
use crate::person::{self, Person};
use crate::platform::Platform;
use crate::turns::Turns;

/// The authenticated caller.
#[derive(Debug)]
pub(crate) enum Principal {
    /// Whoever shows the operator's own token.
    Operator,
    /// A person, by the token that an operator issued.
    Person(Person),
    /// A service, through one of its clients or workloads.
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

/// Whether a request brings messages: these are refused by the shield, with their names.
pub(crate) fn sends(path: &str) -> bool {
    ["/v1/commands", "/v1/events"].iter().any(|ingest| path.starts_with(ingest))
}

impl Session {
    /// What it is called on the record.
    pub(crate) fn name(&self) -> String {
        format!("{} ({})", self.service, self.client)
    }

    /// What its tenant may take through the pipeline at once.
    pub(crate) fn turns(&self) -> &Turns {
        &self.tenant.turns
    }

    /// The token has not ended, and whom it was given to is still there.
    pub(crate) fn check(&self, registry: &Registry, now: Timestamp) -> Result<(), Refusal> {
        if now >= self.expires_at {
            return Err(ended());
        }
        if !is_bound(registry, &self.client, &self.service)
            || registry.service(self.service.as_str()).is_none()
        {
            return Err(gone());
        }
        Ok(())
    }
}

/// Whether a client, or a workload of an issuer that is still trusted, speaks for the service.
fn is_bound(registry: &Registry, client: &str, service: &ServiceName) -> bool {
    match client.split_once(' ') {
        Some((issuer, subject)) => {
            let workload = registry.workload(issuer, subject);
            workload.is_some_and(|it| it.service == *service) && registry.issuer(issuer).is_some()
        }
        None => registry.client(client).is_some_and(|it| it.service == *service),
    }
}

/// What a tenant has under way, over all its tokens.
#[derive(Debug)]
pub(crate) struct OfTenant {
    load: Load,
    turns: Turns,
}

/// A request under way that is a tenant's by something else than a token.
pub(crate) struct Visit {
    tenant: Arc<OfTenant>,
    _place: Taken,
}

impl Visit {
    /// What the tenant may take through the pipeline at once.
    pub(crate) fn turns(&self) -> &Turns {
        &self.tenant.turns
    }
}

impl Principal {
    /// Who did something, for the record.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Operator => "operator".to_owned(),
            Self::Person(person) => person.name(),
            Self::Service(caller) => caller.name(),
        }
    }

    /// As whom it acts.
    pub(crate) fn standing(&self) -> Standing<'_> {
        match self {
            Self::Operator => Standing::Operator,
            Self::Person(person) => person.standing(),
            Self::Service(caller) => Standing::Service(&caller.session.service),
        }
    }

    /// Who may run the platform, or nobody.
    pub(crate) fn operator(&self) -> Result<(), Refusal> {
        self.may(Permission::Operate)
    }

    /// Who may do this to the platform as a whole, or nobody.
    pub(crate) fn may(&self, permission: Permission) -> Result<(), Refusal> {
        match self.standing().judge(permission, Over::Platform) {
            Verdict::Allowed => Ok(()),
            Verdict::Forbidden | Verdict::Hidden if permission == Permission::Record => {
                Err(forbidden("only operators, and auditors of all tenants, may see this"))
            }
            Verdict::Forbidden | Verdict::Hidden => Err(forbidden("only an operator may do this")),
        }
    }

    /// The bytes of bodies that its tenant has in memory.
    pub(crate) fn body_bytes(&self) -> Option<Arc<Bounded>> {
        let tenant = match self {
            Self::Operator => None,
            Self::Person(person) => person.tenant.as_ref(),
            Self::Service(caller) => Some(&caller.session.tenant),
        };
        tenant.map(|tenant| Arc::clone(&tenant.load.body_bytes))
    }

    /// What goes on after its request was answered asks again before it tells more (REG-7).
    pub(crate) fn check_again(&self, registry: &Registry, now: Timestamp) -> Result<(), Refusal> {
        match self {
            Self::Operator => Ok(()),
            Self::Person(person) => person.check(registry, now),
            Self::Service(caller) => {
                caller.session.check(registry, now)?;
                check_active(registry, caller.service.tenant())
            }
        }
    }

    /// The service's request, or nobody's.
    pub(crate) fn caller(&self) -> Result<&Caller, Refusal> {
        match self {
            Self::Service(caller) => Ok(caller),
            Self::Operator | Self::Person(_) => {
                Err(forbidden("only a service may do this, with its own token"))
            }
        }
    }
}

/// Whether a name on the record is that of a service or a person of this tenant.
pub(crate) fn is_of(name: &str, tenant: &str) -> bool {
    name.starts_with(&format!("{tenant}/")) || name.contains(&format!(" of {tenant}, "))
}

/// The refusal of what is within reach and not allowed.
pub(crate) fn forbidden(detail: &'static str) -> Refusal {
    Refusal::new(Reason::Forbidden, detail)
}

/// REG-7: a suspended tenant's services and people do and see nothing.
pub(crate) fn check_active(registry: &Registry, tenant: &str) -> Result<(), Refusal> {
    match registry.tenant(tenant) {
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
    unknown("the client or workload is not registered any more")
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

    /// Resolves the caller of a request. Each use checks that the token's client or person, service and tenant are
    /// still there.
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
        if person::is_personal(token) {
            let token = person::find(token, platform, registry).ok_or(Nobody::Forger)?;
            person::check(&token, registry, now)?;
            let tenant = token.tenant.as_ref().map(|tenant| self.tenant(tenant.as_str()));
            let _place = tenant.as_ref().map(|tenant| self.place(tenant, path)).transpose()?;
            return Ok(Principal::Person(Person { token, tenant, _place }));
        }
        let session = self.session(token, platform, now)?;
        session.check(registry, now)?;
        // Messages are refused by the shield, in the order of PIP-1.
        if !sends(path) {
            check_active(registry, session.service.tenant())?;
        }
        let place = self.place(&session.tenant, path)?;
        Ok(Principal::Service(Caller { session, _place: place }))
    }

    /// The place of a request that has no token, among those of the tenant whose adapter knows it.
    pub(crate) fn visit(&self, tenant: &str, path: &str) -> Result<Visit, Refusal> {
        let tenant = self.tenant(tenant);
        let place = self.place(&tenant, path)?;
        Ok(Visit { tenant, _place: place })
    }

    /// A request's place among those of its tenant.
    fn place(&self, tenant: &OfTenant, path: &str) -> Result<Taken, Refusal> {
        let place = tenant.load.requests.take(1, class_of(path).spare(self.requests_max));
        place.ok_or_else(|| overloaded("too many requests of this tenant are under way"))
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
        if known.len() >= bounds::TOKENS_REMEMBERED_MAX {
            known.retain(|_, session| now < session.expires_at);
            if known.len() >= bounds::TOKENS_REMEMBERED_MAX {
                known.clear();
            }
        }
        known.insert(digest, session);
    }

    fn tenant(&self, tenant: &str) -> Arc<OfTenant> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants.len() >= bounds::TOKENS_REMEMBERED_MAX {
            tenants.retain(|_, tenant| Arc::strong_count(tenant) > 1);
        }
        let make = || {
            let load = Load::new(self.requests_max, self.body_bytes_max);
            Arc::new(OfTenant { load, turns: Turns::default() })
        };
        Arc::clone(tenants.entry(tenant.to_owned()).or_insert_with(make))
    }
}
