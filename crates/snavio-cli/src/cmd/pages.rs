//! Whole lists: a node gives them page by page, and the beginning of one must not look like all of it.

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::{Api, ApiError};

use crate::connection::path;

/// Entries that are asked for at once: as many as a page may hold.
const PAGE: &str = "1000";

/// All that a list has, as one page: its items, and where whatever comes later begins. `cursor` is the parameter that says
/// where to begin; filters that are empty are left out.
pub(super) async fn whole(
    api: &Api,
    list: &str,
    filters: &[(&str, &str)],
    (cursor, from): (&str, Value),
) -> Result<Value, ApiError> {
    let segments: Vec<_> = ["v1"].into_iter().chain(list.split('/')).collect();
    let (mut all, mut from) = (Vec::new(), from);
    loop {
        let begin = from.as_str().map_or_else(|| from.to_string(), str::to_owned);
        let parameters = [filters, &[("limit", PAGE), (cursor, &begin)]].concat();
        let mut page = api.call(Method::GET, &path(&segments, &parameters), None).await?;
        if let Value::Array(items) = page["items"].take() {
            all.extend(items);
        }
        // A page may hold nothing for this caller and still not be the last one.
        match page["next"].take() {
            Value::Null => return Ok(json!({ "items": all })),
            next if next == from => return Ok(json!({ "items": all, "next": next })),
            next => from = next,
        }
    }
}

/// A list whose entries are numbered, from behind a number on.
pub(super) async fn after(
    api: &Api,
    list: &str,
    filters: &[(&str, Option<&str>)],
    after: i64,
) -> Result<Value, ApiError> {
    let filters: Vec<_> = filters.iter().map(|(name, value)| (*name, value.unwrap_or_default())).collect();
    whole(api, list, &filters, ("after", after.into())).await
}
