//! Limits: fair queueing between tenants, throttling of senders.

pub mod fair;
pub mod throttle;
