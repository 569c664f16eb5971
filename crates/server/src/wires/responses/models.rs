//! `GET /v1/models` and `GET /v1/models/{id}`

use amalgam_app::{
    Application,
    assistant::{Agent, is_enabled, require_enabled},
    turns::no_such_model,
};
use amalgam_core::{Fault, ModelCard, Scope, store::AgentProfile};
use amalgam_protocol::Writer;
use axum::response::Response;

use crate::wires::call::Call;
use crate::wires::{WireError, answer};

/// All models that the caller may use.
pub(super) async fn list(Call { app, scope, .. }: Call) -> Result<Response, WireError> {
    let mut cards = app.catalog.list(&scope).await;
    let (known_limits, key_id) = (app.engine.limiter().known(), key_id(&scope));
    cards.retain(|card| {
        // By the same names as a request that asks for it.
        let full_name = format!("{}/{}", card.owned_by, card.upstream_model);
        known_limits.allows_model(&scope, key_id, &[card.id.clone(), full_name, card.upstream_model.clone()])
    });
    let names_models = known_limits.names_models(&scope, key_id);
    let profiles = match is_enabled(&app, &scope).await? {
        true => app.store.active_profiles(&scope).await?,
        false => Vec::new(),
    };
    for profile in profiles {
        let is_known = cards.iter().any(|card| card.id == profile.slug);
        if !is_known && (!names_models || check_profile(&app, &scope, &profile).await.is_ok()) {
            cards.push(card_of(&profile));
        }
    }
    let mut writer = Writer::with_capacity(256 * cards.len() + 64);
    writer.object(|writer| {
        writer.key("object").string("list");
        writer.key("data").array(|writer| cards.iter().for_each(|card| write(writer, card)));
    });
    Ok(answer::json(writer.into_bytes()))
}

/// One model with its capabilities.
pub(super) async fn get(Call { app, scope, path, .. }: Call) -> Result<Response, WireError> {
    let id = path.text(0);
    let mut writer = Writer::with_capacity(512);
    match app.catalog.resolve(&scope, id).await? {
        Some(route) => {
            let known_limits = app.engine.limiter().known();
            known_limits.check_model(&scope, key_id(&scope), id, route.candidates.first())?;
            write(&mut writer, &route.card);
        }
        None => {
            let profile = app.store.profile(&scope, id).await?.filter(|profile| profile.active);
            let profile = profile.ok_or_else(|| no_such_model(id))?;
            require_enabled(&app, &scope).await?;
            check_profile(&app, &scope, &profile).await?;
            write(&mut writer, &card_of(&profile));
        }
    }
    Ok(answer::json(writer.into_bytes()))
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

fn write(writer: &mut Writer, card: &ModelCard) {
    writer.object(|writer| {
        writer.key("id").string(&card.id);
        writer.key("object").string("model");
        writer.key("created").number(card.created);
        writer.key("owned_by").string(&card.owned_by);
        writer.key("capabilities").object(|writer| {
            writer.key("wire").string(&card.wire);
            for (name, number) in
                [("context_window", card.context_window), ("max_output_tokens", card.max_output_tokens)]
            {
                match number {
                    Some(number) => writer.key(name).number(number),
                    None => writer.key(name).null(),
                }
            }
            writer.key("modalities").array(|writer| card.modalities.iter().for_each(|one| writer.string(one)));
            writer.key("streaming").bool(true);
            writer.key("tools").bool(card.tools);
            writer.key("structured_output").bool(card.structured_output);
            writer.key("fallback").array(|writer| card.fallback.iter().for_each(|one| writer.string(one)));
        });
    });
}
