//! `amalgam keys rotate-master`: a new master key in front of the others, and everything in the store sealed with it.
//!
//! The earlier keys stay: what clients hold was sealed with them. Callers notice nothing; a running server takes the new
//! key up within seconds.

use amalgam_core::{Operator, Seal, Store};
use amalgam_server::{SEALED_MEMORIES, memory_context};
use amalgam_store::{KeyRing, Sealer};
use anyhow::{Context as _, bail};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::cli::ConfigArgs;
use crate::desk::Desk;
use crate::terminal::{say, say_json};

pub(super) async fn run(args: ConfigArgs, as_data: bool) -> anyhow::Result<()> {
    let desk = Desk::open(args).await?;
    // Everything has to open before anything is changed.
    let before = ring(&desk)?;
    look(&*desk.store, &Sealer::new(&before)).await?;

    let (ring, place) = match &desk.config.secret_key {
        // Only the operator can change a variable: the new key is the first one that is there.
        Some(_) => (before, "AMALGAM_SECRET_KEY".to_owned()),
        None => {
            let path = desk.config.key_file();
            (KeyRing::rotate(&path).context("adding a master key")?, path.display().to_string())
        }
    };
    let sealed = seal_anew(&*desk.store, &Sealer::new(&ring)).await?;
    let ids: Vec<String> = ring.ids().map(|id| id.to_string()).collect();
    let newest = ids.first().context("a ring has a key")?;
    if as_data {
        return Ok(say_json(&json!({"newest": newest, "keys": ids, "place": place, "sealed_anew": sealed}))?);
    }
    say(format_args!(
        "{place} has {} master keys; {newest} seals from now on\nsealed anew in the store: {}",
        ids.len(),
        if sealed.is_empty() { "nothing".to_owned() } else { sealed.join(", ") }
    ))?;
    Ok(())
}

fn ring(desk: &Desk) -> anyhow::Result<KeyRing> {
    match &desk.config.secret_key {
        Some(keys) => KeyRing::from_text(keys.expose_secret()).context("reading AMALGAM_SECRET_KEY"),
        None => KeyRing::load_or_create(&desk.config.key_file()).context("reading the master keys"),
    }
}

/// Makes sure that everything in the store opens.
async fn look(store: &dyn Store, seal: &dyn Seal) -> anyhow::Result<()> {
    for name in SEALED_MEMORIES {
        if let Some(sealed) = store.remembered(Operator::of_this_process(), name).await? {
            open(seal, name, &sealed)?;
        }
    }
    Ok(())
}

/// Everything that the store holds sealed, sealed with the newest key; the names of what that was.
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

fn open(seal: &dyn Seal, name: &str, sealed: &str) -> anyhow::Result<Vec<u8>> {
    match seal.open(&memory_context(name), sealed) {
        Some(plain) => Ok(plain),
        None => bail!("`{name}` in the store was sealed with a master key that is not there; nothing was changed"),
    }
}
