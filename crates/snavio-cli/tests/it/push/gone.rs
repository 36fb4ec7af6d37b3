//! A receiver that is gone is left alone, whatever has become of what it was registered by (DLV-1, PIP-13).

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
async fn a_receiver_is_left_alone_though_its_grant_was_taken_back_and_its_owner_switches_it_on_again() {
    let (other, nobody) = (Processor::start().await, Reserved::new());
    let hooks = Hooks::to(&other).await;
    let foreign = json!({
        "tenants": [{ "name": "zeta" }],
        "services": [{ "name": "zeta/books" }],
        "grants": [{ "source": "zeta/books", "target": "acme/shop", "name": "order.paid" }],
        "subscriptions": [hook(&nobody.url(), &json!({ "target": "zeta/books", "queue": "books", "receives_max": 10 }))],
    });
    hooks.node.apply(&foreign).await;
    let sent = hooks.sends(1).await;
    eventually("it was called for in vain", async || {
        let queue = hooks.node.get("/v1/queues/books?tenant=zeta").await;
        (queue["delayed"] == 1).then_some(())
    })
    .await;
    let grant = "/v1/grants?source=zeta/books&target=acme/shop&name=order.paid";
    assert_eq!(hooks.operate(Method::DELETE, grant, None).await.0, 200);

    let receiver = Processor::on(nobody);
    receiver.answers([Reply::new(410, "gone")]);
    eventually("it is disabled", async || hooks.books().await["disabled"].is_object().then_some(())).await;
    let changes = hooks.changes().await;
    let [.., taken_back, disabled] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((&taken_back["kind"], &taken_back["after"]), (&json!("grant"), &Value::Null), "{taken_back}");
    assert_eq!(disabled["who"], "snavio (push)", "{disabled}");
    assert_eq!(receiver.asked().len(), 1);

    // A node that had not noticed yet would leave it alone for the pause of one that is gone.
    eventually("its runner has stopped", async || {
        let queue = hooks.node.get("/v1/queues/books?tenant=zeta").await;
        (queue["target"]["breaker"] != "open").then_some(())
    })
    .await;
    let enabled = Shell::at(&hooks.node).run(&format!("push enable {BOOKS} --why repaired"));
    assert_eq!(enabled.code, Some(0), "{enabled:?}");
    let asked = eventually("what waited is sent", async || {
        let asked = receiver.asked();
        (asked.len() == 2).then_some(asked)
    })
    .await;
    assert_eq!(asked[1].headers["webhook-id"], sent[0]);
    assert!(hooks.books().await["disabled"].is_null());
}
