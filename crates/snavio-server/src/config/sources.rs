//! Where settings come from: the defaults, a file, the environment, flags; later ones win.

use std::collections::BTreeMap;

use snavio_model::nearest::suggestion;
use toml::{Table, Value};

use super::{ConfigProblems, DEFAULT};

/// Variables that belong to the command line as a client, not to a node.
pub const CLIENT_VARIABLES: [&str; 5] =
    ["SNAVIO_URL", "SNAVIO_TOKEN", "SNAVIO_CREDENTIALS", "SNAVIO_CA", "SNAVIO_PLANT"];

/// Settings that are secrets: files of settings are for many eyes.
const SECRETS: [&str; 2] = ["platform.key", "platform.second_key"];

/// Settings that have another name in the environment, with or without `SNAVIO_` before it (ORD-3).
const OTHER_NAMES: [(&str, &str); 3] = [
    ("ENABLE_SEQUENCE_VALIDATION", "order.enabled"),
    ("STRICT_ORDERING", "order.strict"),
    ("SEQUENCE_TTL_HOURS", "order.ttl_hours"),
];

/// Everything that may set something.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// A file's name and content.
    pub file: Option<(String, String)>,
    /// The environment.
    pub environment: BTreeMap<String, String>,
    /// Flags, as `section.setting` and value.
    pub flags: Vec<(String, String)>,
}

impl Sources {
    /// The effective settings, as a table.
    pub fn merge(&self) -> Result<Table, ConfigProblems> {
        let mut table: Table = DEFAULT.parse().map_err(|error: toml::de::Error| {
            ConfigProblems(vec![format!("the default configuration is broken: {error}")])
        })?;
        let known = known_settings(&table);
        let mut problems = Vec::new();
        if let Some((name, content)) = &self.file {
            overlay_file(&mut table, name, content, &known, &mut problems);
        }
        for (variable, value) in &self.environment {
            if let Some(setting) = by_other_name(variable) {
                set(&mut table, setting, value, variable, &mut problems);
            }
        }
        for (variable, value) in &self.environment {
            overlay_variable(&mut table, variable, value, &known, &mut problems);
        }
        for (setting, value) in &self.flags {
            set(&mut table, setting, value, setting, &mut problems);
        }
        if problems.is_empty() { Ok(table) } else { Err(ConfigProblems(problems)) }
    }

    /// The effective settings as they may be shown: secrets are hidden.
    pub fn shown(&self) -> Result<Table, ConfigProblems> {
        let mut table = self.merge()?;
        if let Some(Value::String(url)) = table.get_mut("store").and_then(|it| it.get_mut("url")) {
            *url = without_password(url);
        }
        for setting in SECRETS {
            if let Some(Value::String(text)) =
                lookup_mut(&mut table, setting).filter(|it| it.as_str() != Some(""))
            {
                *text = "***".to_owned();
            }
        }
        Ok(table)
    }
}

/// A URL whose password is not told.
pub(super) fn without_password(url: &str) -> String {
    if url.starts_with("embedded:") {
        return url.to_owned();
    }
    // Whatever follows one in the query may be part of it.
    let (url, hidden) = match ["?password=", "&password="].iter().filter_map(|it| url.find(it)).min() {
        Some(at) => url.split_at(at),
        None => (url, ""),
    };
    let query = if hidden.is_empty() { "" } else { &format!("{}password=***", &hidden[..1]) };
    let (scheme, rest) = match url.find("://") {
        Some(at) => url.split_at(at + 3),
        // A scheme that was written badly must not bring the password to light.
        None => url.split_at(url.find(':').map_or(0, |at| at + 1)),
    };
    match rest.rsplit_once('@').and_then(|(user, host)| Some((user.split_once(':')?.0, host))) {
        Some((user, host)) => format!("{scheme}{user}:***@{host}{query}"),
        None => format!("{url}{query}"),
    }
}

fn by_other_name(variable: &str) -> Option<&'static str> {
    let name = variable.strip_prefix("SNAVIO_").unwrap_or(variable);
    OTHER_NAMES.iter().find(|(other, _)| *other == name).map(|(_, setting)| *setting)
}

