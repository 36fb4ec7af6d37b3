//! Pages for people: no outside asset, no script, everything escaped, and a policy that says so (QUA-8).

pub(super) mod docs;
pub(super) mod front;

use std::fmt::Write;

use axum::response::{IntoResponse, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};

const STYLE: &str = include_str!("snavio.css");
const POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The pages' style sheet.
#[utoipa::path(get, path = "/assets/snavio.css", tag = "pages", security(()),
    responses((status = 200, content_type = "text/css", body = String)))]
pub(super) async fn style() -> Response {
    let headers = [(CONTENT_TYPE, "text/css; charset=utf-8"), (CACHE_CONTROL, "max-age=3600")];
    (headers, [(X_CONTENT_TYPE_OPTIONS, "nosniff")], STYLE).into_response()
}

/// A whole page around its body.
fn page(title: &str, body: &str) -> Response {
    let title = escaped(title);
    let text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <link rel=\"stylesheet\" href=\"/assets/snavio.css\">\n</head>\n<body>\n{body}</body>\n</html>\n"
    );
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}

/// Text that means nothing in HTML.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A table; its cells are HTML already.
fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = String::from("<table>\n<tr>");
    for head in heads {
        let _ = write!(text, "<th>{}</th>", escaped(head));
    }
    for row in rows {
        let cells: String = row.iter().map(|cell| format!("<td>{cell}</td>")).collect();
        let _ = write!(text, "</tr>\n<tr>{cells}");
    }
    text + "</tr>\n</table>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// QUA-4
    #[test]
    fn markup_in_text_is_text() {
        assert_eq!(
            escaped(r#"<img onerror='x' a="b">&"#),
            "&lt;img onerror=&#39;x&#39; a=&quot;b&quot;&gt;&amp;"
        );
    }
}
