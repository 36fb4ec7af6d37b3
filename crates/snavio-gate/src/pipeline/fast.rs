//! The fast stage: decides in memory, without asking the store (PIP-2).

use std::sync::Arc;

use snavio_model::delivery::processing::ProcessingKind;
use snavio_model::message::{Message, MessageKind, Path};
use snavio_model::name::CommandName;
use snavio_model::ordering::{OrderDefaults, Place, Placed};
use snavio_model::refusal::{Reason, Refusal, Refused};
use snavio_model::registry::age::Cache;
use snavio_model::registry::{BoundRoute, DispatchMode, Grant, Profile, Registry};
use snavio_model::settle::Intake;
use snavio_model::time::Timestamp;

use crate::pipeline::shield::Authentic;
use crate::registry::currency::Currency;

/// A message with a grant and a route. Only [`permit`] makes one.
#[derive(Debug)]
pub(crate) struct Permitted {
    intake: Intake,
    signed_at: Option<Timestamp>,
    escalation: Option<Escalation>,
    caches: [Cache; 4],
}

impl Permitted {
    pub(crate) fn message(&self) -> &Message {
        &self.intake.message
    }

    /// The destinations: one for a command, one for each subscription for an event.
    pub(crate) fn routes(&self) -> &[Arc<BoundRoute>] {
        &self.intake.destinations
    }

    pub(crate) fn signed_at(&self) -> Option<Timestamp> {
        self.signed_at
    }

    /// The kinds of cached data that the decision used.
    pub(crate) fn caches(&self) -> &[Cache] {
        &self.caches
    }

    /// Why the message needs the slow path, if it does.
    pub(crate) fn escalation(&self) -> Option<Escalation> {
        self.escalation
    }

    pub(crate) fn into_intake(self) -> Intake {
        self.intake
    }
}

/// Why a message needs the slow path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escalation {
    /// The route must not process an id twice.
    DedupeRequired,
    /// The route or the node sends every message through the slow path.
    ColdOnly,
}

impl Escalation {
    /// The value in metrics and logs.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::DedupeRequired => "dedupe_required",
            Self::ColdOnly => "cold_only",
        }
    }
}

/// Checks the grant first and then finds the route, so that a source without a grant does not learn whether a
/// route exists. An event goes to all subscriptions of its type. With `names_nearest` a refusal names the
/// nearest grants, which costs comparisons.
pub(crate) fn permit(
    authentic: Authentic,
    registry: &Registry,
    currency: &Currency,
    mode: DispatchMode,
    order: &OrderDefaults,
    names_nearest: bool,
) -> Result<Permitted, Refused> {
    let (message, signed_at) = authentic.into_parts();
    let found = match message.kind() {
        MessageKind::Command => find_route(&message, registry, names_nearest).map(|found| vec![found]),
        MessageKind::Event => find_subscriptions(&message, registry, names_nearest),
    };
    match found {
        Ok(found) => {
            let profile = found.iter().map(profile).min().unwrap_or_default();
            let caches = [Cache::Bans, Cache::Keys, Cache::Grants(profile), Cache::Routes];
            let good_until = currency.good_until(&caches);
            let destinations: Vec<_> = found.into_iter().map(|(_, route)| route).collect();
            let places = match places(&message, &destinations, order) {
                Ok(places) => places,
                Err(refusal) => return Err(Refused { subject: message.subject(), refusal }),
            };
            let escalation = destinations.iter().find_map(|route| escalation(route, mode));
            let path = if escalation.is_some() { Path::Slow } else { Path::Fast };
            Ok(Permitted {
                intake: Intake { message, path, destinations, places, known: Vec::new(), good_until },
                signed_at,
                escalation,
                caches,
            })
        }
        Err(refusal) => Err(Refused { subject: message.subject(), refusal }),
    }
}

/// Finds the position of a message in the order of its entity at each destination, if any destination is
/// ordered (ORD-1). A message with an unreadable position is refused only if this is so at all destinations:
/// one subscriber must not take the message from the others (PIP-13).
fn places(
    message: &Message,
    routes: &[Arc<BoundRoute>],
    order: &OrderDefaults,
) -> Result<Vec<Placed>, Refusal> {
    if routes.iter().all(|route| route.route.order.is_none()) {
        return Ok(Vec::new());
    }
    let mut found = Place::find_each(message, routes.iter().map(|route| &route.route), order);
    if found.iter().all(Result::is_err) {
        return found.swap_remove(0).map(|_| Vec::new());
    }
    Ok(found.into_iter().map(|place| place.unwrap_or(Placed::Unreadable)).collect())
}

