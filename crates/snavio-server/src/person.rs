//! People: a personal token resolved to whose it is and what it is good for (REG-9).
//!
//! A token is `snavpt_<id>_<secret>`. The registry in memory keeps a keyed hash of the secret under the id, so that
//! every request is checked against what is registered now, and nothing has to be remembered.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use snavio_model::identity::permission::Standing;
use snavio_model::name::TenantName;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{PersonalToken, Registry};
use snavio_model::time::Timestamp;
use zeroize::Zeroizing;

use crate::load::Taken;
use crate::machine::random;
use crate::platform::Platform;
use crate::principal::{OfTenant, check_active};

/// What every personal token begins with.
const PREFIX: &str = "snavpt_";

/// A person's request under way, with its place among those of its tenant.
#[derive(Debug)]
pub(crate) struct Person {
    pub(crate) token: Arc<PersonalToken>,
    pub(crate) tenant: Option<Arc<OfTenant>>,
    pub(crate) _place: Option<Taken>,
}

impl Person {
    /// Who did something, for the record.
    pub(crate) fn name(&self) -> String {
        let PersonalToken { person, role, tenant, id, .. } = &*self.token;
        match tenant {
            Some(tenant) => format!("{person} ({} of {tenant}, {id})", role.as_str()),
            None => format!("{person} ({} {id})", role.as_str()),
        }
    }

    /// As whom it acts.
    pub(crate) fn standing(&self) -> Standing<'_> {
        let tenant = self.token.tenant.as_ref().map(TenantName::as_str);
        Standing::Person { role: self.token.role, tenant }
    }

    /// The token is still registered as it was, and has not ended.
    pub(crate) fn check(&self, registry: &Registry, now: Timestamp) -> Result<(), Refusal> {
        match registry.personal_token(&self.token.id) {
            Some(token) if *token == self.token => check(token, registry, now),
            _ => Err(Refusal::new(Reason::Unauthenticated, "the token was revoked")),
        }
    }
}

/// A new token, shown once: its id, its text, and the hash that is kept.
pub(crate) struct NewToken {
    pub(crate) id: String,
    pub(crate) text: Zeroizing<String>,
    pub(crate) secret_hash: String,
}

impl NewToken {
    pub(crate) fn make(platform: &Platform) -> Self {
        let id = hex::encode(random::<8>());
        let secret = Zeroizing::new(URL_SAFE_NO_PAD.encode(Zeroizing::new(random::<32>())));
        let secret_hash = platform.hash_client_secret(&named(&id), &secret);
        Self { text: Zeroizing::new(format!("{}_{}", named(&id), *secret)), id, secret_hash }
    }
}

/// Whether a bearer token is meant to be a person's.
pub(crate) fn is_personal(token: &str) -> bool {
    token.starts_with(PREFIX)
}

/// The registered token that this is, if it is one.
pub(crate) fn find(text: &str, platform: &Platform, registry: &Registry) -> Option<Arc<PersonalToken>> {
    // An id is hexadecimal, and a secret may hold whatever joins them.
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let token = registry.personal_token(id)?;
    platform.is_client_secret(&named(id), secret, &token.secret_hash).then(|| Arc::clone(token))
}

/// The token has not ended, and its tenant is there and active.
pub(crate) fn check(token: &PersonalToken, registry: &Registry, now: Timestamp) -> Result<(), Refusal> {
    let unknown = |detail| Err(Refusal::new(Reason::Unauthenticated, detail));
    if now >= token.expires_at {
        return unknown("the token has ended; ask an operator for a new one");
    }
    match &token.tenant {
        Some(tenant) if registry.tenant(tenant.as_str()).is_none() => {
            unknown("the token's tenant is not registered any more")
        }
        Some(tenant) => check_active(registry, tenant.as_str()),
        None => Ok(()),
    }
}

/// Keeps hashes of people's secrets apart from those of clients'.
fn named(id: &str) -> String {
    format!("{PREFIX}{id}")
}

#[cfg(test)]
mod tests {
    use snavio_model::registry::Role;

    use super::*;

    /// REG-9
    #[test]
    fn a_token_is_good_until_its_end_and_while_it_is_registered() {
        let token = PersonalToken {
            id: "id".into(),
            person: "anna".into(),
            role: Role::Auditor,
            tenant: None,
            secret_hash: String::new(),
            created_at: Timestamp(1_000),
            expires_at: Timestamp(2_000),
        };
        let registry = Registry::default();
        assert_eq!(check(&token, &registry, Timestamp(1_999)), Ok(()));
        let ended = check(&token, &registry, Timestamp(2_000)).map_err(|it| it.reason);
        assert_eq!(ended, Err(Reason::Unauthenticated));
        let gone = PersonalToken { tenant: Some(TenantName::new("acme").unwrap()), ..token.clone() };
        let gone = check(&gone, &registry, Timestamp(1_999)).map_err(|it| it.reason);
        assert_eq!(gone, Err(Reason::Unauthenticated), "its tenant is not there");
        let person = Person { token: Arc::new(token), tenant: None, _place: None };
        assert!(person.check(&registry, Timestamp(1_999)).is_err(), "it is not registered");
    }
}
