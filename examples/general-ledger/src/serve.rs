//! The ledger as an HTTP processor: `POST /journal-entries`.
//!
//! | response | meaning | the gateway |
//! | --- | --- | --- |
//! | 201 | posted, now or before: the same bytes each time | is done |
//! | 400, 409, 422 | invalid for good | does not retry |
//! | 503 | the database is locked | retries after `Retry-After` |
//! | 500 | the ledger failed | retries |

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::json;
use snavio_sdk::once::{BoxError, OnceError};
use snavio_sdk::sqlite::Database;
use snavio_sdk::sqlite::rusqlite::Connection;
use tokio::net::TcpListener;

use crate::entry::{Entry, InvalidEntry};
use crate::ledger;
use crate::message::Message;

struct Service {
    database: Database,
    slow: Duration,
}

/// Serves until the process gets an interrupt.
pub(crate) async fn serve(listen: SocketAddr, books: Connection, slow: Duration) -> Result<(), BoxError> {
    let service = Arc::new(Service { database: Database::over(books), slow });
    let router = Router::new().route("/journal-entries", post(post_entry)).with_state(service);
    let listener = TcpListener::bind(listen).await?;
    let mut out = std::io::stdout();
    writeln!(out, "general-ledger is serving http://{}", listener.local_addr()?)?;
    out.flush()?;
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    Ok(axum::serve(listener, router).with_graceful_shutdown(stop).await?)
}

/// Why a request posted no entry.
#[derive(Debug, thiserror::Error)]
enum PostError {
    #[error("send a command message or an event, with its id as Idempotency-Key")]
    Message,
    #[error(transparent)]
    Entry(#[from] InvalidEntry),
    #[error(transparent)]
    Ledger(#[from] OnceError),
}

async fn post_entry(State(service): State<Arc<Service>>, headers: HeaderMap, body: Bytes) -> Response {
    match post_message(&service, &headers, body).await {
        Ok(answer) => (StatusCode::CREATED, [(CONTENT_TYPE, "application/json")], answer).into_response(),
        Err(refused) => refused.into_response(),
    }
}

async fn post_message(service: &Service, headers: &HeaderMap, body: Bytes) -> Result<String, PostError> {
    let key = headers.get("idempotency-key").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let work = move |books: &mut Connection| {
        let message = Message::read(&body).filter(|message| Some(&message.id) == key.as_ref());
        let Some(message) = message else {
            return Ok(Err(PostError::Message));
        };
        match Entry::read(message.payload) {
            Ok(entry) => ledger::post_once(books, &message, &entry).map(Ok),
            Err(unfit) => Ok(Err(unfit.into())),
        }
    };
    let answer = service.database.run(work).await??;
    tokio::time::sleep(service.slow).await;
    Ok(answer)
}

impl IntoResponse for PostError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Message => StatusCode::BAD_REQUEST,
            Self::Entry(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Ledger(OnceError::OtherContent) => StatusCode::CONFLICT,
            Self::Ledger(OnceError::Busy(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Ledger(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status.is_server_error() {
            tracing::warn!(error = &self as &dyn std::error::Error, "not posted");
        }
        let wait = (status == StatusCode::SERVICE_UNAVAILABLE).then_some([(RETRY_AFTER, "1")]);
        (status, wait, axum::Json(json!({ "error": self.to_string() }))).into_response()
    }
}
