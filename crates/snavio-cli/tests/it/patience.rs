//! Polling: a test asks again until a condition holds or the deadline passes.

use std::time::Duration;

/// The longest time for a condition that holds within moments on a quiet machine.
const DEADLINE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// Asks until there is an answer; panics at the deadline.
pub(crate) async fn eventually<T>(condition: &str, ask: impl AsyncFnMut() -> Option<T>) -> T {
    within(DEADLINE, condition, ask).await
}

/// Asks until there is an answer, with a deadline for work that takes long on any machine.
pub(crate) async fn within<T>(
    deadline: Duration,
    condition: &str,
    mut ask: impl AsyncFnMut() -> Option<T>,
) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(deadline, asking).await.unwrap_or_else(|_| panic!("never came about: {condition}"))
}

/// Asks until there is an answer and blocks the thread: for processes and files, which have no async wait.
#[expect(clippy::disallowed_methods, reason = "a test waits by the machine's clock")]
pub(crate) fn poll<T>(condition: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + DEADLINE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(std::time::Instant::now() < deadline, "never came about: {condition}");
        std::thread::sleep(PAUSE);
    }
}
