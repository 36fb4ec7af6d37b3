//! Waiting for what must come about: asked again and again until it has, or until the deadline.

use std::time::Duration;

/// How long anything may take that takes moments on a quiet machine.
const DEADLINE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// Asks until there is an answer.
pub(crate) async fn eventually<T>(what: &str, ask: impl AsyncFnMut() -> Option<T>) -> T {
    within(DEADLINE, what, ask).await
}

/// Asks until there is an answer, for what takes its time anywhere.
pub(crate) async fn within<T>(deadline: Duration, what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(deadline, asking).await.unwrap_or_else(|_| panic!("never came about: {what}"))
}

/// Asks until there is an answer, keeping the thread: for processes and files, which nobody waits for otherwise.
#[expect(clippy::disallowed_methods, reason = "a test waits by the machine's clock")]
pub(crate) fn poll<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + DEADLINE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(std::time::Instant::now() < deadline, "never came about: {what}");
        std::thread::sleep(PAUSE);
    }
}
