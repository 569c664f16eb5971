//! Who is asking. One extractor for every wire; no key, no scope.

use std::collections::HashMap;

use amalgam_core::{Fault, FaultKind, Rights, Scope, TenantState};
use http::{HeaderMap, header};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

/// A tenant as the configuration has it.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// The tenant's number.
    pub id: i64,
    /// Whether its responses are kept.
    pub state: TenantState,
    /// What its callers send.
    pub keys: Vec<SecretString>,
}

/// Tells callers apart.
#[derive(Debug, Clone)]
pub struct Auth {
    /// Scopes by the SHA-256 of the whole key: a lookup takes the same time for every wrong key.
    keys: HashMap<[u8; 32], Scope>,
    /// The scope of callers without a key, where the operator serves loopback only and has set none.
    open: Option<Scope>,
}

impl Auth {
    /// Knows these tenants. Without a single key everybody is the first tenant; the binary allows that on loopback only.
    pub fn new(tenants: &[Tenant]) -> Self {
        let scope = |tenant: &Tenant| Scope::authenticated(tenant.id, "tenant", tenant.state, Rights::USE);
        let keys: HashMap<_, _> = tenants
            .iter()
            .flat_map(|tenant| tenant.keys.iter().map(move |key| (hash(key.expose_secret()), scope(tenant))))
            .collect();
        let open = if keys.is_empty() { tenants.first().map(scope) } else { None };
        Self { keys, open }
    }

    /// The caller's scope, by its `Authorization: Bearer …`.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<Scope, Fault> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (first, second) = (values.next(), values.next());
        if let Some(open) = &self.open {
            return Ok(open.clone());
        }
        let refused = |message: &'static str| Fault::new(FaultKind::Unauthenticated, message);
        let Some(value) = first else {
            return Err(refused("You didn't provide an API key. Send it as `Authorization: Bearer YOUR_KEY`."));
        };
        if second.is_some() {
            return Err(refused("More than one Authorization header was sent."));
        }
        let key = value.to_str().ok().and_then(|value| {
            let (scheme, key) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
        });
        let Some(key) = key else {
            return Err(refused("The Authorization header must be `Bearer YOUR_KEY`."));
        };
        self.keys.get(&hash(key)).cloned().ok_or_else(|| refused("Incorrect API key provided."))
    }
}

fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auth(keys: &[&str]) -> Auth {
        let keys = keys.iter().map(|key| SecretString::from(*key)).collect();
        Auth::new(&[Tenant { id: 7, state: TenantState::Stored, keys }])
    }

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (header::AUTHORIZATION, value.parse().unwrap())).collect()
    }

    #[test]
    fn a_known_key_gives_its_tenant_and_everything_else_is_refused() {
        // S18
        let auth = auth(&["am_one"]);
        assert_eq!(auth.admit(&headers(&["Bearer am_one"])).unwrap().tenant_id(), 7);
        assert_eq!(auth.admit(&headers(&["bearer  am_one "])).unwrap().tenant_id(), 7);
        for wrong in [
            &[][..],
            &["Bearer am_two"],
            &["am_one"],
            &["Basic am_one"],
            &["Bearer am_one", "Bearer am_one"],
            &["Bearer "],
        ] {
            assert_eq!(auth.admit(&headers(wrong)).unwrap_err().kind, FaultKind::Unauthenticated, "{wrong:?}");
        }
    }

    #[test]
    fn without_any_key_everybody_is_the_first_tenant() {
        assert_eq!(auth(&[]).admit(&HeaderMap::new()).unwrap().tenant_id(), 7);
    }
}
