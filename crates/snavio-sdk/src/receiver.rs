//! The loop of a consumer: receives, has the work done, acknowledges.
//!
//! A delivery is acknowledged only after its work has said that it is done. Whatever else happens, it is given back, or
//! comes back by itself when its lease ends; after as many receives as its route allows, the gateway keeps it as a
//! dead letter. So no error loses a delivery, and work may run again: module `once` is for that.

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

/// Deliveries that may be worked on at the same time, at most: each has a request and a body in memory.
const AT_ONCE_MAX: usize = 256;
/// A lease is extended when a third of it is over, so that one that is lost on the way does not matter.
const EXTENSIONS_PER_LEASE: u32 = 3;
/// The shortest lease: leases are whole seconds.
const VISIBILITY_MIN: Duration = Duration::from_secs(EXTENSIONS_PER_LEASE as u64);
/// How often an acknowledgement or a release may fail and is tried again. After that the lease ends by itself.
const SETTLE_FAILURES_MAX: u32 = 6;
/// The first pause when the gateway is away, and the longest.
const AWAY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// The first delay of a delivery whose work failed, and the longest.
const RELEASED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// What work may return once it is done.
pub trait Done: Send + 'static {
    /// What the work is known by from then on, for example a posting reference. It is reported back with the
    /// acknowledgement, and the gateway keeps it where the route is `tracked`. What cannot be one (1 to 256 bytes on one
    /// line) is left out.
    fn reference(&self) -> Option<&str>;
}

impl Done for () {
    fn reference(&self) -> Option<&str> {
        None
    }
}

/// Its result is the reference, where it can be one: short, and on one line. Any other stays in the consumer's database.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Done for crate::once::Once {
    fn reference(&self) -> Option<&str> {
        self.result()
    }
}

/// Receives from one queue for as long as it runs.
#[derive(Clone)]
pub struct Receiver {
    client: Arc<Client>,
    queue: QueueName,
    at_once: usize,
    visibility: Duration,
}

impl Receiver {
    /// For a queue of the client's service: 10 deliveries at once, leased for 30 seconds at a time.
    pub fn new(client: Arc<Client>, queue: QueueName) -> Self {
        let (at_once, visibility) = (bounds::RECEIVE_MESSAGES_MAX, bounds::VISIBILITY_DEFAULT);
        Self { client, queue, at_once, visibility }
    }

    /// The same, working on so many deliveries at once: 1 to 256.
    #[must_use]
    pub fn at_once(mut self, deliveries: usize) -> Self {
        self.at_once = deliveries.clamp(1, AT_ONCE_MAX);
        self
    }

    /// The same, leasing for so long at a time: 3 seconds to 12 hours. A lease is extended for as long as its work
    /// runs; this is how long others wait for the deliveries of a consumer that died.
    #[must_use]
    pub fn visibility(mut self, visibility: Duration) -> Self {
        self.visibility = visibility.clamp(VISIBILITY_MIN, bounds::VISIBILITY_MAX);
        self
    }

