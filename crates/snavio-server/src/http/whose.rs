//! Whose things a caller means: a service its own tenant's, an operator those of the tenant it names.

use serde::Deserialize;
use snavio_model::id::Serial;
use snavio_model::name::TenantName;
use snavio_model::refusal::{Reason, Refusal};
use snavio_store::StoreError;
use utoipa::IntoParams;

use super::{App, Problem};
use crate::principal::Principal;

/// An operator says whose thing it means.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Whose {
    /// Whose queue, when an operator asks.
    pub(super) tenant: Option<String>,
}

/// The tenant that is meant. Another tenant's things are not found, as if there were no such tenant (QUA-5); an
/// operator also finds a former tenant's.
pub(super) async fn tenant(app: &App, principal: &Principal, named: Option<&str>) -> Result<String, Problem> {
    let nothing = || Refusal::new(Reason::NotFound, "there is no such tenant");
    match (principal, named) {
        (Principal::Service(session), None) => Ok(session.service.tenant().to_owned()),
        (Principal::Service(session), Some(tenant)) if tenant == session.service.tenant() => {
            Ok(tenant.to_owned())
        }
        (Principal::Service(_), Some(_)) => Err(nothing().into()),
        (Principal::Operator, Some(tenant)) => {
            let tenant = TenantName::new(tenant);
            let tenant = tenant.map_err(|invalid| Refusal::new(Reason::InvalidName, invalid.to_string()))?;
            let tenant = tenant.as_str();
            let known = app.gate.registry().tenant(tenant).is_some() || has_records(app, tenant).await?;
            if known { Ok(tenant.to_owned()) } else { Err(nothing().into()) }
        }
        (Principal::Operator, None) => {
            Err(Refusal::new(Reason::InvalidRequest, "an operator says whose: ?tenant=<tenant>").into())
        }
    }
}

/// Whether the store holds anything under a tenant's name. Messages are in its telemetry.
pub(super) async fn has_records(app: &App, tenant: &str) -> Result<bool, StoreError> {
    let store = app.gate.store();
    Ok(!store.telemetry(tenant, Serial(0), 1).await?.is_empty()
        || !store.dead_letters(tenant, None, Serial(0), 1).await?.is_empty())
}
