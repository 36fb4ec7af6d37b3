//! Legal holds: what must not be deleted or erased, who says so and why (CLM-18).

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use snavio_model::archive::hold::{Held, Hold};
use snavio_model::bounds;
use snavio_model::id::{MessageId, Serial};
use snavio_model::identity::permission::{Over, Permission, Verdict};
use snavio_model::name::TenantName;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{EntryKey, Kind};
use snavio_store::NewHold;
use utoipa::{IntoParams, ToSchema};

use super::answer::json;
use super::extract::{JsonBody, Params, Segments, page_limit};
use super::queues::act;
use super::{App, Problem, Shared, whose};
use crate::principal::{Principal, forbidden};

/// Which holds.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Whose; all of those that the caller may see when not said.
    #[param(value_type = Option<String>)]
    tenant: Option<TenantName>,
    /// Those that were lifted too.
    #[serde(default)]
    lifted: bool,
    /// Those after this id.
    #[serde(default)]
    after: i64,
    /// Holds of the page: 100 when not said, 1000 at most.
    limit: Option<usize>,
}

/// Some holds, oldest first.
#[derive(Serialize, ToSchema)]
pub(super) struct HoldPage {
    items: Vec<HoldDocument>,
    /// The `after` to go on from.
    next: i64,
}

/// A hold.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Hold)]
pub(super) struct HoldDocument {
    hold_id: i64,
    /// Whose id, or destination, it is on; on all of the tenant where neither is said.
    tenant: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<String>,
    who: String,
    why: String,
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifted_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifted_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifted_why: Option<String>,
}

impl From<&Hold> for HoldDocument {
    fn from(it: &Hold) -> Self {
        let lifted = it.lifted.as_ref();
        let (event_id, destination) = match &it.held {
            Held::Id(id) => (Some(id.to_string()), None),
            Held::Destination(destination) => (None, Some(destination.to_string())),
            Held::Tenant => (None, None),
        };
        Self {
            hold_id: it.id.0,
            tenant: it.tenant.to_string(),
            event_id,
            destination,
            who: it.who.clone(),
            why: it.why.clone(),
            at: it.at.to_string(),
            lifted_at: lifted.map(|it| it.at.to_string()),
            lifted_by: lifted.map(|it| it.who.clone()),
            lifted_why: lifted.map(|it| it.why.clone()),
        }
    }
}

/// Holds on what is a tenant's.
#[utoipa::path(get, path = "/v1/holds", tag = "retention", params(Filter), responses((status = 200, body = HoldPage)))]
pub(super) async fn list(
    State(app): State<Shared>,
    principal: Principal,
    Params(filter): Params<Filter>,
) -> Result<Response, Problem> {
    let tenant = filter.tenant.as_ref().map(TenantName::as_str).or(principal.standing().tenant());
    may(&principal, Permission::Read, tenant)?;
    if let Some(tenant) = tenant {
        whose::known(&app, &principal, tenant).await?;
    }
    let limit = page_limit(filter.limit)?;
    let holds = app.gate.store().holds(tenant, filter.lifted, Serial(filter.after), limit).await?;
    let next = holds.last().map_or(filter.after, |it| it.id.0);
    let items = holds.iter().map(HoldDocument::from).collect();
    Ok(json(StatusCode::OK, &HoldPage { items, next }))
}

/// What is to be held: one id of the tenant, one of its destinations, or everything of it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct HoldBody {
    /// The caller's own when not said.
    tenant: Option<String>,
    /// Only this id: what the tenant sent under it, and what its destinations were sent under it by whomever.
    event_id: Option<String>,
    /// Only this destination, as claims name it: <tenant>/<service>:<name>.
    destination: Option<String>,
    /// For the record.
    why: String,
}

/// Holds something: while the hold is on, nothing under it is deleted or erased.
#[utoipa::path(post, path = "/v1/holds", tag = "retention", request_body = HoldBody,
    responses((status = 201, body = HoldDocument)))]
pub(super) async fn set(
    State(app): State<Shared>,
    principal: Principal,
    JsonBody(body): JsonBody<HoldBody>,
) -> Result<Response, Problem> {
    let tenant = whose::tenant(&app, &principal, Permission::Resolve, body.tenant.as_deref()).await?;
    let held = held(&tenant, body.event_id.as_deref(), body.destination.as_deref())?;
    is_something(&app, &tenant, &held).await?;
    let act = act(&app, &principal, said(&body.why)?)?;
    let tenant =
        TenantName::new(&tenant).map_err(|invalid| Refusal::new(Reason::InvalidName, invalid.to_string()))?;
    let hold = app.gate.store().set_hold(NewHold { tenant, held }, act).await?;
    let hold = hold.ok_or_else(|| {
        let most = bounds::HOLDS_PER_TENANT_MAX;
        let detail = format!("the tenant has {most} holds in force, as many as may be: lift some");
        Refusal::new(Reason::RegistryConflict, detail)
    })?;
    Ok(json(StatusCode::CREATED, &HoldDocument::from(&hold)))
}

