//! Events: the store keeps the members that an event has and a command has not.

use std::sync::Arc;

use snavio_model::id::Serial;
use snavio_model::message::MessageKind;

use super::samples::{at, event_intake, intake, notify, receive, settle};
use crate::Store;

/// MSG-5, MSG-10: the store delivers, reads back and reports an event as it was sent, and a command beside it
/// as a command.
pub async fn an_event_is_kept_as_it_came(store: &Arc<dyn Store>) {
    let batch = vec![event_intake("a", &notify(), at(0)), intake("b", &notify(), at(0))];
    let sent: Vec<_> = batch.iter().map(|intake| intake.message.clone()).collect();
    settle(&**store, batch, at(0)).await;
    let received = receive(&**store, "notify", 30, at(0)).await;
    assert_eq!(received.iter().map(|delivery| (*delivery.message).clone()).collect::<Vec<_>>(), sent);
    let logged = store.messages("acme", Serial(0), 10).await.expect("messages can be read");
    assert_eq!(logged.iter().map(|logged| logged.message.clone()).collect::<Vec<_>>(), sent);
    let records = store.telemetry("acme", Serial(0), 10).await.expect("telemetry can be read");
    let kinds: Vec<_> = records.iter().map(|record| record.kind.as_str()).collect();
    assert_eq!(kinds, ["snavio.event.delivered", "snavio.command.delivered"]);
    assert_eq!((&records[0].body["event_id"], &records[0].body["event_type"]), (&"a".into(), &"pay".into()));
    let uses = store.uses("acme", Serial(i64::MAX), 10).await.expect("uses can be read");
    let shown: Vec<_> = uses.iter().map(|dispatch| (dispatch.kind, dispatch.key_version.clone())).collect();
    let signed = sent[1].key_version.clone();
    assert_eq!(shown, [(MessageKind::Command, signed), (MessageKind::Event, None)]);
}
