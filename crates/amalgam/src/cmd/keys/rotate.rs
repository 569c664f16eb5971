//! `amalgam keys rotate-master`: adds a new master key and seals everything in the store with it.
//!
//! Earlier keys stay, because clients hold data that was sealed with them. A running server loads the new key within
//! seconds.

use amalgam_administration::keys::{SEALED_MEMORIES, memory_context};
use amalgam_app::TenantConfigs;
use amalgam_assistant::settings::AgentSettings;
use amalgam_core::{
    AuditAction, INSTALLATION, Operator, Scope, Seal, Store,
    store::{BankOf, BankTool, Within},
};
use amalgam_protocol::Json;
use amalgam_store::{KeyRing, Sealer};
use amalgam_tools::reseal_settings;
use anyhow::{Context as _, bail};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::cli::ConfigArgs;
use crate::cmd::tenants;
use crate::command_context::{CommandContext, actor, now_ms};
use crate::terminal::{print_json, print_stdout};

const ROTATE: AuditAction = AuditAction::new("master_key.rotate");

/// The number of tools that one read returns.
const PAGE: usize = 200;

pub(super) async fn run(args: ConfigArgs, as_data: bool) -> anyhow::Result<()> {
    let context = CommandContext::open(args).await?;
    // All sealed data must open before anything is changed.
    let before = ring(&context)?;
    look(&*context.store, &Sealer::new(&before)).await?;
    resealed_tools(&context, &Sealer::new(&before)).await?;
    look_at_configs(&context, &Sealer::new(&before)).await?;

    let details = json!({"keys_before": before.ids().map(|id| id.to_string()).collect::<Vec<_>>()});
    context.administration().announce(INSTALLATION, ROTATE, "master", &details).await?;
    let (ring, place) = match &context.config.secret_key {
        // Only the operator can change a variable: its first key is the new one.
        Some(_) => (before, "AMALGAM_SECRET_KEY".to_owned()),
        None => {
            let path = context.config.key_file();
            (KeyRing::rotate(&path).context("adding a master key")?, path.display().to_string())
        }
    };
    let seal = Sealer::new(&ring);
    let sealed = seal_anew(&*context.store, &seal).await?;
    let mut tools = 0;
    for tool in resealed_tools(&context, &seal).await? {
        tools += usize::from(put_back(&*context.store, &seal, tool).await?);
    }
    let configs = reseal_configs(&context, &seal).await?;
    let ids: Vec<String> = ring.ids().map(|id| id.to_string()).collect();
    let newest = ids.first().context("a ring has a key")?;
    if as_data {
        return Ok(print_json(
            &json!({"newest": newest, "keys": ids, "place": place, "sealed_anew": sealed, "tools": tools, "configs": configs}),
        )?);
    }
    let resealed: Vec<String> =
        sealed.iter().map(|name| (*name).to_owned()).chain(of_tools(tools)).chain(of_configs(configs)).collect();
    print_stdout(format_args!(
        "{place} has {} master keys; {newest} seals from now on\nsealed anew in the store: {}",
        ids.len(),
        if resealed.is_empty() { "nothing".to_owned() } else { resealed.join(", ") }
    ))?;
    Ok(())
}

fn ring(context: &CommandContext) -> anyhow::Result<KeyRing> {
    match &context.config.secret_key {
        Some(keys) => KeyRing::from_text(keys.expose_secret()).context("reading AMALGAM_SECRET_KEY"),
        None => KeyRing::load_or_create(&context.config.key_file()).context("reading the master keys"),
    }
}

/// Checks that all sealed data in the store opens.
async fn look(store: &dyn Store, seal: &dyn Seal) -> anyhow::Result<()> {
    for name in SEALED_MEMORIES {
        if let Some(sealed) = store.remembered(Operator::of_this_process(), name).await? {
            open(seal, name, &sealed)?;
        }
    }
    Ok(())
}

/// Seals all sealed values of the store with the newest key. Returns their names.
async fn seal_anew(store: &dyn Store, seal: &dyn Seal) -> anyhow::Result<Vec<&'static str>> {
    let operator = Operator::of_this_process();
    let mut done = Vec::new();
    for name in SEALED_MEMORIES {
        if let Some(sealed) = store.remembered(operator, name).await? {
            let plain = open(seal, name, &sealed)?;
            store.remember(operator, name, &seal.seal(&memory_context(name), &plain), true).await?;
            done.push(name);
        }
    }
    Ok(done)
}

/// A tool with secrets, as it was read.
struct ResealedTool {
    /// The scope of the bank that the tool is in.
    scope: Scope,
    tool: BankTool,
    /// The settings, with their secrets sealed with the new key.
    settings: Json,
}

