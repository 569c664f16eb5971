//! The OpenID Connect provider of the configuration. Requests to it go through the guarded egress, with the issuer's own address
//! allowed, as for a collector of telemetry. Its other addresses, such as that of its keys, are public or listed in `[egress]`.

use std::{sync::Arc, time::Duration};

use amalgam_configuration::OidcConfig;
use amalgam_core::{BoxFuture, Fault, Fetch, FetchedFile};
use amalgam_oidc::{ClaimRules, OidcSettings, ProviderClient};
use amalgam_tools::{Allowed, Egress, EgressLimits};
use anyhow::Context as _;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use crate::wire_up::egress_to_and;

/// The path of the route that receives the provider's answer.
const CALLBACK: &str = "/admin/console/oidc/callback";

/// The limits of an exchange of a code.
const EXCHANGE: EgressLimits = EgressLimits { bytes: 256 * 1024, timeout: Duration::from_secs(10) };

/// The settings of the provider, for a server with this public URL.
pub(crate) fn settings(oidc: &OidcConfig, public_url: &str, private: Vec<Allowed>) -> anyhow::Result<OidcSettings> {
    let egress = egress_to_and(&oidc.issuer, private).context("reading the issuer of [console.oidc]")?;
    let redirect_url = oidc.redirect_url.clone().unwrap_or_else(|| [public_url, CALLBACK].concat());
    // The browser is under the host of the redirect URL.
    let signed_out_url = [redirect_url.trim_end_matches(CALLBACK), "/console/"].concat();
    Ok(OidcSettings {
        name: oidc.name.clone(),
        issuer: oidc.issuer.clone(),
        client_id: oidc.client_id.clone(),
        client_secret: oidc.client_secret.clone(),
        scopes: oidc.scopes.clone(),
        redirect_url,
        signed_out_url: oidc.end_session.then_some(signed_out_url),
        rules: ClaimRules {
            tenant_claim: oidc.tenant_claim.clone(),
            tenant: oidc.tenant,
            user: oidc.user_claim.clone(),
            roles_claim: oidc.roles_claim.clone(),
            roles: oidc.roles.clone(),
            default_rights: oidc.default_rights,
            email_domains: oidc.email_domains.clone(),
        },
        client: Arc::new(GuardedClient(egress)),
    })
}

/// Reaches the provider by HTTP.
struct GuardedClient(Egress);

impl Fetch for GuardedClient {
    fn fetch<'a>(&'a self, url: &'a str, limit: usize) -> BoxFuture<'a, Result<FetchedFile, Fault>> {
        self.0.fetch(url, limit)
    }

    fn check<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        self.0.check(url)
    }
}

impl ProviderClient for GuardedClient {
    fn post_form<'a>(
        &'a self,
        url: &'a str,
        authorization: Option<HeaderValue>,
        form: String,
    ) -> BoxFuture<'a, Result<(StatusCode, Bytes), String>> {
        Box::pin(async move {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
            headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
            headers.extend(authorization.map(|value| (header::AUTHORIZATION, value)));
            let answer = self.0.request(Method::POST, url, headers, form.into(), EXCHANGE).await;
            let answer = answer.map_err(|error| error.to_string())?;
            Ok((answer.status(), answer.into_body()))
        })
    }
}
