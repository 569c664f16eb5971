//! `amalgam keys`: API keys. A key is printed once, when it is created. A running server accepts it at once, and refuses a
//! revoked key within seconds.

mod rotate;

use std::process::ExitCode;

use amalgam_administration::{
    UnixSeconds, all_pages,
    keys::{KeyOrder, KeyView, NewKeyView, is_user},
};
use amalgam_core::{FaultKind, Rights};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::cli::StoreArgs;
use crate::command_context::{CommandContext, now_ms, reworded};
use crate::table::{moment, table};
use crate::terminal::{print_json, print_stderr, print_stdout};
use amalgam_core::duration_from_text;

#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create an API key and print it; it cannot be printed again
    Create(CreateArgs),
    /// List keys, without their secret part
    List {
        /// Only keys of this tenant
        #[arg(long, value_name = "ID", visible_alias = "company-id")]
        tenant: Option<i64>,
        #[command(flatten)]
        common: StoreArgs,
    },
    /// Revoke a key
    Revoke {
        /// Key id, as printed by `keys list`
        #[arg(value_name = "KEY_ID")]
        id: String,
        #[command(flatten)]
        common: StoreArgs,
    },
    /// Add a master key and re-encrypt all sealed data with it
    RotateMaster {
        #[command(flatten)]
        common: StoreArgs,
    },
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// Tenant id
    #[arg(long, value_name = "ID", visible_alias = "company-id")]
    tenant: i64,
    /// Rights of the key: use (call the APIs), view (read its tenant), admin (its tenant), operator (all tenants); repeatable [default: use]
    #[arg(long = "scope", value_name = "SCOPE", value_parser = right)]
    scopes: Vec<Rights>,
    /// Bind the key to this user; otherwise callers name the user in X-Amalgam-User
    #[arg(long)]
    user: Option<String>,
    /// Display name
    #[arg(long)]
    label: Option<String>,
    /// Lifetime, such as 90d or 12h; unlimited by default
    #[arg(long, value_name = "DURATION")]
    expires: Option<String>,
    #[command(flatten)]
    common: StoreArgs,
}

pub(crate) async fn run(args: KeysArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Create(args) => create(args).await?,
        Action::List { tenant, common } => {
            let context = CommandContext::open_read_only(common.config).await?;
            let (scope, administration) = (context.operator(), context.administration());
            let keys = all_pages(async |page| administration.keys(&scope, tenant, &page).await).await?;
            match common.json {
                true => print_json(&json!({"object": "list", "data": keys}))?,
                false => print_stdout(as_table(&keys))?,
            }
        }
        Action::Revoke { id, common } => {
            let context = CommandContext::open(common.config).await?;
            let revoked = context.administration().revoke_key(&context.operator(), None, &id).await;
            let key = reworded(revoked, FaultKind::NotFound, || format!("there is no key {id}"))?;
            match common.json {
                true => print_json(&json!(key))?,
                false => print_stdout(format_args!("{id} is revoked; running servers refuse it within 5 seconds"))?,
            }
        }
        Action::RotateMaster { common } => rotate::run(common.config, common.json).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(args: CreateArgs) -> anyhow::Result<()> {
    let now_ms = now_ms();
    let expires_at_ms = args.expires.as_deref().map(|text| expiry(text, now_ms)).transpose()?;
    if args.user.as_deref().is_some_and(|user| !is_user(user)) {
        bail!("a user has 1 to 256 printable characters and does not begin with `key:`");
    }
    if args.label.as_deref().is_some_and(|label| label.chars().count() > 200 || label.chars().any(char::is_control)) {
        bail!("a label has at most 200 printable characters");
    }
    let rights = match args.scopes.is_empty() {
        true => Rights::USE,
        false => args.scopes.into_iter().fold(Rights::NONE, Rights::and),
    };
    let context = CommandContext::open(args.common.config).await?;
    let order = KeyOrder { tenant_id: args.tenant, rights, user: args.user, label: args.label, expires_at_ms };
    let pepper = context.pepper().await?;
    let issued = context.administration().create_key(&pepper, order).await;
    let issued = reworded(issued, FaultKind::NotFound, || format!("there is no tenant {}", args.tenant))?;
    if args.common.json {
        return Ok(print_json(&json!(NewKeyView::from(issued)))?);
    }
    // The key alone on standard output, for scripts; the other output is for users.
    print_stdout(issued.key.expose_secret())?;
    let rights: Vec<&str> = issued.record.rights.names().collect();
    print_stderr(format_args!(
        "{} of tenant {} ({}); keep it, it is shown only now",
        issued.record.id,
        issued.record.tenant_id,
        rights.join(", ")
    ));
    Ok(())
}

/// A right by its name.
pub(crate) fn right(text: &str) -> Result<Rights, String> {
    Rights::named(text).ok_or_else(|| Rights::all_names().collect::<Vec<_>>().join(", "))
}

fn expiry(text: &str, now_ms: u64) -> anyhow::Result<u64> {
    let duration = duration_from_text(text).filter(|duration| !duration.is_zero());
    let duration = duration.with_context(|| format!("'{text}' is not a duration such as 90d or 12h"))?;
    Ok(now_ms.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
}

fn as_table(keys: &[KeyView]) -> String {
    let row = |KeyView { id, fields, .. }: &KeyView| {
        let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let time = |at: Option<UnixSeconds>| moment(at.map(UnixSeconds::to_ms));
        [
            id.clone(),
            fields.tenant_id.to_string(),
            format!("{}…", fields.prefix),
            fields.scopes.0.names().collect::<Vec<_>>().join(","),
            dash(&fields.user),
            dash(&fields.label),
            time(Some(fields.created_at)),
            time(fields.expires_at),
            time(fields.last_used_at),
            time(fields.revoked_at),
        ]
    };
    let headings = ["id", "tenant", "key", "scopes", "user", "label", "created", "expires", "last used", "revoked"];
    table(headings, &keys.iter().map(row).collect::<Vec<_>>())
}
