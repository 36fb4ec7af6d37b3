//! Problems of an entry by itself, whatever else is registered.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::Role;
use super::entry::{Entry, Route, Service};
use super::identity::{Issuer, KeySet, PersonalToken};
use crate::bounds;
use crate::claim::ClaimPolicy;
use crate::delivery::processing::PushForm;

/// [`own_problems`] for any replay window.
pub(crate) fn problems_alone(entry: &Entry) -> Vec<String> {
    own_problems(entry, Duration::ZERO)
}

/// The problems of an entry that do not depend on other entries.
pub(super) fn own_problems(entry: &Entry, window: Duration) -> Vec<String> {
    match entry {
        Entry::Route(route) => {
            let mut problems = route_problems(route, window);
            if route.events_of.is_some() {
                problems.push("events_of is only for subscriptions: register a subscription".to_owned());
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
        Entry::GrantRequest(request) => {
            too_long("purpose", Some(&request.purpose), bounds::DESCRIPTION_CHARS_MAX)
        }
        Entry::Issuer(issuer) => issuer_problems(issuer),
        Entry::Workload(workload) => {
            too_long("subject", Some(&workload.subject), bounds::DESCRIPTION_CHARS_MAX)
        }
        Entry::Ban(ban) => too_long("reason", Some(&ban.reason), bounds::DESCRIPTION_CHARS_MAX),
        Entry::Adapter(adapter) => adapter.problem().into_iter().collect(),
        Entry::EventType(_) | Entry::Grant(_) | Entry::PushSecret(_) | Entry::Key(_) | Entry::Client(_) => {
            Vec::new()
        }
    }
}

/// Finds the first control character of an entry, or of a part of one. PostgreSQL cannot store U+0000, and
/// control characters forge lines in logs and control terminals. So C0, DEL and C1 are refused in every text
/// and every member name. The description of a service may have several lines and so may contain tabs and
/// line feeds.
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
            let (index, found) = text.chars().enumerate().find(|(_, c)| is_refused(c))?;
            let (code, place) = (u32::from(found), index + 1);
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
        problems.push(format!("key_days is {every}, but must be 1 to {}", bounds::KEY_DAYS_MAX));
    }
    if overlap == 0 || overlap >= every.max(1) {
        problems.push(format!(
            "key_overlap_days is {overlap}, but must be at least 1 and less than key_days, which is {every}"
        ));
    }
    problems
}

fn token_problems(token: &PersonalToken) -> Vec<String> {
    let mut problems = too_long("person", Some(&token.person), bounds::CONTACT_CHARS_MAX);
    let role = token.role.as_str();
    match (&token.tenant, token.role) {
        (None, role_of) if role_of.is_of_a_tenant() => {
            problems.push(format!("role {role} belongs to one tenant: name the tenant"));
        }
        (Some(_), Role::Operator) => {
            problems.push("role operator belongs to no tenant: omit the tenant".to_owned());
        }
        _ => {}
    }
    if token.person.trim().is_empty() || token.person.chars().any(char::is_control) {
        problems.push("person must not be empty, and must be on one line".to_owned());
    }
    problems
}

fn issuer_problems(issuer: &Issuer) -> Vec<String> {
    let mut problems = Vec::new();
    for (member, text) in [("issuer", &issuer.issuer), ("audience", &issuer.audience)] {
        if text.is_empty() || text.contains(char::is_whitespace) {
            problems.push(format!("{member} must not be empty, and must have no white space"));
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
        problems.push("FIFO queues are not supported: the gateway orders messages per entity".to_owned());
    }
    if !(1..=bounds::RECEIVES_MAX).contains(&route.receives_max) {
        problems.push(format!(
            "receives_max is {}, but must be 1 to {}",
            route.receives_max,
            bounds::RECEIVES_MAX
        ));
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
            "processing.kind needs claims, which keep the outcome: give the route a claim policy".to_owned(),
        );
    }
    problems
}
