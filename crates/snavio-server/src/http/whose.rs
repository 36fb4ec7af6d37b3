//! Whose things a caller means: a service and a tenant's people their own tenant's, an operator or an auditor of all
//! those of the tenant named.

use serde::Deserialize;
use snavio_model::id::Serial;
use snavio_model::identity::permission::{Over, Permission, Verdict};
use snavio_model::name::TenantName;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{EntryKey, Kind};
use snavio_store::StoreError;
use utoipa::IntoParams;

use super::unknown::{names, unknown};
use super::{App, Problem};
use crate::principal::{Principal, forbidden};

/// Who is there for all tenants says whose thing is meant.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Whose {
    /// Whose, when an operator or an auditor of all asks.
    pub(super) tenant: Option<String>,
}

/// The tenant that is meant, if the caller may do this to what it owns. Another tenant's things are not found, as if
/// there were no such tenant (QUA-5); whoever is there for all also finds a former tenant's, wherever they are by now.
pub(super) async fn tenant(
    app: &App,
    principal: &Principal,
    permission: Permission,
    named: Option<&str>,
) -> Result<String, Problem> {
    let nothing = || Refusal::new(Reason::NotFound, "there is no such tenant");
    let standing = principal.standing();
    let tenant = named.or(standing.tenant()).ok_or_else(|| {
        Refusal::new(Reason::InvalidRequest, "who is there for all tenants says whose: ?tenant=<tenant>, on the command line --tenant <tenant>")
    })?;
    match standing.judge(permission, Over::Tenant(tenant)) {
        Verdict::Allowed => {}
        Verdict::Forbidden => return Err(forbidden("your role may not do this").into()),
        Verdict::Hidden => return Err(nothing().into()),
    }
    known(app, principal, tenant).await?;
    Ok(tenant.to_owned())
}

/// Refuses a tenant that never was, to those who act for all tenants: others have been told that it is not theirs.
pub(super) async fn known(app: &App, principal: &Principal, tenant: &str) -> Result<(), Problem> {
    if principal.standing().tenant().is_some() {
        return Ok(());
    }
    let name = TenantName::new(tenant);
    let name = name.map_err(|invalid| Refusal::new(Reason::InvalidName, invalid.to_string()))?;
    let registry = app.gate.registry();
    if registry.tenant(name.as_str()).is_some()
        || app.gate.store().was_registered(&EntryKey::tenant(&name)).await?
    {
        return Ok(());
    }
    Err(unknown("tenant", tenant, names(&registry, principal, Kind::Tenant)).into())
}

/// Whether the store holds anything under a tenant's name: messages, claims that outlive them, conflicts, telemetry,
/// dead letters. Claims are read through for a name that was registered before, and only for that.
pub(super) async fn has_records(app: &App, tenant: &str) -> Result<bool, StoreError> {
    let store = app.gate.store();
    if !store.telemetry(tenant, Serial(0), 1).await?.is_empty()
        || !store.dead_letters(tenant, None, Serial(0), 1).await?.is_empty()
        || !store.conflicts(Some(tenant), None, Serial(0), 1).await?.is_empty()
    {
        return Ok(true);
    }
    let Ok(name) = TenantName::new(tenant) else { return Ok(false) };
    Ok(store.was_registered(&EntryKey::tenant(&name)).await? && store.has_claims(tenant).await?)
}
