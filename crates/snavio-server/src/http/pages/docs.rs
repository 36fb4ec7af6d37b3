//! The page at `/docs`: the API's description, readable, rendered from the very document that `/openapi.json`
//! gives.

use axum::response::Response;
use serde_json::{Map, Value};

use super::super::openapi::description;
use super::{escaped, page, table};

/// The API in HTML.
#[utoipa::path(get, path = "/docs", tag = "pages", security(()),
    responses((status = 200, content_type = "text/html", body = String)))]
pub(in crate::http) async fn docs() -> Response {
    page("Snavio API", &description().html)
}

/// Renders a document.
pub(in crate::http) fn render(document: &Value) -> String {
    let info = &document["info"];
    let mut body = format!(
        "<h1>{} <span class=\"quiet\">{}</span></h1>\n{}<nav><a href=\"/\">node</a>\
         <a href=\"/openapi.json\">OpenAPI</a><a href=\"#reasons\">reasons</a><a href=\"#schemas\">schemas</a></nav>\n",
        text(&info["title"]),
        text(&info["version"]),
        paragraphs(&info["description"]),
    );
    for tag in document["tags"].as_array().into_iter().flatten() {
        body += &format!("<h2>{}</h2>\n{}", text(&tag["name"]), paragraphs(&tag["description"]));
        for (path, method, operation) in operations(document) {
            if operation["tags"][0] == tag["name"] {
                body += &render_operation(path, method, operation);
            }
        }
    }
    body += &render_reasons();
    body += "<h2 id=\"schemas\">Schemas</h2>\n";
    for (name, schema) in members(&document["components"]["schemas"]) {
        body += &render_schema(name, schema);
    }
    body
}

/// Every operation of a document, with its path and method.
pub(in crate::http) fn operations(document: &Value) -> impl Iterator<Item = (&str, &str, &Value)> {
    members(&document["paths"]).flat_map(|(path, item)| {
        let methods =
            members(item).filter(|(method, _)| matches!(*method, "get" | "put" | "post" | "delete"));
        methods.map(move |(method, operation)| (path, method, operation))
    })
}

fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter).map(|(name, value)| (name.as_str(), value))
}

fn text(value: &Value) -> String {
    escaped(value.as_str().unwrap_or_default())
}

fn paragraphs(value: &Value) -> String {
    let parts = value.as_str().unwrap_or_default().split("\n\n").filter(|part| !part.is_empty());
    parts.map(|part| format!("<p>{}</p>\n", escaped(part))).collect()
}

fn render_operation(path: &str, method: &str, operation: &Value) -> String {
    let mut section = format!(
        "<section id=\"{id}\">\n<h3>{summary}</h3>\n<p class=\"call\"><span class=\"method\">{method}</span>\
         <code>{path}</code>{open}</p>\n{description}",
        id = text(&operation["operationId"]),
        summary = text(&operation["summary"]),
        method = escaped(&method.to_uppercase()),
        path = escaped(path),
        open = if operation["security"][0] == Value::Object(Map::new()) {
            " <span class=\"quiet\">no token</span>"
        } else {
            ""
        },
        description = paragraphs(&operation["description"]),
    );
    let parameters: Vec<_> =
        operation["parameters"].as_array().into_iter().flatten().map(parameter).collect();
    if !parameters.is_empty() {
        section += &table(&["parameter", "in", "type", ""], &parameters);
    }
    let taken = members(&operation["requestBody"]["content"]).map(|(media, content)| {
        vec!["takes".to_owned(), format!("<code>{}</code>", escaped(media)), kind(&content["schema"])]
    });
    let given = members(&operation["responses"]).flat_map(|(status, response)| given(status, response));
    section += &table(&["", "media type", "content"], &taken.chain(given).collect::<Vec<_>>());
    section + "</section>\n"
}

fn parameter(parameter: &Value) -> Vec<String> {
    let required = if parameter["required"] == true { " (required)" } else { "" };
    vec![
        format!("<code>{}</code>{required}", text(&parameter["name"])),
        text(&parameter["in"]),
        kind(&parameter["schema"]),
        text(&parameter["description"]),
    ]
}

fn given(status: &str, response: &Value) -> Vec<Vec<String>> {
    let row = |media: &str, content: String| {
        vec![escaped(status), format!("<code>{}</code>", escaped(media)), content]
    };
    let contents: Vec<_> =
        members(&response["content"]).map(|(media, content)| row(media, kind(&content["schema"]))).collect();
    if contents.is_empty() { vec![row("", text(&response["description"]))] } else { contents }
}

/// What a schema says in one cell.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|it| it.rsplit('/').next()) {
        let name = escaped(name);
        return format!("<a href=\"#schema-{name}\">{name}</a>");
    }
    for several in ["oneOf", "anyOf", "allOf"] {
        if let Some(schemas) = schema[several].as_array() {
            let joined = if several == "allOf" { " and " } else { " or " };
            return schemas.iter().map(kind).collect::<Vec<_>>().join(joined);
        }
    }
    let named = match &schema["type"] {
        Value::String(name) if name == "array" => format!("array of {}", kind(&schema["items"])),
        Value::String(name) => escaped(name),
        Value::Array(names) => names.iter().map(text).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    };
    match schema["enum"].as_array() {
        Some(values) => {
            values.iter().map(|it| format!("<code>{}</code>", text(it))).collect::<Vec<_>>().join(" ")
        }
        None => named,
    }
}

fn render_schema(name: &str, schema: &Value) -> String {
    let name = escaped(name);
    let mut section =
        format!("<section id=\"schema-{name}\">\n<h3>{name}</h3>\n{}", paragraphs(&schema["description"]));
    let rows = property_rows(schema);
    section += &if rows.is_empty() {
        format!("<p>{}</p>\n", kind(schema))
    } else {
        table(&["member", "type", ""], &rows)
    };
    section + "</section>\n"
}

/// The members of an object, with those of the parts it is made of.
fn property_rows(schema: &Value) -> Vec<Vec<String>> {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let own = members(&schema["properties"]).map(|(name, property)| {
        let mark = if required.iter().any(|it| it == name) { " (required)" } else { "" };
        let name = format!("<code>{}</code>{mark}", escaped(name));
        vec![name, kind(property), text(&property["description"])]
    });
    let parts = schema["allOf"].as_array().into_iter().flatten().flat_map(|part| match part["$ref"] {
        Value::String(_) => vec![vec!["all members of".to_owned(), kind(part), String::new()]],
        _ => property_rows(part),
    });
    own.chain(parts).collect()
}

fn render_reasons() -> String {
    use snavio_model::refusal::Reason;

    let rows: Vec<_> = Reason::ALL
        .iter()
        .map(|reason| reason.contract())
        .map(|it| {
            vec![
                it.status.to_string(),
                format!("<code>{}</code>", escaped(it.code)),
                escaped(it.title),
                escaped(it.advice),
            ]
        })
        .collect();
    format!(
        "<h2 id=\"reasons\">Reasons of refusals</h2>\n{}",
        table(&["status", "reason", "meaning", "what to do"], &rows)
    )
}
