//! Waiting for what must come about: asked again and again until it has, or until the deadline.

use std::time::Duration;

/// How long anything may take that takes moments on a quiet machine.
const DEADLINE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// Asks until there is an answer.
pub(crate) async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(DEADLINE, asking).await.unwrap_or_else(|_| panic!("never came about: {what}"))
}
