//! A node among those of its store: says every so often that it is there, goes by the store's time, and leaves when
//! others have brought the store to a layout that it does not know (ENG-3, ENG-7).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use snavio_model::time::Clock;
use snavio_store::NodeState;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::http::App;
use crate::node::PLATFORM_KEY_PIN;

/// How often a node is heard of.
const ANNOUNCING: Duration = Duration::from_secs(2);

pub(crate) struct Member {
    pub(crate) app: Arc<App>,
    pub(crate) address: SocketAddr,
    /// Told when the node cannot go on with its store.
    pub(crate) outdated: CancellationToken,
    /// Told when everything under way is finished. Until then it is heard of: others may wait for its leave.
    pub(crate) leaving: CancellationToken,
}

impl Member {
    /// Says that the node is there, until it leaves. What it is saying then is said to the end: words that come
    /// after its leave would bring it back.
    pub(crate) async fn keep_announcing(self) {
        let mut tick = tokio::time::interval(ANNOUNCING);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told_of_draining = false;
        loop {
            tokio::select! {
                () = self.leaving.cancelled() => return,
                () = self.app.draining.cancelled(), if !told_of_draining => {
                    told_of_draining = true;
                    self.announce().await;
                }
                _ = tick.tick() => self.announce().await,
            }
        }
    }

    /// Goes by the platform key that is in force, where it knows two (REG-13).
    async fn follow_platform_key(&self) {
        if self.app.platform.known().len() > 1
            && let Ok(Some(pinned)) = self.app.gate.store().pinned(PLATFORM_KEY_PIN).await
        {
            self.app.platform.follow(&pinned);
        }
    }

    /// Says once that it is there, and hears what the store has to say.
    pub(crate) async fn announce(&self) {
        let gate = &self.app.gate;
        let state = NodeState {
            id: self.app.node.clone(),
            started_at: self.app.started_at,
            now: self.app.clock.now(),
            address: self.address.to_string(),
            software: env!("CARGO_PKG_VERSION").to_owned(),
            registry_version: gate.registry().version(),
            waiting: gate.waiting() as u64,
            draining: self.app.is_draining(),
        };
        match gate.store().announce(&state).await {
            Ok(heard) => {
                if let Some(now) = heard.now {
                    self.app.clock.follow(now);
                    gate.hold_sweeps(self.app.clock.is_away_from_wall());
                }
                self.follow_platform_key().await;
                if let Some(why) = heard.outdated
                    && !self.outdated.is_cancelled()
                {
                    tracing::error!(why, "this node cannot go on with its store, and leaves");
                    self.outdated.cancel();
                }
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the store was not told that this node is here"
                );
            }
        }
    }
}
