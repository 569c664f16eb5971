//! Why an assistant does not answer, or does not use its tools.
//!
//! Checks run in the order in which a turn would fail. Nothing is changed and no model is called.

use std::time::Duration;

use amalgam_app::{Application, assistant::with_default_model, is_id};
use amalgam_assistant::settings::{EffectiveSettings, Origin};
use amalgam_core::{
    Fault, ModelSelection, Operator, Scope,
    store::{AgentProfile, BankOf, BankTool},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    access::{admin, within},
    request::wrong,
};

/// The result of a diagnosis.
// RNCC-47
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct Diagnosis {
    #[schemars(extend("const" = "diagnosis"))]
    object: &'static str,
    /// The profile; null if none was named.
    agent: Option<AgentFinding>,
    /// The tool; null if none was named.
    tool: Option<ToolFinding>,
    /// The key for the upstream.
    key: KeyFinding,
    /// The model that would be called.
    model: ModelFinding,
    /// Whether the assistant is enabled for the tenant.
    feature_enabled: bool,
    /// What is wrong and how to fix it.
    #[schemars(length(min = 1))]
    verdict: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
struct AgentFinding {
    /// The slug of the profile.
    slug: String,
    /// Whether the tenant has the profile.
    exists: bool,
    /// Whether the profile can be used.
    active: bool,
}

#[derive(Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
struct ToolFinding {
    /// The name.
    name: String,
    /// Whether the tenant's tool bank or the common one has the tool.
    in_bank: bool,
    /// Whether the tool can be used.
    active: bool,
    /// Whether the profile has the tool; null without a profile.
    assigned: Option<bool>,
    /// Whether the server can run the tool.
    handler_registered: bool,
}

#[derive(Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
struct KeyFinding {
    /// Whether a usable key exists.
    configured: bool,
    /// The tenant's key, the installation's, or the one in the upstream's configuration.
    #[schemars(extend("enum" = ["config", "settings", "upstream", null]))]
    origin: Option<&'static str>,
    // The environment variable that should hold the key.
    #[serde(skip)]
    variable: Option<String>,
    // The key is stored, but the master key that encrypted it is missing.
    #[serde(skip)]
    unreadable: bool,
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
struct ModelFinding {
    /// The name.
    name: String,
    /// Whether an upstream serves the model.
    known: bool,
}

/// Checks everything that a turn of this profile, with this tool, needs.
pub async fn diagnose(
    app: &Application,
    tenant: &Scope,
    agent: Option<&str>,
    tool: Option<&str>,
) -> Result<Diagnosis, Fault> {
    for (field, name) in [("agent", agent), ("tool", tool)] {
        if name.is_some_and(|name| !is_id(name)) {
            return Err(wrong(field, "nothing can be called this"));
        }
    }
    Ok(inspect(app, tenant, agent, tool).await?.with_verdict())
}

async fn inspect(
    app: &Application,
    tenant: &Scope,
    agent: Option<&str>,
    tool: Option<&str>,
) -> Result<Diagnosis, Fault> {
    let profile = match agent {
        Some(slug) => app.store.profile(tenant, slug).await?,
        None => None,
    };
    let tool = match tool {
        Some(name) => Some(inspect_tool(app, tenant, name, profile.as_ref()).await?),
        None => None,
    };
    let (resolved, key, model_known) = inspect_model(app, tenant, profile.as_ref()).await?;
    let record = app.store.tenant(Operator::of_this_process(), tenant.tenant_id()).await?;
    Ok(Diagnosis {
        object: "diagnosis",
        verdict: Vec::new(),
        agent: agent.map(|slug| AgentFinding {
            slug: slug.to_owned(),
            exists: profile.is_some(),
            active: profile.as_ref().is_some_and(|profile| profile.active),
        }),
        tool,
        key,
        model: ModelFinding { name: resolved.model.value, known: model_known },
        feature_enabled: record.is_none_or(|record| record.ai_agent_enabled),
    })
}

async fn inspect_tool(
    app: &Application,
    tenant: &Scope,
    name: &str,
    profile: Option<&AgentProfile>,
) -> Result<ToolFinding, Fault> {
    let own = app.store.tool(BankOf::Tenant(admin(tenant)?), name).await?;
    let found: Option<BankTool> = match own {
        Some(own) => Some(own),
        None => app.store.tool(BankOf::Common(Operator::of_this_process()), name).await?,
    };
    let handler_registered = match &found {
        Some(tool) => app.toolbox.prepare(tenant, tool).await.is_ok_and(|ready| ready.is_some()),
        None => app.toolbox.builtin(name).is_some(),
    };
    Ok(ToolFinding {
        name: name.to_owned(),
        in_bank: found.is_some(),
        active: found.is_some_and(|tool| tool.active),
        assigned: profile.map(|profile| profile.tools.iter().any(|tool| tool.eq_ignore_ascii_case(name))),
        handler_registered,
    })
}

/// The effective settings, the state of the upstream key, and whether an upstream serves the model.
async fn inspect_model(
    app: &Application,
    tenant: &Scope,
    profile: Option<&AgentProfile>,
) -> Result<(EffectiveSettings, KeyFinding, bool), Fault> {
    let configs = app.tenant_configs();
    let stored = configs.load(within(tenant)?).await?;
    let resolved = configs.resolve(&stored, profile.filter(|profile| profile.active));
    let resolved = with_default_model(&*app.catalog, resolved).await;
    let opened = stored.with_opened_key(&*app.seal, &tenant.seal_context());
    let own_key = opened.as_ref().and_then(|settings| settings.api_key.as_ref());
    let terms = ModelSelection {
        name: &resolved.model.value,
        upstream: resolved.upstream.value.as_deref(),
        key: own_key,
        patience: None,
    };
    let route = match terms.name {
        "" => None,
        _ => app.catalog.resolve_on(tenant, terms).await?,
    };
    let lacking = route.as_ref().and_then(|route| route.candidates.first()?.model.missing_key().map(str::to_owned));
    let is_set = resolved.api_key.value.is_some();
    let key = match resolved.api_key.origin {
        Origin::Config => KeyFinding {
            configured: own_key.is_some(),
            origin: Some("config"),
            unreadable: own_key.is_none(),
            variable: None,
        },
        _ if lacking.is_some() => KeyFinding { variable: lacking, ..KeyFinding::default() },
        origin if is_set => KeyFinding { configured: true, origin: Some(origin.name()), ..KeyFinding::default() },
        _ if route.is_some() => KeyFinding { configured: true, origin: Some("upstream"), ..KeyFinding::default() },
        _ => KeyFinding::default(),
    };
    // Without a key the upstream cannot list its models, so only configured models count as known.
    let known = match (route, key.configured) {
        (Some(_), true) => true,
        (Some(_), false) => app.catalog.resolve(tenant, &resolved.model.value).await?.is_some(),
        (None, _) => false,
    };
    Ok((resolved, key, known))
}

/// The model that assistants of a tenant use, and whether an upstream serves it; unknown if that takes longer than `patience`.
pub(super) async fn default_model(
    app: &Application,
    tenant: &Scope,
    patience: Duration,
) -> Result<(String, Option<bool>), Fault> {
    let configs = app.tenant_configs();
    let stored = configs.load(within(tenant)?).await?;
    let name = with_default_model(&*app.catalog, configs.resolve(&stored, None)).await.model.value;
    match tokio::time::timeout(patience, inspect_model(app, tenant, None)).await {
        Ok(found) => found.map(|(_, _, known)| (name, Some(known))),
        Err(_) => Ok((name, None)),
    }
}

impl Diagnosis {
    fn with_verdict(self) -> Self {
        Self { verdict: self.verdict(), ..self }
    }

    /// The problems in the order in which a turn meets them, each with its remedy.
    fn verdict(&self) -> Vec<String> {
        let mut verdict = Vec::new();
        if !self.feature_enabled {
            verdict.push("The assistant is switched off for this tenant: set `ai_agent_enabled` to true.".to_owned());
        }
        match &self.agent {
            Some(agent) if !agent.exists => verdict.push(format!(
                "There is no profile `{}` in this tenant: requests for it are answered without a profile and without tools.",
                agent.slug
            )),
            Some(agent) if !agent.active => verdict.push(format!(
                "The profile `{}` is not active: requests for it are answered without a profile and without tools.",
                agent.slug
            )),
            _ => {}
        }
        if let Some(tool) = &self.tool {
            verdict.extend(tool.verdict(self.agent.as_ref()));
        }
        if self.key.unreadable {
            verdict.push("The tenant's key was sealed with a master key that is not there: set it again.".to_owned());
        } else if let Some(variable) = &self.key.variable {
            verdict.push(format!("No key for the upstream: set {variable}, or `api_key` of the tenant."));
        }
        if !self.model.known && self.key.variable.is_none() {
            verdict.push(format!(
                "No upstream has the model `{}`: see `model` and `upstream` of the tenant.",
                self.model.name
            ));
        }
        if verdict.is_empty() {
            verdict.push("Everything that a turn needs is in place.".to_owned());
        }
        verdict
    }
}

impl ToolFinding {
    fn verdict(&self, agent: Option<&AgentFinding>) -> Vec<String> {
        let name = &self.name;
        let mut verdict = Vec::new();
        match (self.in_bank, self.handler_registered) {
            (false, true) => verdict.push(format!("The tool `{name}` is built in, but not in the bank: seed it.")),
            (false, false) => verdict.push(format!("There is no tool `{name}` in the bank, and none is built in.")),
            (true, false) => {
                verdict.push(format!("Nothing here can run the tool `{name}`: see its kind and settings."))
            }
            (true, true) => {}
        }
        if self.in_bank && !self.active {
            verdict.push(format!("The tool `{name}` is not active."));
        }
        if let (Some(false), Some(agent)) = (self.assigned, agent) {
            verdict.push(format!("The profile `{}` does not have the tool `{name}`.", agent.slug));
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Diagnosis {
        Diagnosis {
            object: "diagnosis",
            verdict: Vec::new(),
            agent: Some(AgentFinding { slug: "home".to_owned(), exists: true, active: true }),
            tool: Some(ToolFinding {
                name: "find".to_owned(),
                in_bank: true,
                active: true,
                assigned: Some(true),
                handler_registered: true,
            }),
            key: KeyFinding { configured: true, origin: Some("config"), ..KeyFinding::default() },
            model: ModelFinding { name: "gpt".to_owned(), known: true },
            feature_enabled: true,
        }
    }

    #[test]
    fn every_problem_has_a_sentence_of_its_own() {
        // RNCC-47
        assert_eq!(sound().verdict(), ["Everything that a turn needs is in place."]);
        type Damage = fn(&mut Diagnosis);
        let cases: [(Damage, &str); 11] = [
            (|found| found.feature_enabled = false, "switched off"),
            (|found| found.agent.as_mut().unwrap().exists = false, "no profile `home`"),
            (|found| found.agent.as_mut().unwrap().active = false, "`home` is not active"),
            (|found| found.tool.as_mut().unwrap().active = false, "`find` is not active"),
            (|found| found.tool.as_mut().unwrap().assigned = Some(false), "`home` does not have the tool `find`"),
            (|found| found.tool.as_mut().unwrap().in_bank = false, "not in the bank"),
            (|found| found.tool.as_mut().unwrap().handler_registered = false, "can run the tool `find`"),
            (|found| found.key.unreadable = true, "sealed with a master key"),
            (|found| found.key.variable = Some("A_KEY".to_owned()), "set A_KEY"),
            (|found| found.model.known = false, "the model `gpt`:"),
            (
                |found| {
                    let key = KeyFinding { variable: Some("B_KEY".to_owned()), ..KeyFinding::default() };
                    (found.model.known, found.key) = (false, key);
                },
                "set B_KEY",
            ),
        ];
        for (damage, words) in cases {
            let mut found = sound();
            damage(&mut found);
            let verdict = found.verdict();
            assert!(matches!(verdict.as_slice(), [only] if only.contains(words)), "{words}: {verdict:?}");
        }
    }

    #[test]
    fn without_a_profile_the_verdict_does_not_say_whether_a_tool_is_assigned() {
        let mut found = sound();
        found.agent = None;
        found.tool.as_mut().unwrap().assigned = None;
        assert_eq!(found.verdict(), ["Everything that a turn needs is in place."]);
    }
}
