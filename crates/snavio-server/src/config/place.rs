//! A place for objects, as sections name it: `url`, and for S3 `region` and `endpoint`.

use std::collections::BTreeMap;

use snavio_store::objects::{Objects, Place};

/// The place that a section names.
pub(super) fn usable(
    section: &str,
    url: &str,
    region: &str,
    endpoint: &str,
    problems: &mut Vec<String>,
) -> Place {
    let given = [("AWS_REGION", region), ("AWS_ENDPOINT_URL", endpoint)];
    let given = given.into_iter().filter(|(_, value)| !value.is_empty());
    let options = given.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    if !Objects::is_place(url) {
        problems.push(format!("{section}.url is {url:?}; use file:///folder or s3://bucket/prefix"));
    }
    Place { url: url.to_owned(), options }
}

/// Takes what the environment says about S3; the settings come last, and win.
pub(super) fn know_environment(place: &mut Place, environment: &BTreeMap<String, String>) {
    let of_s3 = environment.iter().filter(|(name, _)| name.starts_with("AWS_"));
    let mut options: Vec<_> = of_s3.map(|(name, value)| (name.clone(), value.clone())).collect();
    options.append(&mut place.options);
    place.options = options;
}