fn known_settings(defaults: &Table) -> Vec<String> {
    let sections = defaults.iter().filter_map(|(section, value)| Some((section, value.as_table()?)));
    sections
        .flat_map(|(section, settings)| settings.keys().map(move |it| format!("{section}.{it}")))
        .collect()
}

fn overlay_file(table: &mut Table, name: &str, content: &str, known: &[String], problems: &mut Vec<String>) {
    let file: Table = match content.parse() {
        Ok(file) => file,
        Err(error) => return problems.push(format!("{name}: {error}")),
    };
    for (section, settings) in file {
        let Value::Table(settings) = settings else {
            problems
                .push(format!("{name}: {section} is not within a section; begin with [server], for example"));
            continue;
        };
        for (setting, value) in settings {
            let full = format!("{section}.{setting}");
            if !known.contains(&full) {
                problems.push(format!("{name}: {full} is not a setting{}", suggestion(&full, known)));
                continue;
            }
            if SECRETS.contains(&full.as_str()) && value.as_str() != Some("") {
                problems
                    .push(format!("{name}: {full} is a secret; set it in the environment, or name its file"));
                continue;
            }
            put(table, &full, value, &format!("{name}: {full}"), problems);
        }
    }
}

fn overlay_variable(
    table: &mut Table,
    variable: &str,
    value: &str,
    known: &[String],
    problems: &mut Vec<String>,
) {
    if !variable.starts_with("SNAVIO_")
        || by_other_name(variable).is_some()
        || CLIENT_VARIABLES.contains(&variable)
    {
        return;
    }
    let as_variable = |setting: &str| format!("SNAVIO_{}", setting.replace('.', "_").to_uppercase());
    match known.iter().find(|setting| as_variable(setting) == variable) {
        Some(setting) => set(table, setting, value, variable, problems),
        None => {
            let variables: Vec<_> = known.iter().map(|setting| as_variable(setting)).collect();
            problems.push(format!("{variable} is not a setting{}", suggestion(variable, &variables)));
        }
    }
}

/// Sets a value given as text, read as what the default is.
fn set(table: &mut Table, setting: &str, text: &str, origin: &str, problems: &mut Vec<String>) {
    let default = lookup(table, setting);
    let value = match default {
        Some(Value::Integer(_)) => text.parse().ok().map(Value::Integer),
        Some(Value::Boolean(_)) => text.parse().ok().map(Value::Boolean),
        Some(Value::Array(_)) => {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            Some(Value::Array(parts.map(|part| Value::String(part.to_owned())).collect()))
        }
        _ => Some(Value::String(text.to_owned())),
    };
    match value {
        Some(value) => put(table, setting, value, origin, problems),
        None => problems.push(format!("{origin} is {text:?}, which does not read as a value of {setting}")),
    }
}

fn put(table: &mut Table, setting: &str, value: Value, origin: &str, problems: &mut Vec<String>) {
    let Some((section, name)) = setting.split_once('.') else { return };
    let Some(slot) = table.get_mut(section).and_then(Value::as_table_mut).and_then(|it| it.get_mut(name))
    else {
        return problems.push(format!("{origin} is not a setting"));
    };
    if value.as_integer().is_some_and(|number| number < 0) {
        problems.push(format!("{origin} is {value}; no setting is negative"));
    } else if std::mem::discriminant(slot) == std::mem::discriminant(&value) {
        *slot = value;
    } else {
        problems.push(format!("{origin} must be of type {}, not {}", slot.type_str(), value.type_str()));
    }
}

fn lookup_mut<'t>(table: &'t mut Table, setting: &str) -> Option<&'t mut Value> {
    let (section, name) = setting.split_once('.')?;
    table.get_mut(section)?.get_mut(name)
}

fn lookup<'t>(table: &'t Table, setting: &str) -> Option<&'t Value> {
    let (section, name) = setting.split_once('.')?;
    table.get(section)?.get(name)
}
