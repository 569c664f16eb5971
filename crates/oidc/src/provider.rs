//! The configured provider: the authorisation request, the exchange of its code, and the user in the ID token.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use crate::{
    claims::{ClaimRules, ProviderUser},
    discovery::{DiscoveredProvider, Discovery, ProviderClient, ProviderMetadata},
    id_token::ExpectedClaims,
    pending::PendingSignIn,
    refusal::{SignInRefusal, SignInRefusalReason},
    signed_token::{MAX_TOKEN_BYTES, SignedToken},
};

/// The characters of a query that need no encoding (RFC 3986, unreserved).
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The longest error code of a provider in the log.
const MAX_ERROR: usize = 60;

/// The settings of a provider.
pub struct OidcSettings {
    /// The name for people.
    pub name: String,
    /// The issuer, whose configuration is below `/.well-known/`.
    pub issuer: String,
    /// The name of this server at the provider.
    pub client_id: String,
    /// The secret of this server at the provider; none for a public client.
    pub client_secret: Option<SecretString>,
    /// The scopes of the authorisation request.
    pub scopes: Vec<String>,
    /// Where the provider sends the browser back to.
    pub redirect_url: String,
    /// Where the provider sends the browser after it has ended its own session; none if it is not asked to.
    pub signed_out_url: Option<String>,
    /// How claims are read.
    pub rules: ClaimRules,
    /// The way to the provider.
    pub client: Arc<dyn ProviderClient>,
}

/// A provider that signs users in.
pub struct OidcProvider {
    settings: OidcSettings,
    discovery: Discovery,
}

/// The answer of the token endpoint.
#[derive(Deserialize)]
struct TokenAnswer {
    id_token: String,
}

/// The error of the token endpoint.
#[derive(Default, Deserialize)]
struct TokenError {
    #[serde(default)]
    error: String,
}

impl OidcProvider {
    /// A provider with these settings. Asks it nothing yet.
    pub fn new(settings: OidcSettings) -> Self {
        let discovery = Discovery::new(settings.issuer.clone(), Arc::clone(&settings.client));
        Self { settings, discovery }
    }

    /// The name for people.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// The address at which the user signs in.
    pub async fn authorization_url(&self, sign_in: &PendingSignIn) -> Result<String, SignInRefusal> {
        let provider = self.discovery.provider().await?;
        let challenge = sign_in.challenge();
        let scopes = self.settings.scopes.join(" ");
        let parameters = [
            ("response_type", "code"),
            ("client_id", &self.settings.client_id),
            ("redirect_uri", &self.settings.redirect_url),
            ("scope", &scopes),
            ("state", &sign_in.state),
            ("nonce", &sign_in.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        Ok(with_query(&provider.metadata.authorization_endpoint, &parameters))
    }

    /// Whether `iss` of an answer of the provider is right (RFC 9207); providers may leave it out.
    pub async fn expect_issuer(&self, issuer: Option<&str>) -> Result<(), SignInRefusal> {
        let Some(issuer) = issuer else { return Ok(()) };
        match self.discovery.provider().await?.metadata.issuer == issuer {
            true => Ok(()),
            false => {
                Err(SignInRefusal::new(SignInRefusalReason::ProviderError, "the answer is of another issuer (iss)"))
            }
        }
    }

    /// Exchanges the code of the provider's answer, and reads the user from the ID token.
    pub async fn user(&self, sign_in: &PendingSignIn, code: &str, now_ms: u64) -> Result<ProviderUser, SignInRefusal> {
        let provider = self.discovery.provider().await?;
        let token = self.exchange(&provider.metadata, sign_in, code).await?;
        self.read_token(&provider, sign_in, &token, now_ms).await
    }

    /// Where the browser ends its session at the provider, if that is wanted and the provider supports it.
    pub async fn end_session_url(&self) -> Option<String> {
        let signed_out_url = self.settings.signed_out_url.as_deref()?;
        let provider = self.discovery.provider().await.ok()?;
        let endpoint = provider.metadata.end_session_endpoint.as_deref()?;
        let parameters =
            [("client_id", self.settings.client_id.as_str()), ("post_logout_redirect_uri", signed_out_url)];
        Some(with_query(endpoint, &parameters))
    }

    async fn exchange(
        &self,
        metadata: &ProviderMetadata,
        sign_in: &PendingSignIn,
        code: &str,
    ) -> Result<String, SignInRefusal> {
        let settings = &self.settings;
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &settings.redirect_url),
            ("code_verifier", &sign_in.verifier),
        ];
        let mut authorization = None;
        match &settings.client_secret {
            Some(secret) if prefers_form(metadata) => {
                form.extend([("client_id", settings.client_id.as_str()), ("client_secret", secret.expose_secret())]);
            }
            Some(secret) => authorization = Some(basic(&settings.client_id, secret)?),
            None => form.push(("client_id", &settings.client_id)),
        }
        let unavailable = |detail: String| SignInRefusal::new(SignInRefusalReason::ProviderUnavailable, detail);
        let answer = settings.client.post_form(&metadata.token_endpoint, authorization, encoded(&form)).await;
        let (status, body) = answer.map_err(|problem| unavailable(format!("the token endpoint: {problem}")))?;
        if status.is_server_error() {
            return Err(unavailable(format!("the token endpoint answered with status {}", status.as_u16())));
        }
        if status != StatusCode::OK {
            let error: TokenError = serde_json::from_slice(&body).unwrap_or_default();
            let error: String = error.error.chars().filter(|one| one.is_ascii_graphic()).take(MAX_ERROR).collect();
            let detail = format!("the token endpoint refused the code with status {} `{error}`", status.as_u16());
            return Err(SignInRefusal::new(SignInRefusalReason::ProviderError, detail));
        }
        let answer: Result<TokenAnswer, _> = serde_json::from_slice(&body);
        answer.map(|answer| answer.id_token).map_err(|_| {
            SignInRefusal::new(SignInRefusalReason::ProviderError, "the answer of the token endpoint has no ID token")
        })
    }

