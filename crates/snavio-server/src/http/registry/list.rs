//! Lists of what is registered, a page at a time.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{Entry, EntryKey, Kind, Registry};
use utoipa::{IntoParams, ToSchema};

use super::super::answer::json;
use super::super::extract::{Params, page_limit};
use super::super::unknown::kind as kind_of;
use super::super::{App, Problem, Shared};
use super::shown;
use crate::principal::Principal;

/// Which page of a list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct Cursor {
    /// The `next` of the page before.
    after: Option<String>,
    /// Entries of the page: 100 when not said, 1000 at most.
    limit: Option<usize>,
}

/// A page of a list.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Page {
    #[schema(value_type = Vec<Entry>)]
    items: Vec<Value>,
    /// Where the next page begins; missing on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A page of everything.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct RegistryPage {
    /// The registry's version.
    version: i64,
    #[schema(value_type = Vec<Entry>)]
    items: Vec<Value>,
    /// Where the next page begins; missing on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// One kind's entries; a cursor is the name of the last one seen.
pub(super) fn list(
    app: &App,
    principal: &Principal,
    kind: Kind,
    cursor: &Cursor,
) -> Result<Response, Problem> {
    let after = EntryKey { kind, name: cursor.after.clone().unwrap_or_default() };
    let registry = app.gate.registry();
    let (items, next) = page(&registry, principal, Some(kind), Some(&after), cursor.limit)?;
    Ok(json(StatusCode::OK, &Page { items, next: next.map(|key| key.name) }))
}

/// Which part of the registry.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct Part {
    /// Only entries of this kind.
    #[param(value_type = Option<Kind>)]
    kind: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// Entries of the page: 100 when not said, 1000 at most.
    limit: Option<usize>,
}

/// Everything that is registered, as far as the caller may see it.
#[utoipa::path(get, path = "/v1/registry", tag = "registry", params(Part),
    responses((status = 200, body = RegistryPage)))]
pub(in crate::http) async fn everything(
    State(app): State<Shared>,
    principal: Principal,
    Params(part): Params<Part>,
) -> Result<Response, Problem> {
    let kind = part.kind.as_deref().map(kind_of).transpose()?;
    let first = |kind| EntryKey { kind, name: String::new() };
    let after = part.after.as_deref().map(parse).transpose()?.or(kind.map(first));
    let registry = app.gate.registry();
    let (items, next) = page(&registry, &principal, kind, after.as_ref(), part.limit)?;
    let next = next.map(|key| key.to_string());
    Ok(json(StatusCode::OK, &RegistryPage { version: registry.version(), items, next }))
}

/// Takes back the text of a key.
pub(super) fn parse(cursor: &str) -> Result<EntryKey, Refusal> {
    let key = cursor.split_once(' ');
    let key =
        key.and_then(|(kind, name)| Some(EntryKey { kind: Kind::stored(kind)?, name: name.to_owned() }));
    key.ok_or_else(|| Refusal::new(Reason::InvalidRequest, "after must be the next of the page before"))
}

pub(super) fn page(
    registry: &Registry,
    principal: &Principal,
    kind: Option<Kind>,
    after: Option<&EntryKey>,
    limit: Option<usize>,
) -> Result<(Vec<Value>, Option<EntryKey>), Refusal> {
    let limit = page_limit(limit)?;
    let wanted = |entry: &&Entry| kind.is_none_or(|kind| entry.key().kind == kind);
    let entries = registry.entries_after(after).take_while(wanted);
    let standing = principal.standing();
    let mut seen: Vec<_> = entries.filter(|entry| standing.sees(entry)).take(limit + 1).collect();
    let more = seen.len() > limit;
    seen.truncate(limit);
    let next = seen.last().filter(|_| more).map(|entry| entry.key());
    Ok((seen.into_iter().map(|entry| shown(&standing.view(entry))).collect(), next))
}
