//! Reads whole lists. A node returns a list page by page, and a first page must not pass for the whole list.

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::{Api, ApiError};

use crate::connection::path;

/// Entries of one page: the maximum that the API allows.
const PAGE: &str = "1000";

/// Reads all pages of a list from `from` on, and returns them as one page: `items`, and in `next` the
/// position of later entries, if the list has one. `cursor` is the name of the parameter for the position.
/// Empty filters are left out.
pub(super) async fn fetch_all(
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
        // An empty page may be followed by others: the caller may see only some of the entries.
        match page["next"].take() {
            Value::Null => return Ok(json!({ "items": all })),
            next if next == from => return Ok(json!({ "items": all, "next": next })),
            next => from = next,
        }
    }
}

/// Reads all entries with numbers above `after`.
pub(super) async fn fetch_after(
    api: &Api,
    list: &str,
    filters: &[(&str, Option<&str>)],
    after: i64,
) -> Result<Value, ApiError> {
    let filters: Vec<_> = filters.iter().map(|(name, value)| (*name, value.unwrap_or_default())).collect();
    fetch_all(api, list, &filters, ("after", after.into())).await
}