    async fn read_token(
        &self,
        provider: &DiscoveredProvider,
        sign_in: &PendingSignIn,
        token: &str,
        now_ms: u64,
    ) -> Result<ProviderUser, SignInRefusal> {
        let invalid = |problem: &str| {
            SignInRefusal::new(SignInRefusalReason::InvalidToken, format!("the ID token is not valid: {problem}"))
        };
        let token = Some(token).filter(|token| token.len() <= MAX_TOKEN_BYTES).and_then(SignedToken::parse);
        let token = token.ok_or_else(|| invalid("it has another form, or is too long"))?;
        let verified = provider.keys.verify(token.signed()).await;
        match verified {
            Ok(true) => {}
            Ok(false) => return Err(invalid("no key of the provider has signed it")),
            Err(error) => return Err(SignInRefusal::new(SignInRefusalReason::ProviderUnavailable, error.to_string())),
        }
        let expected = ExpectedClaims {
            issuer: &provider.metadata.issuer,
            client_id: &self.settings.client_id,
            nonce: &sign_in.nonce,
            now_ms,
        };
        expected.check(token.claims()).map_err(invalid)?;
        self.settings.rules.user(token.claims())
    }
}

/// Whether the provider takes the client's secret in the form only. Without a statement it takes it in the header.
fn prefers_form(metadata: &ProviderMetadata) -> bool {
    let methods = metadata.token_endpoint_auth_methods_supported.as_deref().unwrap_or_default();
    let has = |name: &str| methods.iter().any(|method| method == name);
    has("client_secret_post") && !has("client_secret_basic")
}

/// The header with the client's secret (RFC 6749, section 2.3.1: both parts are encoded first).
fn basic(client_id: &str, secret: &SecretString) -> Result<HeaderValue, SignInRefusal> {
    let encoded = |text: &str| utf8_percent_encode(text, QUERY).to_string();
    let pair = format!("{}:{}", encoded(client_id), encoded(secret.expose_secret()));
    let value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)));
    let mut value = value.map_err(|_| {
        SignInRefusal::new(SignInRefusalReason::Unavailable, "the client's secret cannot be sent in a header")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn encoded(parameters: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| format!("{name}={}", utf8_percent_encode(value, QUERY));
    parameters.iter().map(pair).collect::<Vec<_>>().join("&")
}

/// An address with further parameters; it may have some already.
fn with_query(address: &str, parameters: &[(&str, &str)]) -> String {
    let separator = match address.split_once('?') {
        None => "?",
        Some((_, "")) => "",
        Some(_) => "&",
    };
    [address, separator, &encoded(parameters)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_encoded_and_added_to_those_of_the_address() {
        let parameters = [("redirect_uri", "https://a.example/x?y=1"), ("scope", "openid email")];
        let expected = "redirect_uri=https%3A%2F%2Fa.example%2Fx%3Fy%3D1&scope=openid%20email";
        assert_eq!(with_query("https://id/a", &parameters), format!("https://id/a?{expected}"));
        assert_eq!(with_query("https://id/a?", &parameters), format!("https://id/a?{expected}"));
        assert_eq!(with_query("https://id/a?t=1", &parameters), format!("https://id/a?t=1&{expected}"));
    }

    #[test]
    fn the_secret_is_encoded_before_it_is_put_into_the_header() {
        let header = basic("my:id", &"p%s d".into()).unwrap();
        let decoded = STANDARD.decode(header.to_str().unwrap().strip_prefix("Basic ").unwrap()).unwrap();
        assert_eq!(String::from_utf8(decoded).unwrap(), "my%3Aid:p%25s%20d");
        assert!(header.is_sensitive());
    }

    #[test]
    fn the_secret_is_sent_as_the_provider_takes_it() {
        let metadata = |methods: Option<&[&str]>| ProviderMetadata {
            issuer: String::new(),
            authorization_endpoint: String::new(),
            token_endpoint: String::new(),
            jwks_uri: String::new(),
            end_session_endpoint: None,
            token_endpoint_auth_methods_supported: methods
                .map(|methods| methods.iter().map(|method| (*method).to_owned()).collect()),
        };
        assert!(!prefers_form(&metadata(None)));
        assert!(!prefers_form(&metadata(Some(&["client_secret_post", "client_secret_basic"]))));
        assert!(prefers_form(&metadata(Some(&["client_secret_post", "private_key_jwt"]))));
    }
}
