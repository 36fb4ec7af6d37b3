//! What is wrong with an entry by itself, whatever else is registered.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::Role;
use super::entry::{Entry, Route, Service};
use super::identity::{Issuer, KeySet, PersonalToken};
use crate::bounds;
use crate::claim::ClaimPolicy;
use crate::delivery::processing::PushForm;

/// As [`own_problems`], however long the replay window is.
pub(crate) fn problems_alone(entry: &Entry) -> Vec<String> {
    own_problems(entry, Duration::ZERO)
}

/// What is wrong with an entry whatever else is registered.
pub(super) fn own_problems(entry: &Entry, window: Duration) -> Vec<String> {
    match entry {
        Entry::Route(route) => {
            let mut problems = route_problems(route, window);
            if route.events_of.is_some() {
                problems.push("events_of is of subscriptions: register it as one".to_owned());
            }
            if route.processing.form != PushForm::Native {
                problems.push("processing.form must be native: a command is no event".to_owned());
            }
            problems
        }
        Entry::Subscription(route) => route_problems(route, window),
        Entry::Tenant(tenant) => too_long("contact", tenant.contact.as_ref(), bounds::CONTACT_CHARS_MAX),
        Entry::Service(service) => service_problems(service),
        Entry::PersonalToken(token) => token_problems(token),
        Entry::GrantRequest(it) => too_long("purpose", Some(&it.purpose), bounds::DESCRIPTION_CHARS_MAX),
        Entry::Issuer(issuer) => issuer_problems(issuer),
        Entry::Workload(it) => too_long("subject", Some(&it.subject), bounds::DESCRIPTION_CHARS_MAX),
        Entry::Ban(ban) => too_long("reason", Some(&ban.reason), bounds::DESCRIPTION_CHARS_MAX),
        Entry::Adapter(adapter) => adapter.problem().into_iter().collect(),
        Entry::EventType(_) | Entry::Grant(_) | Entry::PushSecret(_) | Entry::Key(_) | Entry::Client(_) => {
            Vec::new()
        }
    }
}

/// Where the first control character of an entry, or of a part of one, is. PostgreSQL cannot store U+0000, and
/// control characters forge lines in logs and steer terminals; so C0, DEL and C1 are refused in every text and
/// every member name. A service's description may have several lines: tab and line feed are allowed there.
pub(super) fn control_character(part: &impl Serialize) -> Option<String> {
    let document = match serde_json::to_value(part) {
        Ok(document) => document,
        Err(error) => return Some(format!("cannot be written as JSON: {error}")),
    };
    control_character_in(&document, "")
}

fn control_character_in(value: &Value, member: &str) -> Option<String> {
    match value {
        Value::String(text) => {
            let is_multi_line = member == "description";
            let is_refused = |c: &char| c.is_control() && !(is_multi_line && matches!(c, '\t' | '\n'));
            let (place, found) = text.chars().enumerate().find(|(_, c)| is_refused(c))?;
            let (code, place) = (u32::from(found), place + 1);
            Some(format!(
                "{member} contains the control character U+{code:04X} at character {place}: remove it"
            ))
        }
        Value::Array(items) => items.iter().find_map(|item| control_character_in(item, member)),
        Value::Object(members) => members.iter().find_map(|(name, value)| {
            if name.contains(char::is_control) {
                return Some(format!("the member name {name:?} contains a control character: remove it"));
            }
            let path = if member.is_empty() { name.clone() } else { format!("{member}.{name}") };
            control_character_in(value, &path)
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn too_long(member: &str, text: Option<&String>, chars_max: usize) -> Vec<String> {
    let is_over = text.is_some_and(|text| text.chars().count() > chars_max);
    is_over.then(|| format!("{member} is longer than {chars_max} characters")).into_iter().collect()
}

fn service_problems(service: &Service) -> Vec<String> {
    let mut problems = too_long("description", service.description.as_ref(), bounds::DESCRIPTION_CHARS_MAX);
    let (every, overlap) = (service.key_days(), service.key_overlap_days());
    if !(1..=bounds::KEY_DAYS_MAX).contains(&every) {
        problems.push(format!("key_days is {every}, 1 to {}", bounds::KEY_DAYS_MAX));
    }
    if overlap == 0 || overlap >= every.max(1) {
        problems.push(format!(
            "key_overlap_days is {overlap}; at least 1, and less than key_days, which is {every}"
        ));
    }
    problems
}

fn token_problems(token: &PersonalToken) -> Vec<String> {
    let mut problems = too_long("person", Some(&token.person), bounds::CONTACT_CHARS_MAX);
    let role = token.role.as_str();
    match (&token.tenant, token.role) {
        (None, role_of) if role_of.is_of_a_tenant() => {
            problems.push(format!("role {role} is for one tenant: name it"));
        }
        (Some(_), Role::Operator) => {
            problems.push("role operator is for all tenants: name none".to_owned());
        }
        _ => {}
    }
    if token.person.trim().is_empty() || token.person.chars().any(char::is_control) {
        problems.push("person must be given, on one line".to_owned());
    }
    problems
}

fn issuer_problems(issuer: &Issuer) -> Vec<String> {
    let mut problems = Vec::new();
    for (member, text) in [("issuer", &issuer.issuer), ("audience", &issuer.audience)] {
        if text.is_empty() || text.contains(char::is_whitespace) {
            problems.push(format!("{member} must be given, without spaces"));
        }
        problems.extend(too_long(member, Some(text), bounds::CONTACT_CHARS_MAX));
    }
    let (KeySet::File(place) | KeySet::Url(place)) = &issuer.keys;
    problems.extend(too_long("keys", Some(place), bounds::DESCRIPTION_CHARS_MAX));
    problems
}

fn route_problems(route: &Route, window: Duration) -> Vec<String> {
    let mut problems = Vec::new();
    if route.queue == route.dead_letter_queue {
        problems.push("queue and dead_letter_queue must differ".to_owned());
    }
    if route.queue.as_str().ends_with(".fifo") || route.dead_letter_queue.as_str().ends_with(".fifo") {
        problems.push("FIFO queues are not taken: order is kept per entity by the gateway".to_owned());
    }
    if !(1..=bounds::RECEIVES_MAX).contains(&route.receives_max) {
        problems.push(format!("receives_max is {}, 1 to {}", route.receives_max, bounds::RECEIVES_MAX));
    }
    if route.expected_drain_seconds == 0 {
        problems.push("expected_drain_seconds must be at least 1".to_owned());
    }
    problems.extend(route.claim_problem(window));
    problems.extend(route.processing.problem());
    problems.extend(route.disabled_problem());
    problems.extend(route.order_problem());
    if route.processing.is_tracked() && route.claim == ClaimPolicy::None {
        problems.push(
            "what becomes of a message is kept with its claim: give the route a claim policy".to_owned(),
        );
    }
    problems
}