    /// Receives until `stop` ends, and then waits for what is under way.
    ///
    /// `work` says when a delivery is done, and by which reference ([`Done`]); an error or a panic gives the delivery back
    /// for a while, with the error's own words but not its causes, which may be nobody else's business. After a panic, or an
    /// `OnceError::Unknown`, the gateway is told that nobody knows whether it is done. The lease is
    /// extended for as long as the work runs, so work that may hang needs a deadline of its own. While the gateway
    /// cannot be reached or asks to come back later, the loop waits. It ends by itself only when the gateway refuses
    /// the consumer for good: a wrong secret, a suspended tenant, a queue that is not its own.
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
                // A gateway that is about to stop does not wait for deliveries, and need not be asked at once again.
                Ok(deliveries) if deliveries.is_empty() => {
                    failures = 0;
                    AWAY.0
                }
                Ok(deliveries) => {
                    failures = 0;
                    for delivery in deliveries {
                        under_way.spawn(self.clone().attend(delivery, Arc::clone(&work)));
                    }
                    continue;
                }
                Err(error) if is_final(&error) => break Err(error),
                Err(error) => {
                    let pause = pause(AWAY, failures, random()).max(error.retry_after().unwrap_or_default());
                    failures = failures.saturating_add(1);
                    tracing::warn!(queue = %self.queue, ?pause, error = &error as &dyn Error, "cannot receive");
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

    /// Receives as many as there is room for, once there is room.
    async fn receive(&self, under_way: &mut JoinSet<()>) -> Result<Vec<Delivery>, ApiError> {
        while under_way.try_join_next().is_some() {}
        while under_way.len() >= self.at_once {
            under_way.join_next().await;
        }
        let max = (self.at_once - under_way.len()).min(bounds::RECEIVE_MESSAGES_MAX);
        self.client.receive(self.queue.as_str(), max, self.visibility, bounds::RECEIVE_WAIT_MAX).await
    }

    /// Has the work of one delivery done, and ends or gives back the delivery.
    async fn attend<W, F, T, E>(self, delivery: Delivery, work: Arc<W>)
    where
        W: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Done,
        E: Into<BoxError> + Send + 'static,
    {
        let (receipts, attempt) = ([delivery.receipt()], delivery.attempt);
        // A task of its own, so that a panic ends there; it ends with this one.
        let mut running = JoinSet::new();
        running.spawn(async move { work(delivery).await.map_err(Into::into) });
        let ended = tokio::select! {
            ended = running.join_next() => outcome(ended),
            never = self.keep(&receipts) => match never {},
        };
        let (queue, id) = (self.queue.as_str(), receipts[0].delivery_id);
        let settled = match ended {
            Ok(done) => {
                // Anything else is a result of the consumer's own, which the gateway would refuse as a reference: that must
                // not keep done work from being told.
                let reference = done.reference().filter(|it| is_reference(it));
                persist(|| self.client.acknowledge_with(queue, receipts[0], reference, None)).await
            }
            Err(Trouble { error, is_unknown }) => {
                let delay = whole_seconds(pause(RELEASED, attempt.saturating_sub(1), random()));
                tracing::warn!(
                    queue, delivery = %id, attempt, ?delay, is_unknown, error = &*error as &dyn Error,
                    "the work failed, and the delivery is given back"
                );
                let said: String = error.to_string().chars().take(bounds::ERROR_CHARS_MAX).collect();
                persist(async || match is_unknown {
                    false => self.client.release(queue, &receipts, delay, Some(&said)).await,
                    true => self.client.release_unknown(queue, &receipts, delay, Some(&said)).await,
                })
                .await
            }
        };
        if let Err(error) = settled {
            let error = &error as &dyn Error;
            tracing::warn!(queue, delivery = %id, error, "the gateway did not take its end, and may deliver it again");
        }
    }

    /// Extends the lease for as long as it is this consumer's.
    async fn keep(&self, receipts: &[Receipt]) -> Infallible {
        loop {
            tokio::time::sleep(self.visibility / EXTENSIONS_PER_LEASE).await;
            let extend = self.client.extend(self.queue.as_str(), receipts, self.visibility);
            // One that gets no answer must leave time for the next.
            let Ok(extended) = tokio::time::timeout(self.visibility / EXTENSIONS_PER_LEASE, extend).await
            else {
                continue;
            };
            match extended {
                // Somebody else's by now, or gone: the work goes on, and finds a claim or is found by one.
                Ok(answer) if answer["results"][0]["outcome"] != "done" => break,
                Err(error) if is_final(&error) => break,
                // Not reached, perhaps: there are further attempts before the lease ends.
                Ok(_) | Err(_) => {}
            }
        }
        std::future::pending().await
    }
}

/// Why work is not done, or may be.
struct Trouble {
    error: BoxError,
    /// Whether it may be done all the same (CLM-7).
    is_unknown: bool,
}

/// How the one task of a set ended. Work that panicked may have had its effect before.
fn outcome<T>(ended: Option<Result<Result<T, BoxError>, JoinError>>) -> Result<T, Trouble> {
    let (error, is_unknown) = match ended {
        Some(Ok(Ok(done))) => return Ok(done),
        Some(Ok(Err(error))) => {
            let is_unknown = is_unknown(&*error);
            (error, is_unknown)
        }
        Some(Err(error)) => (error.into(), true),
        None => ("the work was never begun".into(), false),
    };
    Err(Trouble { error, is_unknown })
}

/// Whether an error, or what it comes from, says that nobody knows if the effect is there.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
fn is_unknown(error: &(dyn Error + 'static)) -> bool {
    use crate::once::OnceError;
    let says_so = matches!(error.downcast_ref(), Some(OnceError::Unknown(_)));
    says_so || error.source().is_some_and(is_unknown)
}

/// None says so without a database.
#[cfg(not(any(feature = "sqlite", feature = "postgres")))]
fn is_unknown(_: &(dyn Error + 'static)) -> bool {
    false
}

/// Calls again while the failure may pass, a bounded number of times, and not past the longest pause.
async fn persist<F: Future<Output = Result<Value, ApiError>>>(call: impl Fn() -> F) -> Result<(), ApiError> {
    let mut failures = 0;
    loop {
        let error = match call().await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let pause = pause(AWAY, failures, random()).max(error.retry_after().unwrap_or_default());
        if is_final(&error) || failures == SETTLE_FAILURES_MAX || pause > AWAY.1 {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
        failures += 1;
    }
}

/// Whether the gateway understood and said no: the same call would get the same answer.
fn is_final(error: &ApiError) -> bool {
    // 408 comes from something in between that lost patience.
    let said_no = matches!(error, ApiError::Refused { status: 400..=407 | 409..=499, .. });
    said_no && !error.is_retryable()
}

/// Doubles with every failure up to the longest, and is spread over its second half, so that consumers that failed
/// together do not come back together.
fn pause((first, longest): (Duration, Duration), failures: u32, random: u32) -> Duration {
    let whole = first.saturating_mul(1 << failures.min(16)).min(longest);
    whole.mul_f64(0.5 + 0.5 * f64::from(random) / f64::from(u32::MAX))
}

fn whole_seconds(pause: Duration) -> Duration {
    Duration::from_secs(pause.as_secs() + u64::from(pause.subsec_nanos() > 0))
}

/// The low bits of a time-ordered id are random.
fn random() -> u32 {
    let id = uuid::Uuid::now_v7().into_bytes();
    u32::from_le_bytes([id[12], id[13], id[14], id[15]])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLM-10
    #[test]
    fn pauses_double_up_to_the_longest_and_are_spread() {
        for (failures, whole_ms) in [(0, 100), (1, 200), (5, 3_200), (9, 30_000), (u32::MAX, 30_000)] {
            assert_eq!(pause(AWAY, failures, 0), Duration::from_millis(whole_ms / 2));
            assert_eq!(pause(AWAY, failures, u32::MAX), Duration::from_millis(whole_ms));
        }
        assert_eq!(whole_seconds(Duration::from_millis(500)), Duration::from_secs(1));
        assert_eq!(whole_seconds(Duration::from_secs(2)), Duration::from_secs(2));
        assert!((0..8).map(|_| random()).collect::<std::collections::HashSet<_>>().len() > 1);
    }
}
