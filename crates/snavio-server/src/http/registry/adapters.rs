//! Adapters: what makes events of a provider's webhooks (MSG-7). Secrets are given in clear text, kept sealed, and never
//! shown again.

use axum::extract::State;
use axum::response::Response;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use snavio_model::adapter::{Adapter, ForeignSecret, Preset};
use snavio_model::name::{AdapterName, ServiceName, TenantName};
use snavio_model::refusal::{Reason, Refusal};
use snavio_model::registry::{Entry, EntryKey, Kind, Registry, Sealed, Unseal};
use utoipa::ToSchema;

use super::super::extract::{JsonBody, Members, Params, Segments, from_members};
use super::super::{App, Problem, Shared};
use super::routes::agree;
use super::{Removed, Why, get, named, put, remove};
use crate::principal::Principal;

/// An adapter as it is registered: all of it, or a preset with what differs.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only described here: members are read one by one")]
pub(in crate::http) struct AdapterBody {
    /// A provider whose webhooks are known: all other members but `service` may then be left out.
    preset: Option<Preset>,
    /// What the provider signs with or shows, 1 to 4 of them; those that are there when not said. List the new one beside
    /// the old one while one takes the place of the other.
    secrets: Option<Vec<String>>,
    #[schema(inline)]
    #[serde(flatten)]
    adapter: Adapter,
}

/// An adapter that somebody asks for.
pub(in crate::http) struct Asked {
    adapter: Adapter,
    secrets: Option<Vec<ForeignSecret>>,
}

impl<'de> Deserialize<'de> for Asked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Members(members) = Members::deserialize(deserializer)?;
        Self::read(members).map_err(|refusal| D::Error::custom(refusal.detail))
    }
}

impl Asked {
    fn read(mut members: Map<String, Value>) -> Result<Self, Refusal> {
        let secrets = members.remove("secrets").map(secrets).transpose()?;
        if let Some(preset) = members.remove("preset") {
            let wrong = |_| invalid("preset must be telegram, google-calendar, github or stripe");
            let preset: Preset = serde_json::from_value(preset).map_err(wrong)?;
            for (name, value) in known(preset, &members)? {
                members.entry(name).or_insert(value);
            }
        }
        members.remove("secrets");
        let adapter: Adapter = from_members(members)?;
        let asked = Self { adapter, secrets };
        asked.check_secrets(asked.secrets.iter().flatten())?;
        Ok(asked)
    }

    fn check_secrets<'a>(&self, secrets: impl IntoIterator<Item = &'a ForeignSecret>) -> Result<(), Refusal> {
        let mut checked = secrets.into_iter().map(|it| self.adapter.verification.check_secret(it));
        checked.try_for_each(|it| it.map_err(|wrong| invalid(format!("secrets: {wrong}"))))
    }

    /// Whether the secrets that are there fit what is asked for, where none are given.
    pub(super) fn check_kept(&self, registry: &Registry) -> Result<(), Refusal> {
        let there = registry.adapter(self.adapter.service.tenant(), self.adapter.name.as_str());
        let kept = there.filter(|_| self.secrets.is_none());
        self.check_secrets(kept.iter().flat_map(|it| &it.secrets))
    }

    /// The entry, its secrets sealed. One that is there already stays as it is, so that nothing changes where the same is
    /// asked for again.
    pub(super) fn entry(&self, app: &App, registry: &Registry) -> Entry {
        let there = registry.get(&EntryKey::adapter(&self.adapter));
        let there: &[Sealed] = match there {
            Some(Entry::Adapter(adapter)) => &adapter.secrets,
            _ => &[],
        };
        let is_it = |sealed: &Sealed, secret: &ForeignSecret| {
            app.platform.unseal_text(sealed).is_some_and(|it| it.expose() == secret.expose())
        };
        let sealed = |secret: &ForeignSecret| {
            let kept = there.iter().find(|it| is_it(it, secret)).cloned();
            kept.unwrap_or_else(|| app.platform.seal_text(secret))
        };
        let secrets =
            self.secrets.as_ref().map_or_else(|| there.to_vec(), |it| it.iter().map(sealed).collect());
        Entry::Adapter(Box::new(Adapter { secrets, ..self.adapter.clone() }))
    }
}

