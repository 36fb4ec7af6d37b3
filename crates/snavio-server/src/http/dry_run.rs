//! `POST /v1/dry-run`: what would happen to a message, stage by stage, without anything of it happening (REG-3).

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use snavio_gate::{Arrival, Form, Step, StepVerdict};
use snavio_model::identity::permission::{Over, Permission, Verdict};
use snavio_model::message::MessageKind;
use snavio_model::name::{CommandName, ServiceName};
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::time::Clock;
use utoipa::ToSchema;

use super::answer::json;
use super::extract::JsonBody;
use super::registry::file::{RegistryFile, assumed};
use super::{App, Problem, Shared};
use crate::machine::unpredictable;
use crate::principal::{Principal, forbidden};

/// What is to be tried.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DryRun {
    /// A message as it would be sent to `/v1/commands`.
    #[schema(value_type = Option<serde_json::Value>)]
    message: Option<Box<RawValue>>,
    /// Without a message: the service that a probe is for,
    target: Option<ServiceName>,
    /// and the command.
    name: Option<CommandName>,
    /// Who sends it. A service sends as itself; those who manage its tenant may name it, and need not sign.
    source: Option<ServiceName>,
    /// What shall be taken for registered besides what is.
    assume: Option<RegistryFile>,
}

/// What would happen.
#[derive(Serialize, ToSchema)]
pub(super) struct Foreseen {
    /// Whether it would be taken.
    accepted: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// The registry's version that it was judged by; what was assumed is not in it.
    registry_version: i64,
    /// How each check would go, up to the first that refuses.
    steps: Vec<ForeseenStep>,
}

/// One check.
#[derive(Serialize, ToSchema)]
pub(super) struct ForeseenStep {
    /// `shield`, `fast` or `slow`.
    stage: &'static str,
    /// What is checked.
    check: &'static str,
    /// `passed`, `refused` or `skipped`.
    verdict: &'static str,
    /// By what, or why.
    detail: String,
}

/// Says what would happen to a message, or to a probe for a route, without doing any of it.
///
/// Who may not read what the target's tenant has is told how each check would go, and not by which queue, path or policy.
#[utoipa::path(post, path = "/v1/dry-run", tag = "registry", request_body = DryRun,
    responses((status = 200, body = Foreseen)))]
pub(super) async fn dry_run(
    State(app): State<Shared>,
    principal: Principal,
    JsonBody(wanted): JsonBody<DryRun>,
) -> Result<Response, Problem> {
    let (source, trusted) = sender(&principal, wanted.source)?;
    let body = match (wanted.message, wanted.target, wanted.name) {
        (Some(message), None, None) => message.get().to_owned(),
        (None, Some(target), Some(name)) if trusted => probe(&app, &target, &name),
        _ => {
            let detail =
                "give a message, or, as one who manages the source's tenant, target and name of a probe";
            return Err(Refusal::new(Reason::InvalidRequest, detail).into());
        }
    };
    let registry = match &wanted.assume {
        Some(file) => Arc::new(assumed(&app, &principal, file).await?),
        None => app.gate.registry(),
    };
    let arrival = Arrival {
        kind: MessageKind::Command,
        form: Form::Native,
        source,
        body: body.into(),
        webhook: None,
        vouched: None,
        correlation: None,
        traceparent: None,
        received_at: app.clock.now(),
        random: unpredictable(),
    };
    let steps = app.gate.dry_run(&arrival, &registry, trusted, principal.standing()).await;
    let refused = steps.iter().find_map(|step| match &step.verdict {
        StepVerdict::Refused(refusal) => Some(refusal.reason.code()),
        _ => None,
    });
    let foreseen = Foreseen {
        accepted: refused.is_none(),
        reason: refused,
        registry_version: app.gate.registry().version(),
        steps: steps.into_iter().map(step).collect(),
    };
    Ok(json(StatusCode::OK, &foreseen))
}

/// Who sends, and whether that is taken on trust.
fn sender(principal: &Principal, named: Option<ServiceName>) -> Result<(ServiceName, bool), Refusal> {
    match (principal, named) {
        (Principal::Service(caller), None) => Ok((caller.service.clone(), false)),
        (Principal::Service(caller), Some(source)) if caller.service == source => Ok((source, false)),
        (_, Some(source)) => {
            match principal.standing().judge(Permission::Manage, Over::Tenant(source.tenant())) {
                Verdict::Allowed => Ok((source, true)),
                Verdict::Forbidden => Err(forbidden("only those who manage the source's tenant may do this")),
                Verdict::Hidden => Err(Refusal::new(Reason::NotFound, "there is no such source")),
            }
        }
        (_, None) => {
            Err(Refusal::new(Reason::InvalidRequest, "source is missing: name the service that sends"))
        }
    }
}

/// An unsigned message without content.
fn probe(app: &App, target: &ServiceName, name: &CommandName) -> String {
    let random = unpredictable();
    let mut id = [0; 16];
    id.copy_from_slice(&random[..16]);
    let probe = json!({
        "metadata": {
            "id": uuid::Builder::from_random_bytes(id).into_uuid().to_string(),
            "timestamp": app.clock.now().to_string(),
            "type": snavio_model::message::command::COMMAND_TYPE,
        },
        "command": { "target": target, "name": name, "payload": {} },
    });
    probe.to_string()
}

fn step(step: Step) -> ForeseenStep {
    let (verdict, detail) = match step.verdict {
        StepVerdict::Passed(by) => ("passed", by),
        StepVerdict::Refused(refusal) => ("refused", refusal.to_string()),
        StepVerdict::Skipped(why) => ("skipped", why.to_owned()),
    };
    ForeseenStep { stage: step.stage, check: step.check, verdict, detail }
}
