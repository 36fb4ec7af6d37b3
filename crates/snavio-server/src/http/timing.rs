//! How long requests take, by the route they matched and not by the path they asked for: the number of routes is
//! fixed, that of paths is the clients' choice.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use metrics::{Histogram, histogram};
use tokio::time::Instant;

/// A histogram for each route, looked up once.
pub(super) type Timings = Arc<HashMap<String, Histogram>>;

/// Histograms for these routes.
pub(super) fn timings<'a>(routes: impl Iterator<Item = &'a String>) -> Timings {
    let of = |route: &String| histogram!("snavio_http_request_seconds", "route" => route.clone());
    Arc::new(routes.map(|route| (route.clone(), of(route))).collect())
}

/// Measures until the head of the answer; what a stream sends afterwards is its own affair.
pub(super) async fn measure(State(timings): State<Timings>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let timing = route.and_then(|route| timings.get(route.as_str())).cloned();
    let start = Instant::now();
    let response = next.run(request).await;
    if let Some(timing) = timing {
        timing.record(start.elapsed());
    }
    response
}