fn invalid(detail: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::new(Reason::InvalidRequest, detail)
}

fn secrets(given: Value) -> Result<Vec<ForeignSecret>, Refusal> {
    let given = given.as_array().ok_or_else(|| invalid("secrets must be a list of texts"))?;
    let secret = |it: &Value| {
        let text = it.as_str().ok_or_else(|| invalid("secrets must be a list of texts"))?;
        ForeignSecret::new(text).map_err(|wrong| invalid(format!("secrets: {wrong}")))
    };
    given.iter().map(secret).collect()
}

/// What is known of a provider, for the name and the service that are asked for.
fn known(preset: Preset, members: &Map<String, Value>) -> Result<Map<String, Value>, Refusal> {
    let text = |member: &str| {
        let text = members.get(member).and_then(Value::as_str);
        text.ok_or_else(|| invalid(format!("{member} is missing, or no text")))
    };
    let name = AdapterName::new(text("name")?).map_err(named)?;
    let service = ServiceName::new(text("service")?).map_err(named)?;
    match serde_json::to_value(preset.adapter(name, service, Vec::new())) {
        Ok(Value::Object(known)) => Ok(known),
        _ => Err(invalid("the preset cannot be used")),
    }
}

fn key(tenant: &str, name: &str) -> Result<EntryKey, Problem> {
    let tenant = TenantName::new(tenant).map_err(named)?;
    Ok(EntryKey::adapter_of(tenant.as_str(), &AdapterName::new(name).map_err(named)?))
}

/// One adapter, without its secrets.
#[utoipa::path(get, path = "/v1/adapters/{tenant}/{name}", tag = "registry", params(("tenant" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Adapter)))]
pub(in crate::http) async fn show(
    State(app): State<Shared>,
    principal: Principal,
    Segments((tenant, name)): Segments<(String, String)>,
) -> Result<Response, Problem> {
    get(&app, &principal, &key(&tenant, &name)?)
}

/// Registers an adapter, or changes it. The path says tenant and name; the service is one of that tenant.
#[utoipa::path(put, path = "/v1/adapters/{tenant}/{name}", tag = "registry", params(("tenant" = String, Path), ("name" = String, Path), Why),
    request_body = AdapterBody,
    responses((status = 200, body = Adapter), (status = 201, body = Adapter)))]
pub(in crate::http) async fn register(
    State(app): State<Shared>,
    principal: Principal,
    Segments((tenant, name)): Segments<(String, String)>,
    Params(why): Params<Why>,
    JsonBody(Members(mut body)): JsonBody<Members>,
) -> Result<Response, Problem> {
    let key = key(&tenant, &name)?;
    agree(&mut body, "kind", json!(Kind::Adapter))?;
    body.remove("kind");
    agree(&mut body, "name", json!(name))?;
    let asked = Asked::read(body)?;
    if EntryKey::adapter(&asked.adapter) != key {
        return Err(invalid("service must be one of the path's tenant").into());
    }
    asked.check_kept(&app.gate.registry())?;
    put(&app, &principal, &why, |registry| asked.entry(&app, registry)).await
}

/// Removes an adapter: its provider is not known any more.
#[utoipa::path(delete, path = "/v1/adapters/{tenant}/{name}", tag = "registry", params(("tenant" = String, Path), ("name" = String, Path), Why),
    responses((status = 200, body = Removed)))]
pub(in crate::http) async fn unregister(
    State(app): State<Shared>,
    principal: Principal,
    Segments((tenant, name)): Segments<(String, String)>,
    Params(why): Params<Why>,
) -> Result<Response, Problem> {
    remove(&app, &principal, &why, key(&tenant, &name)?, |_| Vec::new()).await
}
