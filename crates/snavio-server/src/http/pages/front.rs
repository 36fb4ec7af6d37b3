//! The page at `/`, for people who open the address in a browser: what this is, how it is, where to go on.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;

use super::super::Shared;
use super::super::health::checks;
use super::{escaped, page, table};

/// How the node is, in HTML. Says nothing of any tenant.
#[utoipa::path(get, path = "/", tag = "pages", security(()),
    responses((status = 200, content_type = "text/html", body = String)))]
pub(in crate::http) async fn front(State(app): State<Shared>) -> Response {
    let checks = checks(&app).await;
    let ready = checks.iter().all(|check| check.problem.is_none());
    let rows: Vec<_> = checks
        .iter()
        .map(|check| {
            let (class, text) = match &check.problem {
                None => ("good", "ok"),
                Some(problem) => ("bad", problem.as_str()),
            };
            vec![check.name.to_owned(), format!("<span class=\"{class}\">{}</span>", escaped(text))]
        })
        .collect();
    let state =
        if ready { "<span class=\"good\">ready</span>" } else { "<span class=\"bad\">not ready</span>" };
    let body = format!(
        "<h1>Snavio</h1>\n<p class=\"quiet\">A gateway for commands and events.</p>\n\
         <p>Version {version}, up for {uptime}, {state}.</p>\n{relaxed}<h2>Checks</h2>\n{checks}\
         <nav><a href=\"/docs\">API</a><a href=\"/openapi.json\">OpenAPI</a><a href=\"/readyz\">readiness</a>\
         <a href=\"/livez\">liveness</a></nav>\n",
        version = escaped(env!("CARGO_PKG_VERSION")),
        uptime = spoken(app.uptime()),
        relaxed = if app.relaxed {
            "<p class=\"bad\">Relaxed: an acknowledged message may be lost in a crash.</p>\n"
        } else {
            ""
        },
        checks = table(&["check", "state"], &rows),
    );
    page("Snavio", &body)
}

/// A duration as people say it.
fn spoken(duration: Duration) -> String {
    let minutes = duration.as_secs() / 60;
    match (minutes / 1440, minutes / 60 % 24, minutes % 60) {
        (0, 0, 0) => format!("{} s", duration.as_secs()),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_spoken() {
        for (seconds, text) in [(5, "5 s"), (60, "1 min"), (3_700, "1 h 1 min"), (90_061, "1 d 1 h")] {
            assert_eq!(spoken(Duration::from_secs(seconds)), text);
        }
    }
}
