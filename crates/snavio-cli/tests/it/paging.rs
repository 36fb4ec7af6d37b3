//! Lists are paged by cursor, and every entry is on exactly one page.

use reqwest::Method;
use serde_json::{Value, json};

use crate::node::{Node, verdict};

async fn pages(node: &Node, path: &str) -> Vec<Vec<Value>> {
    let mut pages = Vec::new();
    let mut after = String::new();
    loop {
        let page = node.operator().call(Method::GET, &format!("{path}{after}"), None).await.unwrap();
        pages.push(page["items"].as_array().unwrap().clone());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", next.replace(' ', "%20").replace('>', "%3E")),
            None => return pages,
        }
    }
}

/// REG-1
#[tokio::test]
async fn pages_miss_and_repeat_no_entry() {
    let node = Node::start();
    let tenants: Vec<_> = (0..25).map(|n| json!({ "name": format!("t{n:02}") })).collect();
    let services: Vec<_> = (0..25).map(|n| json!({ "name": format!("t{n:02}/s") })).collect();
    let grants: Vec<_> =
        (0..25).map(|n| json!({ "source": format!("t{n:02}/s"), "target": "t00/s", "name": "go" })).collect();
    node.apply(&json!({ "tenants": tenants, "services": services, "grants": grants })).await;

    let pages_of_tenants = pages(&node, "/v1/tenants?limit=10").await;
    assert_eq!(pages_of_tenants.iter().map(Vec::len).collect::<Vec<_>>(), [10, 10, 5]);
    let names: Vec<_> = pages_of_tenants.concat().iter().map(|tenant| tenant["name"].clone()).collect();
    assert_eq!(names, tenants.iter().map(|tenant| tenant["name"].clone()).collect::<Vec<_>>());
    assert_eq!(pages(&node, "/v1/grants?limit=25").await.len(), 1, "a full page may be the last");
    assert_eq!(pages(&node, "/v1/registry?limit=7").await.concat().len(), 25 * 5);
    assert_eq!(pages(&node, "/v1/registry?kind=grant&limit=7").await.concat().len(), 25);
    for limit in ["0", "1001", "-1", "many"] {
        let path = format!("/v1/tenants?limit={limit}");
        assert_eq!(verdict(node.operator().send(Method::GET, &path, None, "").await).0, 400, "{limit}");
    }
}
