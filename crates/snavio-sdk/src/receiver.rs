//! The loop of a consumer: it receives deliveries, runs the work, and acknowledges.
//!
//! The receiver acknowledges a delivery only after its work returned success. In every other case it releases
//! the delivery, or the lease ends by itself. After the maximum number of receives of the route, the gateway
//! makes the delivery a dead letter. So no error loses a delivery, and the work may run again. Use the module
//! `once` to get one effect.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use snavio_model::bounds;
use snavio_model::delivery::Receipt;
use snavio_model::delivery::processing::is_reference;
use snavio_model::name::QueueName;
use tokio::task::{JoinError, JoinSet};

use crate::{ApiError, Client, Delivery};

type BoxError = Box<dyn Error + Send + Sync>;

/// The largest number of deliveries in work at the same time: each holds a request and a body in memory.
const AT_ONCE_MAX: usize = 256;
/// Extensions per lease length. If one is lost, the next still comes in time.
const EXTENSIONS_PER_LEASE: u32 = 3;
/// The shortest lease. Leases are whole seconds.
const VISIBILITY_MIN: Duration = Duration::from_secs(EXTENSIONS_PER_LEASE as u64);
/// The number of times that a failed acknowledgement or release is repeated. After that the lease ends by
/// itself.
const SETTLE_FAILURES_MAX: u32 = 6;
/// The first and the longest pause while the gateway is unreachable.
const RECONNECT_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// The first and the longest delay of a delivery whose work failed.
const RELEASE_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// The success value of a consumer's work.
pub trait Done: Send + 'static {
    /// The id of the result in your system, for example the id of a journal entry. The receiver reports it
    /// with the acknowledgement, and the gateway keeps it if the route is `tracked`. A text that is not a
    /// valid reference (1 to 256 bytes on one line) is not reported.
    fn reference(&self) -> Option<&str>;
}

impl Done for () {
    fn reference(&self) -> Option<&str> {
        None
    }
}

/// The result of the effect is the reference if it is valid as one: short, and on one line. Any other result
/// stays in the consumer's database.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Done for crate::once::Once {
    fn reference(&self) -> Option<&str> {
        self.result()
    }
}

/// Receives deliveries from one queue and runs work for each.
#[derive(Clone)]
pub struct Receiver {
    client: Arc<Client>,
    queue: QueueName,
    at_once: usize,
    visibility: Duration,
}

impl Receiver {
    /// Creates a receiver for a queue of the client's service: at most 10 deliveries at the same time, with a
    /// visibility timeout of 30 seconds.
    pub fn new(client: Arc<Client>, queue: QueueName) -> Self {
        let (at_once, visibility) = (bounds::RECEIVE_MESSAGES_MAX, bounds::VISIBILITY_DEFAULT);
        Self { client, queue, at_once, visibility }
    }

    /// Sets how many deliveries are in work at the same time: 1 to 256.
    #[must_use]
    pub fn at_once(mut self, deliveries: usize) -> Self {
        self.at_once = deliveries.clamp(1, AT_ONCE_MAX);
        self
    }

    /// Sets the visibility timeout: 3 seconds to 12 hours. The receiver extends the lease for as long as the
    /// work runs. If this consumer dies, other consumers get its deliveries after this time.
    #[must_use]
    pub fn visibility(mut self, visibility: Duration) -> Self {
        self.visibility = visibility.clamp(VISIBILITY_MIN, bounds::VISIBILITY_MAX);
        self
    }

