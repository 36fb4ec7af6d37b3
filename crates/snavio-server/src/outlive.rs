//! Work that is finished even if nobody waits for it any more: a client that hangs up must not cancel a commit
//! under way, nor what is recorded after it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Runs in the task of whoever awaits it; dropped before its end, it goes on in a task of its own.
pub(crate) struct Outlive<F>(Option<Pin<Box<F>>>)
where
    F: Future<Output: Send> + Send + 'static;

impl<F: Future<Output: Send> + Send + 'static> Outlive<F> {
    pub(crate) fn new(work: F) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for Outlive<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // Taken out while it runs: what panics is not run again.
        let Some(mut work) = self.0.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.0 = Some(work);
        }
        polled
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Outlive<F> {
    fn drop(&mut self) {
        if let (Some(rest), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::{Notify, oneshot};

    use super::*;

    #[tokio::test]
    async fn what_is_dropped_half_way_goes_on_to_its_end() {
        let go_on = Arc::new(Notify::new());
        let (told, ended) = oneshot::channel();
        let waiting = Arc::clone(&go_on);
        let mut work = Outlive::new(async move {
            waiting.notified().await;
            told.send("ended").unwrap();
        });
        let first = std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut work).poll(context))).await;
        assert!(first.is_pending());
        drop(work);
        go_on.notify_one();
        assert_eq!(ended.await, Ok("ended"));
    }
}
