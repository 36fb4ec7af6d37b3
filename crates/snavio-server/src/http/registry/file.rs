//! Registry files: what shall be registered, in one transaction (REG-4).

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use snavio_model::registry::{
    Author, Change, Entry, Grant, Kind, Registry, Route, Service, Tenant, Wish, plan,
};
use snavio_model::time::Clock;
use utoipa::ToSchema;

use super::super::answer::json;
use super::super::extract::JsonBody;
use super::super::{App, Problem, Shared};
use super::services::{Credentials, with_credentials};
use super::{change, contradicted};
use crate::principal::Principal;

/// What shall be registered.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct RegistryFile {
    #[serde(default)]
    tenants: Vec<Tenant>,
    #[serde(default)]
    services: Vec<Service>,
    #[serde(default)]
    routes: Vec<Route>,
    #[serde(default)]
    grants: Vec<Grant>,
    /// Only say what would change.
    #[serde(default)]
    dry_run: bool,
    /// Why, for the changelog.
    #[serde(default)]
    why: String,
}

impl RegistryFile {
    /// What the file asks for, and the credentials of the services that it adds.
    fn wishes(&self, app: &App, registry: &Registry) -> (Vec<Wish>, Vec<Credentials>) {
        let put = |entry| Wish::Put(entry);
        let mut wishes: Vec<_> = self.tenants.iter().cloned().map(Entry::Tenant).map(put).collect();
        let mut made = Vec::new();
        for service in &self.services {
            let (more, credentials) = with_credentials(app, registry, service.clone());
            wishes.extend(more);
            made.extend(credentials);
        }
        wishes.extend(self.routes.iter().cloned().map(Entry::Route).map(put));
        wishes.extend(self.grants.iter().cloned().map(Entry::Grant).map(put));
        (wishes, made)
    }
}

/// What a file changed, or would change.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Applied {
    /// The registry's version afterwards.
    version: i64,
    changes: Vec<Step>,
    /// Of the services that are new. Shown once.
    credentials: Vec<Credentials>,
    dry_run: bool,
}

/// One change of many.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Step {
    /// `add`, `change` or `remove`.
    step: &'static str,
    kind: Kind,
    name: String,
}

/// Registers a file's entries; what is there already changes nothing.
#[utoipa::path(post, path = "/v1/registry/apply", tag = "registry", request_body = RegistryFile,
    responses((status = 200, body = Applied)))]
pub(in crate::http) async fn apply(
    State(app): State<Shared>,
    principal: Principal,
    JsonBody(file): JsonBody<RegistryFile>,
) -> Result<Response, Problem> {
    principal.operator()?;
    let (changes, credentials) = if file.dry_run {
        let author = Author { who: principal.name(), why: file.why.clone(), at: app.clock.now() };
        let registry = app.gate.registry();
        let (wishes, _) = file.wishes(&app, &registry);
        let planned = plan(&registry, wishes, &author, app.gate.window());
        (planned.map_err(|problems| contradicted(&problems))?, Vec::new())
    } else {
        change(&app, &principal, &file.why, |registry| file.wishes(&app, registry)).await?
    };
    let applied = Applied {
        version: changes.last().map_or_else(|| app.gate.registry().version(), |change| change.version),
        changes: changes.into_iter().map(step).collect(),
        credentials,
        dry_run: file.dry_run,
    };
    Ok(json(StatusCode::OK, &applied))
}

fn step(change: Change) -> Step {
    let step = match (&change.before, &change.after) {
        (None, _) => "add",
        (Some(_), Some(_)) => "change",
        (Some(_), None) => "remove",
    };
    Step { step, kind: change.key.kind, name: change.key.name }
}
