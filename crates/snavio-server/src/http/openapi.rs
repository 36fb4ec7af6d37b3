//! The API's description, generated from the handlers themselves: a route cannot be added without one.

use std::sync::LazyLock;

use axum::response::Response;
use http::StatusCode;
use serde_json::Value;
use snavio_model::refusal::Reason;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{
    ClientCredentials, Flow, HttpAuthScheme, HttpBuilder, OAuth2, Scopes, SecurityScheme,
};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, ResponseBuilder};
use utoipa::{Modify, OpenApi as _};

use super::answer::typed;
use super::pages::docs;
use super::problem::Document;
use super::routes;

/// What the description begins with.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Snavio",
        description = "A gateway for commands and events.\n\nRefusals are RFC 9457 problem documents with a stable reason.",
    ),
    tags(
        (name = "messages", description = "Sending."),
        (name = "queues", description = "Consuming: receive, acknowledge, extend, release."),
        (name = "dead letters", description = "What could not be processed."),
        (name = "telemetry", description = "What happened to a tenant's messages."),
        (name = "registry", description = "Who may send what where."),
        (name = "tokens", description = "How a service proves itself."),
        (name = "health", description = "How the node is."),
        (name = "pages", description = "For people."),
    ),
    components(schemas(Document)),
    modifiers(&Security),
    security(("bearer" = []), ("client_credentials" = [])),
)]
pub(super) struct Opening;

struct Security;

impl Modify for Security {
    fn modify(&self, document: &mut OpenApi) {
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("A service's token from POST /v1/token, or the operator's."));
        let flow = Flow::ClientCredentials(ClientCredentials::new("/v1/token", Scopes::new()));
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer.build()));
        components.add_security_scheme("client_credentials", SecurityScheme::OAuth2(OAuth2::new([flow])));
    }
}

/// The description, ready to be sent.
pub(super) struct Description {
    json: String,
    pub(super) html: String,
}

/// Made once: it is the same for as long as the program is.
pub(super) fn description() -> &'static Description {
    static DESCRIPTION: LazyLock<Description> = LazyLock::new(|| {
        let (_, mut document) = routes().split_for_parts();
        add_refusals(&mut document);
        let json = document.to_json().unwrap_or_default();
        let html = docs::render(&serde_json::from_str(&json).unwrap_or(Value::Null));
        Description { json, html }
    });
    &DESCRIPTION
}

/// Every operation may refuse, always in the same form.
fn add_refusals(document: &mut OpenApi) {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let refusal = ResponseBuilder::new()
        .description("A refusal; its reason says why.")
        .content("application/problem+json", content)
        .build();
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
        for operation in operations.into_iter().flatten() {
            let responses = &mut operation.responses.responses;
            responses.entry("default".to_owned()).or_insert_with(|| RefOr::T(refusal.clone()));
        }
    }
}

/// The reasons there are.
pub(super) fn reasons() -> Schema {
    let codes = Reason::ALL.iter().map(|reason| reason.code());
    let schema = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(codes));
    schema.description(Some("The stable code to decide by.")).into()
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "pages", security(()),
    responses((status = 200, content_type = "application/json", body = Object)))]
pub(super) async fn openapi() -> Response {
    typed(StatusCode::OK, "application/json", description().json.clone())
}

/// The document before any route has been added to it.
pub(super) fn opening() -> OpenApi {
    Opening::openapi()
}

#[cfg(test)]
mod tests {
    /// INT-1
    #[test]
    fn no_route_is_added_around_the_description() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http");
        let mut pending = vec![folder];
        while let Some(path) = pending.pop() {
            if path.is_dir() {
                pending.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("admin.rs") {
                let source = std::fs::read_to_string(&path).unwrap();
                let bare = [".route", "("].concat();
                assert!(
                    !source.contains(&bare),
                    "{} adds a route that /openapi.json would not know",
                    path.display()
                );
            }
        }
    }
}
