//! Whose things a caller means: a service its own tenant's, an operator those of the tenant it names.

use snavio_model::name::TenantName;
use snavio_model::refusal::{Reason, Refusal};

use crate::principal::Principal;

/// The tenant that is meant. Another tenant's things are not found, as if there were no such tenant (QUA-5).
pub(super) fn tenant(principal: &Principal, named: Option<&str>) -> Result<String, Refusal> {
    match (principal, named) {
        (Principal::Service(session), None) => Ok(session.service.tenant().to_owned()),
        (Principal::Service(session), Some(tenant)) if tenant == session.service.tenant() => {
            Ok(tenant.to_owned())
        }
        (Principal::Service(_), Some(_)) => Err(Refusal::new(Reason::NotFound, "there is no such tenant")),
        (Principal::Operator, Some(tenant)) => {
            let tenant = TenantName::new(tenant);
            let tenant = tenant.map_err(|invalid| Refusal::new(Reason::InvalidName, invalid.to_string()))?;
            Ok(tenant.as_str().to_owned())
        }
        (Principal::Operator, None) => {
            Err(Refusal::new(Reason::InvalidRequest, "an operator says whose: ?tenant=<tenant>"))
        }
    }
}