    /// Receives until `stop` completes, and then waits for the work in progress.
    ///
    /// `work` returns success when a delivery is done, with an optional reference ([`Done`]). On an error or
    /// a panic the receiver releases the delivery with a delay. The gateway gets the text of the error,
    /// without its causes, because causes may contain internal details. After a panic or an
    /// `OnceError::Unknown` the receiver reports the outcome as unknown.
    ///
    /// The receiver extends the lease for as long as the work runs, so work that may hang needs its own
    /// deadline. While the gateway is unreachable or asks the client to wait, the loop waits. The loop
    /// returns an error only if the gateway refuses the consumer for good: a wrong secret, a suspended
    /// tenant, or a queue of another service.
    pub async fn run<W, F, T, E>(&self, work: W, stop: impl Future<Output = ()>) -> Result<(), ApiError>
    where
        W: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Done,
        E: Into<BoxError> + Send + 'static,
    {
        let (work, mut under_way, mut failures) = (Arc::new(work), JoinSet::new(), 0);
        tokio::pin!(stop);
        let ended = loop {
            let received = tokio::select! {
                biased;
                () = &mut stop => break Ok(()),
                received = self.receive(&mut under_way) => received,
            };
            let pause = match received {
                // A gateway that shuts down returns at once without deliveries. The pause prevents a busy
                // loop.
                Ok(deliveries) if deliveries.is_empty() => {
                    failures = 0;
                    RECONNECT_PAUSES.0
                }
                Ok(deliveries) => {
                    failures = 0;
                    for delivery in deliveries {
                        under_way.spawn(self.clone().process(delivery, Arc::clone(&work)));
                    }
                    continue;
                }
                Err(error) if is_final(&error) => break Err(error),
                Err(error) => {
                    let pause = pause(RECONNECT_PAUSES, failures, random())
                        .max(error.retry_after().unwrap_or_default());
                    failures = failures.saturating_add(1);
                    tracing::warn!(queue = %self.queue, ?pause, error = &error as &dyn Error, "cannot receive deliveries");
                    pause
                }
            };
            tokio::select! {
                () = &mut stop => break Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
        };
        while under_way.join_next().await.is_some() {}
        ended
    }

    /// Waits for free capacity and receives as many deliveries as fit.
    async fn receive(&self, under_way: &mut JoinSet<()>) -> Result<Vec<Delivery>, ApiError> {
        while under_way.try_join_next().is_some() {}
        while under_way.len() >= self.at_once {
            under_way.join_next().await;
        }
        let max = (self.at_once - under_way.len()).min(bounds::RECEIVE_MESSAGES_MAX);
        self.client.receive(self.queue.as_str(), max, self.visibility, bounds::RECEIVE_WAIT_MAX).await
    }

    /// Runs the work of one delivery, and acknowledges or releases the delivery.
    async fn process<W, F, T, E>(self, delivery: Delivery, work: Arc<W>)
    where
        W: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Done,
        E: Into<BoxError> + Send + 'static,
    {
        let (receipts, attempt) = ([delivery.receipt()], delivery.attempt);
        // The work runs in its own task, so that a panic ends only that task. If this task is dropped, the
        // work is aborted.
        let mut running = JoinSet::new();
        running.spawn(async move { work(delivery).await.map_err(Into::into) });
        let ended = tokio::select! {
            ended = running.join_next() => outcome(ended),
            never = self.extend_lease(&receipts) => match never {},
        };
        let (queue, id) = (self.queue.as_str(), receipts[0].delivery_id);
        let settled = match ended {
            Ok(done) => {
                // The gateway would refuse any other text as a reference, and that must not prevent the
                // acknowledgement of finished work.
                let reference = done.reference().filter(|text| is_reference(text));
                persist(|| self.client.acknowledge_with(queue, receipts[0], reference, None)).await
            }
            Err(WorkError { error, is_unknown }) => {
                let delay = whole_seconds(pause(RELEASE_DELAYS, attempt.saturating_sub(1), random()));
                tracing::warn!(
                    queue, delivery = %id, attempt, ?delay, is_unknown, error = &*error as &dyn Error,
                    "the work failed; the delivery is released"
                );
                let error_text: String = error.to_string().chars().take(bounds::ERROR_CHARS_MAX).collect();
                persist(async || match is_unknown {
                    false => self.client.release(queue, &receipts, delay, Some(&error_text)).await,
                    true => self.client.release_unknown(queue, &receipts, delay, Some(&error_text)).await,
                })
                .await
            }
        };
        if let Err(error) = settled {
            let error = &error as &dyn Error;
            tracing::warn!(queue, delivery = %id, error, "cannot acknowledge or release; the gateway may deliver again");
        }
    }

    /// Extends the lease until the gateway says that this consumer no longer has it.
    async fn extend_lease(&self, receipts: &[Receipt]) -> Infallible {
        loop {
            tokio::time::sleep(self.visibility / EXTENSIONS_PER_LEASE).await;
            let extend = self.client.extend(self.queue.as_str(), receipts, self.visibility);
            // An extension without a response must leave time for the next one.
            let Ok(extended) = tokio::time::timeout(self.visibility / EXTENSIONS_PER_LEASE, extend).await
            else {
                continue;
            };
            match extended {
                // Another consumer has the delivery, or it is gone. The work goes on: it finds the claim of
                // the other consumer, or the other finds its claim.
                Ok(answer) if answer["results"][0]["outcome"] != "done" => break,
                Err(error) if is_final(&error) => break,
                // The call may have failed. There are further attempts before the lease ends.
                Ok(_) | Err(_) => {}
            }
        }
        std::future::pending().await
    }
}

/// An error of the work.
struct WorkError {
    error: BoxError,
    /// Whether the work may still be done (CLM-7).
    is_unknown: bool,
}

/// The result of the only task of a set. If the work panicked, it may have had its effect before.
fn outcome<T>(ended: Option<Result<Result<T, BoxError>, JoinError>>) -> Result<T, WorkError> {
    let (error, is_unknown) = match ended {
        Some(Ok(Ok(done))) => return Ok(done),
        Some(Ok(Err(error))) => {
            let is_unknown = is_unknown(&*error);
            (error, is_unknown)
        }
        Some(Err(error)) => (error.into(), true),
        None => ("the work was never started".into(), false),
    };
    Err(WorkError { error, is_unknown })
}

/// Whether an error or one of its causes says that the outcome is unknown.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
fn is_unknown(error: &(dyn Error + 'static)) -> bool {
    use crate::once::OnceError;
    let is_commit_unknown = matches!(error.downcast_ref(), Some(OnceError::Unknown(_)));
    is_commit_unknown || error.source().is_some_and(is_unknown)
}

/// Without a database no error says that the outcome is unknown.
#[cfg(not(any(feature = "sqlite", feature = "postgres")))]
fn is_unknown(_: &(dyn Error + 'static)) -> bool {
    false
}

/// Repeats a call while its error is retryable, at most [`SETTLE_FAILURES_MAX`] times. Gives up if the
/// gateway asks for a longer pause than the longest of [`RECONNECT_PAUSES`].
async fn persist<F: Future<Output = Result<Value, ApiError>>>(call: impl Fn() -> F) -> Result<(), ApiError> {
    let mut failures = 0;
    loop {
        let error = match call().await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let pause = pause(RECONNECT_PAUSES, failures, random()).max(error.retry_after().unwrap_or_default());
        if is_final(&error) || failures == SETTLE_FAILURES_MAX || pause > RECONNECT_PAUSES.1 {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
        failures += 1;
    }
}

/// Whether the gateway refused for good: the same call would get the same response.
fn is_final(error: &ApiError) -> bool {
    // 408 comes from a proxy that timed out.
    let is_refused = matches!(error, ApiError::Refused { status: 400..=407 | 409..=499, .. });
    is_refused && !error.is_retryable()
}

/// The pause after a number of failures. It doubles with every failure up to the longest, and is spread over
/// its second half, so that consumers that failed together do not return together.
fn pause((first, longest): (Duration, Duration), failures: u32, random: u32) -> Duration {
    let whole = first.saturating_mul(1 << failures.min(16)).min(longest);
    whole.mul_f64(0.5 + 0.5 * f64::from(random) / f64::from(u32::MAX))
}

fn whole_seconds(pause: Duration) -> Duration {
    Duration::from_secs(pause.as_secs() + u64::from(pause.subsec_nanos() > 0))
}

/// Takes the random low bits of a time-ordered id.
fn random() -> u32 {
    let id = uuid::Uuid::now_v7().into_bytes();
    u32::from_le_bytes([id[12], id[13], id[14], id[15]])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLM-10
    #[test]
    fn pauses_double_up_to_a_limit_with_jitter() {
        for (failures, whole_ms) in [(0, 100), (1, 200), (5, 3_200), (9, 30_000), (u32::MAX, 30_000)] {
            assert_eq!(pause(RECONNECT_PAUSES, failures, 0), Duration::from_millis(whole_ms / 2));
            assert_eq!(pause(RECONNECT_PAUSES, failures, u32::MAX), Duration::from_millis(whole_ms));
        }
        assert_eq!(whole_seconds(Duration::from_millis(500)), Duration::from_secs(1));
        assert_eq!(whole_seconds(Duration::from_secs(2)), Duration::from_secs(2));
        assert!((0..8).map(|_| random()).collect::<std::collections::HashSet<_>>().len() > 1);
    }
}
