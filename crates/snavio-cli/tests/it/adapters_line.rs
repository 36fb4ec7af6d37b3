//! The `adapters` commands, adapters in registry files, and event ids derived from content (MSG-7).

use serde_json::{Value, json};

use crate::events::Shop;
use crate::hooks::python_id;
use crate::shell::Shell;
use crate::wire::{Answered, http};

/// MSG-7, REG-1
#[tokio::test]
async fn adapter_is_put_shown_listed_and_removed() {
    let shop = Shop::start().await;
    let shell = Shell::at(&shop.node);
    shell.write("one.secret", "the first secret\n");
    shell.write("two.secret", "the second secret");
    let put = "adapters put bot --service acme/shop --preset telegram --event-type order.paid";
    let without = shell.run(put);
    assert!(without.code == Some(1) && without.err.contains("an adapter has 1 to 4 secrets"), "{without:?}");
    let made = shell.run(&format!("{put} --secret-file one.secret --secret-file two.secret"));
    assert!(made.code == Some(0) && made.out.contains("/v1/hooks/acme/bot"), "{made:?}");
    assert!(!made.out.contains("first secret") && !made.out.contains("secrets"), "{made:?}");
    for secret in ["the first secret", "the second secret"] {
        let request = http(&shop.node).post(format!("{}/v1/hooks/acme/bot", shop.node.url()));
        let request = request.header("x-telegram-bot-api-secret-token", secret).body(r#"{"update_id":7}"#);
        assert!(Answered::to(request).await.status < 300, "{secret}");
    }
    assert_eq!(shop.delivered().await.len(), 1);

    let file = r#"{ "source": "ci", "event_type": "order.paid", "external_id": [{ "header": "X-Build" }],
        "verification": { "scheme": "hmac", "header": "X-Signature", "encoding": "base64" } }"#;
    shell.write("ci.json", file);
    let made = shell
        .run("adapters put ci --service acme/shop --file ci.json --secret-file one.secret --output json");
    assert_eq!((made.code, &made.json()["id"]), (Some(0), &json!("derived")), "{made:?}");
    let listed = shell.run("adapters list --output json").json();
    let names: Vec<_> =
        listed.as_array().unwrap().iter().map(|adapter| adapter["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["bot", "ci"]);
    assert_eq!(shell.run("get adapters --output json").json(), listed);
    let shown = shell.run("adapters show acme/bot --output json").json();
    assert_eq!(shown["verification"]["header"], "X-Telegram-Bot-Api-Secret-Token");
    assert_eq!(shell.run("adapters remove acme/bot --why over").code, Some(0));
    assert_eq!(shell.run("adapters show acme/bot").code, Some(1));
    assert_eq!(shell.run("adapters show bot").code, Some(2), "the tenant is missing");
}

/// The step of an apply that concerns the adapter `acme/hub`.
fn hub_step(answer: &Value) -> Option<&Value> {
    let mut changes = answer["changes"].as_array().unwrap().iter();
    let adapter = changes.find(|change| change["kind"] == "adapter" && change["name"] == "acme/hub");
    adapter.map(|change| &change["step"])
}

/// MSG-7, REG-4
#[tokio::test]
async fn apply_prunes_adapters_the_file_lacks() {
    let shop = Shop::start().await;
    let shell = Shell::at(&shop.node);
    let apply = |adapters: &str| {
        let registry = format!(
            "tenants: [{{ name: acme }}]\nservices: [{{ name: acme/shop }}, {{ name: acme/ledger }}]\n\
            event_types: [{{ owner: acme/shop, name: order.paid }}]\nadapters:\n{adapters}"
        );
        shell.write("registry.yaml", &registry);
        shell.run("apply -f registry.yaml --prune --output json").json()
    };
    let hub = "  - { name: hub, preset: github, service: acme/shop, event_type: order.paid, secrets: [a secret of theirs] }\n";
    assert_eq!(hub_step(&apply(hub)), Some(&json!("add")));
    assert_eq!(apply(hub)["changes"], json!([]), "the same file changes nothing");
    let without = hub.replace(", secrets: [a secret of theirs]", "");
    assert_eq!(apply(&without)["changes"], json!([]), "a file without secrets keeps the registered ones");
    let suffix = without.replace(" }", ", event_type_suffix: { header: X-GitHub-Event } }");
    let changed = apply(&suffix);
    assert_eq!(hub_step(&changed), Some(&json!("change")));
    assert!(!changed.to_string().contains("secrets"), "{changed}");
    assert_eq!(hub_step(&apply("  []\n")), Some(&json!("remove")));
}

/// MSG-7
#[tokio::test]
async fn external_id_derives_the_same_event_id_as_python() {
    let shop = Shop::start().await;
    let shell = Shell::at(&shop.node);
    let credentials = shell.write("shop.json", &serde_json::to_string(&shop.shop).unwrap());
    let emit = |external_id: &str, data: &str| {
        let words = ["emit", "-c", &credentials, "--event", "order.paid", "--external-id", external_id];
        shell.run_words(&[&words[..], &[data, "--output", "json"]].concat())
    };
    let cases = [
        ("order-7", r#"{"b":[1,true,null,{"d":{},"c":[]}],"a":{"z":2,"y":"x"}}"#),
        ("ordre n\u{b0} 7:8", "{\"t\u{e9}\":\"\u{e9}\u{1f600}\u{7f}\",\"\u{1f600}\":1,\"\u{fb01}\":2}"),
        (
            "n",
            r#"[0,-0,-0.0,1.0,10.50,1e3,1E-7,0.0001,1e16,123456789012345678901234567890,1.7976931348623157e308,5e-324]"#,
        ),
        ("e", r#"{"a":"\"\\\/\b\f\n\r\t\u0001\u00e9\ud83d\ude00"," b ":""}"#),
    ];
    for (external_id, data) in cases {
        let sent = emit(external_id, data);
        assert_eq!(sent.code, Some(0), "{sent:?}");
        assert_eq!(sent.json()["id"], python_id("cli", external_id, data), "{data}");
        let again = emit(external_id, data);
        assert_eq!(again.json()["duplicate"], true, "{again:?}");
    }
    assert_eq!(shop.delivered().await.len(), cases.len());
    assert_eq!(emit("x", "{").code, Some(2), "the data is not JSON");
    let both = format!("emit -c {credentials} --event order.paid --external-id x --id y 1");
    assert_eq!(shell.run(&both).code, Some(2));
}