fn held(tenant: &str, id: Option<&str>, destination: Option<&str>) -> Result<Held, Refusal> {
    let wrong = |detail: &'static str| Refusal::new(Reason::InvalidRequest, detail);
    match (id, destination) {
        (Some(_), Some(_)) => Err(wrong("a hold is on an eventId or on a destination, not on both")),
        (Some(id), None) => {
            let invalid = || Refusal::new(Reason::InvalidId, "an id is 1 to 128 printable ASCII characters");
            MessageId::asked_for(id).map(Held::Id).ok_or_else(invalid)
        }
        (None, Some(destination)) => match destination.split_once('/') {
            Some((owner, rest)) if owner == tenant && rest.contains(':') && destination.len() <= 512 => {
                Ok(Held::Destination(destination.into()))
            }
            _ => Err(wrong("a destination is the tenant's own: <tenant>/<service>:<name>")),
        },
        (None, None) => Ok(Held::Tenant),
    }
}

/// A hold on nothing would look like one on something: the id is there, and the destination is or was and makes claims or
/// did, which are what a hold keeps.
async fn is_something(app: &App, tenant: &str, held: &Held) -> Result<(), Problem> {
    let (is_there, detail) = match held {
        Held::Tenant => return Ok(()),
        Held::Id(id) => (
            app.gate.store().is_concerned(tenant, id).await?,
            "there is no claim and no conflict under this id that the tenant sent or was sent: a hold would be on nothing",
        ),
        Held::Destination(destination) if is_known(app, destination).await? => (
            app.gate.ever_claimed_at(destination).await?,
            "no claims are made at this destination, and never were (policy none): a hold would be on nothing",
        ),
        Held::Destination(_) => (false, "there is no such destination, and never was"),
    };
    if is_there { Ok(()) } else { Err(Refusal::new(Reason::NotFound, detail).into()) }
}

async fn is_known(app: &App, destination: &str) -> Result<bool, Problem> {
    if app.gate.registry().destination(destination).is_some() {
        return Ok(true);
    }
    for kind in [Kind::Route, Kind::Subscription] {
        if app.gate.store().was_registered(&EntryKey { kind, name: destination.to_owned() }).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Nobody holds or destroys anything without a word.
pub(super) fn said(why: &str) -> Result<&str, Refusal> {
    match why.trim() {
        "" => Err(Refusal::new(Reason::InvalidRequest, "say why: it goes on the record")),
        _ => Ok(why),
    }
}

/// Why a hold is lifted.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LiftBody {
    /// For the record.
    why: String,
}

/// Lifts a hold. One that was lifted before stays as it is.
#[utoipa::path(post, path = "/v1/holds/{id}/lift", tag = "retention", params(("id" = i64, Path)), request_body = LiftBody,
    responses((status = 200, body = HoldDocument)))]
pub(super) async fn lift(
    State(app): State<Shared>,
    principal: Principal,
    Segments(id): Segments<i64>,
    JsonBody(body): JsonBody<LiftBody>,
) -> Result<Response, Problem> {
    let hold = app.gate.store().hold(Serial(id)).await?.ok_or_else(nothing)?;
    may(&principal, Permission::Resolve, Some(hold.tenant.as_str()))?;
    let act = act(&app, &principal, said(&body.why)?)?;
    let lifted = app.gate.store().lift_hold(hold.id, act).await?.ok_or_else(nothing)?;
    Ok(json(StatusCode::OK, &HoldDocument::from(&lifted)))
}

/// What is another tenant's is not there.
fn may(principal: &Principal, permission: Permission, tenant: Option<&str>) -> Result<(), Refusal> {
    let over = tenant.map_or(Over::Platform, Over::Tenant);
    match principal.standing().judge(permission, over) {
        Verdict::Allowed => Ok(()),
        Verdict::Forbidden => Err(forbidden("your role may not do this")),
        Verdict::Hidden => Err(nothing()),
    }
}

fn nothing() -> Refusal {
    Refusal::new(Reason::NotFound, "there is no such hold")
}