/// A destination of a message, and the grant that permits it, if one is needed.
type PermittedRoute = (Option<Arc<Grant>>, Arc<BoundRoute>);

fn find_route(
    message: &Message,
    registry: &Registry,
    names_nearest: bool,
) -> Result<PermittedRoute, Refusal> {
    let denied = || not_granted(message, registry, names_nearest);
    let target = registry.service(message.target.as_str()).ok_or_else(denied)?;
    let at = message.received_at;
    let grant = target.grant(&message.source, &message.name, at).ok_or_else(denied)?;
    let route = target
        .route(&message.name, at)
        .ok_or_else(|| Refusal::new(Reason::RouteMissing, "the target has no route for this name"))?;
    if route.route.processing.kind == ProcessingKind::Reported {
        let detail =
            "the target begins this work by itself, through the claims API, and takes no messages for it";
        return Err(Refusal::new(Reason::RouteMissing, detail));
    }
    Ok((Some(Arc::clone(grant)), Arc::clone(route)))
}

/// The refusal without a grant. It is the same whether or not the target or route exists: the nearest names
/// are from the source's own grants.
fn not_granted(message: &Message, registry: &Registry, names_nearest: bool) -> Refusal {
    let Message { source, target, name, received_at, .. } = message;
    let denied = format!("{source} has no grant to send {name} to {target}");
    if !names_nearest {
        return Refusal::new(Reason::AclDeny, denied);
    }
    let nearest = registry.nearest_grants(source, (target, name), *received_at);
    let is_for_all = nearest.iter().any(|grant| grant.name.is_all() && grant.target == *target);
    let nearest: Vec<_> = nearest.iter().map(|grant| format!("{} to {}", grant.name, grant.target)).collect();
    let known = match nearest.is_empty() {
        true => "it has no grants".to_owned(),
        false => format!("the nearest of its grants: {}", nearest.join(", ")),
    };
    let advice = match is_for_all {
        true => "; * does not cover critical routes: ask for a grant by name",
        false => "",
    };
    Refusal::new(Reason::AclDeny, format!("{denied}; {known}{advice}"))
}

/// PIP-13: only the service that registered an event type publishes it.
fn find_subscriptions(
    message: &Message,
    registry: &Registry,
    names_nearest: bool,
) -> Result<Vec<PermittedRoute>, Refusal> {
    let denied = || not_registered(message, registry, names_nearest);
    let publisher = registry.service(message.source.as_str()).ok_or_else(denied)?;
    publisher.event_type(&message.name).ok_or_else(denied)?;
    let subscribed = registry.subscribed(publisher, &message.name, message.received_at);
    if subscribed.is_empty() {
        return Err(Refusal::new(Reason::RouteMissing, "no service is subscribed to this event type"));
    }
    Ok(subscribed)
}

fn not_registered(message: &Message, registry: &Registry, names_nearest: bool) -> Refusal {
    let Message { source, name, .. } = message;
    let denied = format!("{source} has not registered the event type {name}");
    if !names_nearest {
        return Refusal::new(Reason::AclDeny, denied);
    }
    let nearest = registry.nearest_event_types(source, name);
    let nearest: Vec<_> = nearest.into_iter().map(CommandName::as_str).collect();
    let known = match nearest.is_empty() {
        true => "it has registered none".to_owned(),
        false => format!("the nearest that it has registered: {}", nearest.join(", ")),
    };
    Refusal::new(Reason::AclDeny, format!("{denied}; {known}"))
}

/// The sensitivity profile of a delivery: the stricter one of the route's and the grant's. It limits the time
/// until a revocation acts.
fn profile((grant, route): &PermittedRoute) -> Profile {
    let of_route = route.route.profile;
    grant.as_ref().and_then(|grant| grant.profile).unwrap_or(of_route).min(of_route)
}

fn escalation(route: &BoundRoute, mode: DispatchMode) -> Option<Escalation> {
    if route.route.claim.keep().is_some() {
        return Some(Escalation::DedupeRequired);
    }
    let cold = mode == DispatchMode::ColdOnly || route.route.dispatch == DispatchMode::ColdOnly;
    cold.then_some(Escalation::ColdOnly)
}
