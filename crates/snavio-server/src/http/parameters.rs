//! Parameters in paths and queries: axum's extractors, with problems as answers (MSG-12).

use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::de::DeserializeOwned;
use snavio_model::refusal::{Reason, Refusal};

use super::{Problem, Shared};

/// The parts of the path that vary.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Shared> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, Problem> {
        match axum::extract::Path::from_request_parts(parts, app).await {
            Ok(axum::extract::Path(read)) => Ok(Self(read)),
            Err(_) => Err(Refusal::new(Reason::InvalidRequest, "a part of the path cannot be read").into()),
        }
    }
}

/// The query.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Shared> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, Problem> {
        match axum::extract::Query::from_request_parts(parts, app).await {
            Ok(axum::extract::Query(read)) => Ok(Self(read)),
            Err(rejection) => Err(Refusal::new(Reason::InvalidRequest, rejection.body_text()).into()),
        }
    }
}
