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
        (name = "messages", description = "Sending commands and events."),
        (name = "queues", description = "Consuming: receive, acknowledge, extend, release."),
        (name = "claims", description = "What became of an id; work that is begun and ended by those who do it."),
        (name = "conflicts", description = "Ids that were used for two contents."),
        (name = "order", description = "How far entities are whose messages are ordered."),
        (name = "retention", description = "What must not be deleted, and what must be destroyed."),
        (name = "dead letters", description = "What could not be processed."),
        (name = "telemetry", description = "What happened to a tenant's messages."),
        (name = "registry", description = "Who may send what where."),
        (name = "audit", description = "Who did what, and whether the record of it is whole."),
        (name = "tokens", description = "How services and people prove themselves."),
        (name = "keys", description = "What a service signs with, and how it learns of a new key."),
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
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
            "A service's token from POST /v1/token, a person's from POST /v1/tokens, or the operator's.",
        ));
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
        complete(&mut document);
        let mut document = serde_json::to_value(&document).unwrap_or_default();
        open_parts(&mut document);
        Description { json: document.to_string(), html: docs::render(&document) }
    });
    &DESCRIPTION
}

/// Every operation has a name of its own, and may refuse, always in the same form.
fn complete(document: &mut OpenApi) {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let refusal = ResponseBuilder::new()
        .description("A refusal; its reason says why.")
        .content("application/problem+json", content)
        .build();
    for (path, item) in &mut document.paths.paths {
        let operations = [
            ("get", &mut item.get),
            ("put", &mut item.put),
            ("post", &mut item.post),
            ("delete", &mut item.delete),
        ];
        for (method, operation) in operations {
            let Some(operation) = operation else { continue };
            operation.operation_id = Some(operation_id(method, path));
            let responses = &mut operation.responses.responses;
            responses.entry("default".to_owned()).or_insert_with(|| RefOr::T(refusal.clone()));
        }
    }
}

/// `get /v1/tenants/{tenant}` is `get_v1_tenants_tenant`: handlers' names repeat, their paths do not.
fn operation_id(method: &str, path: &str) -> String {
    let words = path.split(|it: char| !it.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    std::iter::once(method).chain(words).collect::<Vec<_>>().join("_")
}

/// A part of a whole must not say that there is nothing but itself, or no document would fit the whole.
fn open_parts(document: &mut Value) {
    let mut parts = Vec::new();
    find_parts(&document["components"]["schemas"], &mut parts);
    for part in parts {
        let schema = document.pointer_mut(part.trim_start_matches('#')).and_then(Value::as_object_mut);
        schema.and_then(|schema| schema.remove("additionalProperties"));
    }
}

fn find_parts(value: &Value, parts: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            let of_all = members.get("allOf").and_then(Value::as_array).into_iter().flatten();
            parts.extend(of_all.filter_map(|part| part["$ref"].as_str()).map(str::to_owned));
            members.values().for_each(|value| find_parts(value, parts));
        }
        Value::Array(values) => values.iter().for_each(|value| find_parts(value, parts)),
        _ => {}
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
