//! Browser tokens: sealed by the server, so that every process accepts them without a row; and the terms of their use.

use std::time::Duration;

use amalgam_assistant::client_secret::ClientSecret;
use amalgam_core::{Fault, FaultKind, Scope, Seal};

use crate::app::Application;

/// The beginning of every browser token. No key begins with it.
pub const CLIENT_SECRET_PREFIX: &str = "amc_";

/// The context that tokens are sealed for.
const CONTEXT: &str = "client secret";

const DAY_MS: u64 = 86_400_000;

/// A token as text.
pub fn seal_client_secret(seal: &dyn Seal, secret: &ClientSecret) -> String {
    [CLIENT_SECRET_PREFIX, &seal.seal(CONTEXT, &secret.write())].concat()
}

/// What a token says; none if this installation has not sealed it.
pub fn open_client_secret(seal: &dyn Seal, token: &str) -> Option<ClientSecret> {
    ClientSecret::read(&seal.open(CONTEXT, token.strip_prefix(CLIENT_SECRET_PREFIX)?)?)
}

/// Refuses an agent that the caller's token does not name; other credentials may talk to every agent.
pub(super) fn require_agent(scope: &Scope, slug: Option<&str>) -> Result<(), Fault> {
    let Some(terms) = scope.client() else { return Ok(()) };
    match slug.is_some_and(|slug| terms.agents.iter().any(|agent| agent == slug)) {
        true => Ok(()),
        false => Err(Fault::new(FaultKind::Forbidden, "This token is for other agents.").code("agent_not_allowed")),
    }
}

/// Counts a message against the daily budget of the caller's token. Days begin at midnight UTC.
pub(super) async fn count_message(app: &Application, scope: &Scope) -> Result<(), Fault> {
    let Some(terms) = scope.client() else { return Ok(()) };
    let now_ms = app.clock.now_ms();
    match app.store.count_client_message(scope, now_ms / DAY_MS, terms.messages_per_day).await? {
        true => Ok(()),
        false => Err(Fault::new(FaultKind::RateLimited, "The messages of today are used up.")
            .code("message_budget_spent")
            .retry_after(Some(Duration::from_millis(DAY_MS - now_ms % DAY_MS)))),
    }
}
