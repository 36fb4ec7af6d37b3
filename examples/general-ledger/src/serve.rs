//! The ledger as an HTTP processor: `POST /journal-entries`.
//!
//! | answer | means | the gateway then |
//! | --- | --- | --- |
//! | 201 | posted, now or before: the same bytes each time | is done |
//! | 400, 409, 422 | never will be | does not ask again |
//! | 503 | the books are locked | asks again, after `Retry-After` |
//! | 500 | something is broken | asks again |

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

use crate::entry::{Entry, Unfit};
use crate::ledger;
use crate::message::Message;

struct Desk {
    database: Database,
    slow: Duration,
}

/// Serves until it is told to stop.
pub(crate) async fn serve(listen: SocketAddr, books: Connection, slow: Duration) -> Result<(), BoxError> {
    let desk = Arc::new(Desk { database: Database::over(books), slow });
    let router = Router::new().route("/journal-entries", post(post_entry)).with_state(desk);
    let listener = TcpListener::bind(listen).await?;
    let mut out = std::io::stdout();
    writeln!(out, "general-ledger is serving http://{}", listener.local_addr()?)?;
    out.flush()?;
    let told_to_stop = async { drop(tokio::signal::ctrl_c().await) };
    Ok(axum::serve(listener, router).with_graceful_shutdown(told_to_stop).await?)
}

/// Why there is no entry.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("send a command message or an event, with its id as Idempotency-Key")]
    Message,
    #[error(transparent)]
    Entry(#[from] Unfit),
    #[error(transparent)]
    Ledger(#[from] OnceError),
}

async fn post_entry(State(desk): State<Arc<Desk>>, headers: HeaderMap, body: Bytes) -> Response {
    match attempt(&desk, &headers, body).await {
        Ok(answer) => (StatusCode::CREATED, [(CONTENT_TYPE, "application/json")], answer).into_response(),
        Err(refused) => refused.into_response(),
    }
}

async fn attempt(desk: &Desk, headers: &HeaderMap, body: Bytes) -> Result<String, Refused> {
    let key = headers.get("idempotency-key").and_then(|it| it.to_str().ok()).map(str::to_owned);
    let work = move |books: &mut Connection| {
        let message = Message::read(&body).filter(|message| Some(&message.id) == key.as_ref());
        let Some(message) = message else {
            return Ok(Err(Refused::Message));
        };
        match Entry::read(message.payload) {
            Ok(entry) => ledger::post_once(books, &message, &entry).map(Ok),
            Err(unfit) => Ok(Err(unfit.into())),
        }
    };
    let answer = desk.database.run(work).await??;
    tokio::time::sleep(desk.slow).await;
    Ok(answer)
}

impl IntoResponse for Refused {
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