/// Writes the resealed settings of a tool. A tool that was changed meanwhile is read and resealed again, and a deleted
/// one stays deleted. Returns whether settings were written.
async fn put_back(store: &dyn Store, seal: &dyn Seal, resealed: ResealedTool) -> anyhow::Result<bool> {
    let ResealedTool { scope, mut tool, mut settings } = resealed;
    loop {
        if store.reseal_tool(bank_of(&scope), &tool.name, &tool.settings, &settings).await? {
            return Ok(true);
        }
        let Some(changed) = store.tool(bank_of(&scope), &tool.name).await? else { return Ok(false) };
        match reseal_settings(seal, &scope, &changed) {
            Some(anew) if anew == changed.settings => return Ok(false),
            Some(anew) => (tool, settings) = (changed, anew),
            None => bail!("a new secret of the tool `{}` was sealed with a master key that is missing", tool.name),
        }
    }
}

/// Returns every tool that has secrets, with its secrets sealed with the new key. Writes nothing.
async fn resealed_tools(context: &CommandContext, seal: &dyn Seal) -> anyhow::Result<Vec<ResealedTool>> {
    let mut scopes = vec![context.operator()];
    for tenant in tenants::all(context.administration()).await? {
        scopes.push(context.administrator(tenant.id).await?);
    }
    let mut resealed = Vec::new();
    for scope in scopes {
        let mut after: Option<String> = None;
        loop {
            let page = context.store.tools(bank_of(&scope), after.as_deref(), PAGE).await?;
            after = page.last().map(|tool| tool.name.clone());
            let last = page.len() < PAGE;
            for tool in page {
                match reseal_settings(seal, &scope, &tool) {
                    Some(settings) if settings == tool.settings => {}
                    Some(settings) => resealed.push(ResealedTool { scope: scope.clone(), tool, settings }),
                    None => bail!(
                        "a secret of the tool `{}` was sealed with a master key that is missing; nothing was changed",
                        tool.name
                    ),
                }
            }
            if last {
                break;
            }
        }
    }
    Ok(resealed)
}

/// The bank that a scope is for: its tenant's, or the common one.
fn bank_of(scope: &Scope) -> BankOf<'_> {
    match scope.admin() {
        Some(admin) => BankOf::Tenant(admin),
        None => BankOf::Common(Operator::of_this_process()),
    }
}

fn of_tools(tools: usize) -> Option<String> {
    match tools {
        0 => None,
        1 => Some("the secrets of one tool".to_owned()),
        count => Some(format!("the secrets of {count} tools")),
    }
}

/// Checks that every tenant's upstream key opens.
async fn look_at_configs(context: &CommandContext, seal: &dyn Seal) -> anyhow::Result<()> {
    let nothing = AgentSettings::default();
    let configs = TenantConfigs { store: &*context.store, settings: &nothing, now_ms: now_ms() };
    for tenant in tenants::all(context.administration()).await? {
        let stored = configs.load(Within::Named(Operator::of_this_process(), tenant.id)).await?;
        if stored.with_opened_key(seal, &context.administrator(tenant.id).await?.seal_context()).is_none() {
            bail!("the key of tenant {} was sealed with a master key that is missing; nothing was changed", tenant.id);
        }
    }
    Ok(())
}

/// Seals every tenant's upstream key with the new key, and returns how many. A key that changes meanwhile is read
/// again.
async fn reseal_configs(context: &CommandContext, seal: &dyn Seal) -> anyhow::Result<usize> {
    let nothing = AgentSettings::default();
    let configs = TenantConfigs { store: &*context.store, settings: &nothing, now_ms: now_ms() };
    let (mut done, actor) = (0, actor());
    for tenant in tenants::all(context.administration()).await? {
        let within = Within::Named(Operator::of_this_process(), tenant.id);
        if configs.load(within).await?.api_key.is_none() {
            continue;
        }
        let seal_context = context.administrator(tenant.id).await?.seal_context();
        let resealed = configs.change(within, &actor, |draft| {
            let plain = draft.api_key.as_ref().and_then(|sealed| seal.open(&seal_context, sealed));
            let anew = plain.map(|plain| seal.seal(&seal_context, &plain));
            let sealed = anew.is_some();
            draft.api_key = anew.or(draft.api_key.take());
            Ok(sealed)
        });
        done += usize::from(resealed.await?.is_some_and(|(_, sealed)| sealed));
    }
    Ok(done)
}

fn of_configs(configs: usize) -> Option<String> {
    match configs {
        0 => None,
        1 => Some("the key of one tenant".to_owned()),
        count => Some(format!("the keys of {count} tenants")),
    }
}

fn open(seal: &dyn Seal, name: &str, sealed: &str) -> anyhow::Result<Vec<u8>> {
    match seal.open(&memory_context(name), sealed) {
        Some(plain) => Ok(plain),
        None => bail!("`{name}` in the store was sealed with a master key that is missing; nothing was changed"),
    }
}
