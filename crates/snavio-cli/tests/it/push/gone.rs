//! Calls to a receiver that has answered 410 stop, also after a change of the entries behind its subscription
//! (DLV-1, PIP-13).

use reqwest::Method;
use serde_json::{Value, json};

use super::{Hooks, hook};
use crate::patience::eventually;
use crate::processor::{Processor, Reply, Reserved};
use crate::shell::Shell;

const BOOKS: &str = "zeta/books:acme/shop:order.paid";

impl Hooks {
    async fn books(&self) -> Value {
        self.node.get("/v1/subscriptions/zeta/books/acme/shop/order.paid").await
    }

    async fn changes(&self) -> Vec<Value> {
        let changes = self.node.get("/v1/registry/changes?since=0&limit=1000").await;
        changes["items"].as_array().unwrap().clone()
    }
}

/// DLV-1, PIP-13
#[tokio::test]
async fn gone_receiver_is_disabled_despite_revoked_grant_until_enabled() {
    let (other, reserved) = (Processor::start().await, Reserved::new());
    let hooks = Hooks::to(&other).await;
    let foreign = json!({
        "tenants": [{ "name": "zeta" }],
        "services": [{ "name": "zeta/books" }],
        "grants": [{ "source": "zeta/books", "target": "acme/shop", "name": "order.paid" }],
        "subscriptions": [hook(&reserved.url(), &json!({ "target": "zeta/books", "queue": "books", "receives_max": 10 }))],
    });
    hooks.node.apply(&foreign).await;
    let sent = hooks.sends(1).await;
    eventually("the first call has failed", async || {
        let queue = hooks.node.get("/v1/queues/books?tenant=zeta").await;
        (queue["delayed"] == 1).then_some(())
    })
    .await;
    let grant = "/v1/grants?source=zeta/books&target=acme/shop&name=order.paid";
    assert_eq!(hooks.call_as_operator(Method::DELETE, grant, None).await.0, 200);

    let receiver = Processor::on(reserved);
    receiver.answers([Reply::new(410, "gone")]);
    eventually("the subscription is disabled", async || {
        hooks.books().await["disabled"].is_object().then_some(())
    })
    .await;
    let changes = hooks.changes().await;
    let [.., revocation, disabled] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((&revocation["kind"], &revocation["after"]), (&json!("grant"), &Value::Null), "{revocation}");
    assert_eq!(disabled["who"], "snavio (push)", "{disabled}");
    assert_eq!(receiver.asked().len(), 1);

    // A runner that has not seen the change yet would pause by its open circuit breaker.
    eventually("the runner of the queue has stopped", async || {
        let queue = hooks.node.get("/v1/queues/books?tenant=zeta").await;
        (queue["target"]["breaker"] != "open").then_some(())
    })
    .await;
    let enabled = Shell::at(&hooks.node).run(&format!("push enable {BOOKS} --why repaired"));
    assert_eq!(enabled.code, Some(0), "{enabled:?}");
    let requests = eventually("the waiting delivery is sent", async || {
        let requests = receiver.asked();
        (requests.len() == 2).then_some(requests)
    })
    .await;
    assert_eq!(requests[1].headers["webhook-id"], sent[0]);
    assert!(hooks.books().await["disabled"].is_null());
}
