//! The models that a caller may use: configured and listed models, and active profiles.

use amalgam_core::{Fault, ModelCard, Scope, store::AgentProfile};

use crate::{
    app::Application,
    assistant::{is_enabled, require_enabled},
    turns::no_such_model,
};

/// All models that the caller may use.
pub async fn usable_models(app: &Application, scope: &Scope) -> Result<Vec<ModelCard>, Fault> {
    let mut cards = app.catalog.list(scope).await;
    let profiles = match is_enabled(app, scope).await? {
        true => app.store.active_profiles(scope).await?,
        false => Vec::new(),
    };
    for profile in profiles {
        if !cards.iter().any(|card| card.id == profile.slug) {
            cards.push(card_of(&profile));
        }
    }
    let known_limits = app.engine.limiter().known();
    cards.retain(|card| {
        // By the same names as a request that asks for it.
        let own = format!("{}/{}", card.owned_by, card.id);
        let is_allowed = |name: &str| known_limits.check_model(scope, key_id(scope), name, None).is_ok();
        is_allowed(&card.id) || is_allowed(&own)
    });
    Ok(cards)
}

/// One model with its capabilities.
pub async fn usable_model(app: &Application, scope: &Scope, id: &str) -> Result<ModelCard, Fault> {
    if let Some(route) = app.catalog.resolve(scope, id).await? {
        let known_limits = app.engine.limiter().known();
        known_limits.check_model(scope, key_id(scope), id, route.candidates.first())?;
        return Ok((*route.card).clone());
    }
    let profile = app.store.profile(scope, id).await?.filter(|profile| profile.active);
    let profile = profile.ok_or_else(|| no_such_model(id))?;
    require_enabled(app, scope).await?;
    Ok(card_of(&profile))
}

fn key_id(scope: &Scope) -> Option<&str> {
    scope.key_id().map(|id| &**id)
}

/// A profile as a model: its capabilities depend on its own model.
fn card_of(profile: &AgentProfile) -> ModelCard {
    ModelCard {
        id: profile.slug.clone(),
        owned_by: "assistant".to_owned(),
        wire: "profile".to_owned(),
        created: profile.created_at_ms / 1000,
        modalities: vec!["text".to_owned(), "image".to_owned()],
        tools: true,
        structured_output: true,
        ..ModelCard::default()
    }
}
