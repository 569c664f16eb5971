//! The models that a caller may use: configured and listed models, and active profiles.

use amalgam_core::{Fault, ModelCard, Scope, store::AgentProfile};

use crate::{
    app::Application,
    assistant::{Agent, is_enabled, require_enabled},
    turns::no_such_model,
};

/// All models that the caller may use.
pub async fn usable_models(app: &Application, scope: &Scope) -> Result<Vec<ModelCard>, Fault> {
    let mut cards = app.catalog.list(scope).await;
    let (known_limits, key_id) = (app.engine.limiter().known(), key_id(scope));
    cards.retain(|card| {
        // By the same names as a request that asks for it.
        let full_name = format!("{}/{}", card.owned_by, card.upstream_model);
        known_limits.allows_model(scope, key_id, &[card.id.clone(), full_name, card.upstream_model.clone()])
    });
    let names_models = known_limits.names_models(scope, key_id);
    let profiles = match is_enabled(app, scope).await? {
        true => app.store.active_profiles(scope).await?,
        false => Vec::new(),
    };
    for profile in profiles {
        let is_known = cards.iter().any(|card| card.id == profile.slug);
        if !is_known && (!names_models || check_profile(app, scope, &profile).await.is_ok()) {
            cards.push(card_of(&profile));
        }
    }
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
    check_profile(app, scope, &profile).await?;
    Ok(card_of(&profile))
}

fn key_id(scope: &Scope) -> Option<&str> {
    scope.key_id().map(|id| &**id)
}

/// Refuses a profile that the caller's limits name neither by itself nor by its model.
async fn check_profile(app: &Application, scope: &Scope, profile: &AgentProfile) -> Result<(), Fault> {
    let known_limits = app.engine.limiter().known();
    if !known_limits.names_models(scope, key_id(scope)) {
        return Ok(());
    }
    // A profile whose model no upstream has is known by its own name only.
    let route = Agent::with(app, scope, Some(profile.clone())).await?.route(app, scope).await.ok();
    let first = route.as_ref().and_then(|route| route.candidates.first());
    known_limits.check_model(scope, key_id(scope), &profile.slug, first)
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
