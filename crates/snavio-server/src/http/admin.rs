//! The admin listener's endpoints: the same figures as elsewhere, here without a token.

use axum::Router;
use axum::routing::{any, get};

use super::{Shared, health, method_not_allowed, metrics, not_found};

/// All endpoints of the admin listener.
pub(crate) fn admin_router(app: Shared) -> Router {
    Router::new()
        .route("/metrics", get(metrics::open))
        .route("/v1/status", get(health::open_status))
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .fallback(any(not_found))
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(app)
}
