//! OpenID Connect: signed tokens, the key sets of their issuers, and sign-in by a provider (authorisation code with PKCE).
//!
//! This crate knows the protocol. How requests reach the provider, where sessions are stored and what a browser is sent is the
//! part of others: [`ProviderClient`] is the way out, and the server has the routes.

mod claims;
mod discovery;
mod id_token;
mod jwks;
mod pending;
mod provider;
mod refusal;
mod signed_token;

pub use claims::{ClaimRules, ProviderUser};
pub use discovery::ProviderClient;
pub use jwks::{Jwks, JwksLocation, SignedMessage};
pub use pending::{KeyedHash, PendingSignIn, SIGN_IN_LIFETIME, return_path};
pub use provider::{OidcProvider, OidcSettings};
pub use refusal::{SignInRefusal, SignInRefusalReason};
pub use signed_token::{CLOCK_SKEW_MS, MAX_TOKEN_BYTES, SignedToken, claim_time, names_audience, tenant_number};
