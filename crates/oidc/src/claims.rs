//! What the claims of an ID token say about a user here: tenant, name, rights.

use std::collections::BTreeMap;

use amalgam_core::Rights;
use serde_json::{Map, Value};

use crate::{
    refusal::{SignInRefusal, SignInRefusalReason},
    signed_token::tenant_number,
};

/// The longest name that is stored.
const MAX_NAME: usize = 200;

/// How claims are read.
#[derive(Debug, Clone)]
pub struct ClaimRules {
    /// The claim with the number of the user's tenant.
    pub tenant_claim: Option<String>,
    /// The tenant of users without that claim.
    pub tenant: Option<i64>,
    /// The claim with the user's name in this server.
    pub user: String,
    /// The claim with the user's roles.
    pub roles_claim: Option<String>,
    /// The rights of each role.
    pub roles: BTreeMap<String, Rights>,
    /// The rights of every user.
    pub default_rights: Rights,
    /// The domains of email addresses that may sign in, in lower case; empty: any.
    pub email_domains: Vec<String>,
}

/// A user as the provider describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderUser {
    /// The tenant.
    pub tenant_id: i64,
    /// The user's name in this server: the owner of what it creates.
    pub user: String,
    /// A name for people: the email address or another one.
    pub name: Option<String>,
    /// The rights.
    pub rights: Rights,
}

impl ClaimRules {
    /// The user that these claims describe.
    pub fn user(&self, claims: &Map<String, Value>) -> Result<ProviderUser, SignInRefusal> {
        self.expect_domain(claims)?;
        let user = claim(claims, &self.user).and_then(Value::as_str).filter(|user| !user.is_empty());
        let user = user.ok_or_else(|| {
            SignInRefusal::new(
                SignInRefusalReason::NoUser,
                format!("the ID token has no text in the claim `{}`", self.user),
            )
        })?;
        let tenant_id = self.tenant(claims).ok_or_else(|| {
            let claim = self.tenant_claim.as_deref().unwrap_or_default();
            let detail = format!("the claim `{claim}` of the user `{user}` has no number of a tenant");
            SignInRefusal::new(SignInRefusalReason::NoTenant, detail)
        })?;
        let name = ["email", "preferred_username", "name"].into_iter().find_map(|name| claims.get(name)?.as_str());
        let printable = |name: &str| name.chars().filter(|one| !one.is_control()).take(MAX_NAME).collect();
        Ok(ProviderUser { tenant_id, user: user.to_owned(), name: name.map(printable), rights: self.rights(claims) })
    }

    /// The tenant in the claim; the configured one only for users without the claim.
    fn tenant(&self, claims: &Map<String, Value>) -> Option<i64> {
        let claim = self.tenant_claim.as_ref().and_then(|name| claim(claims, name)).filter(|claim| !claim.is_null());
        match claim {
            Some(claim) => tenant_number(claim).filter(|id| *id > 0),
            None => self.tenant,
        }
    }

    /// The rights of all roles together, and those of every user.
    fn rights(&self, claims: &Map<String, Value>) -> Rights {
        let claim = self.roles_claim.as_ref().and_then(|name| claim(claims, name));
        let roles = match claim {
            Some(Value::Array(roles)) => roles.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(role)) => vec![role.as_str()],
            _ => Vec::new(),
        };
        let rights = roles.into_iter().filter_map(|role| self.roles.get(role));
        rights.fold(self.default_rights, |all, rights| all.and(*rights))
    }

    /// An unverified address proves nothing: providers let users enter any.
    fn expect_domain(&self, claims: &Map<String, Value>) -> Result<(), SignInRefusal> {
        if self.email_domains.is_empty() {
            return Ok(());
        }
        let refused = |detail: &str| Err(SignInRefusal::new(SignInRefusalReason::EmailNotAllowed, detail));
        if claims.get("email_verified") != Some(&Value::Bool(true)) {
            return refused("the ID token has no verified email address");
        }
        let domain = claims.get("email").and_then(|email| Some(email.as_str()?.rsplit_once('@')?.1));
        match domain.is_some_and(|domain| self.email_domains.contains(&domain.to_ascii_lowercase())) {
            true => Ok(()),
            false => refused("the domain of the email address is not in email_domains"),
        }
    }
}

/// A claim by its name, or by a path of names with dots, such as `realm_access.roles`. Some providers use names with dots, so that
/// the whole name comes first.
fn claim<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c Value> {
    claims.get(name).or_else(|| {
        let (first, rest) = name.split_once('.')?;
        claim(claims.get(first)?.as_object()?, rest)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules() -> ClaimRules {
        ClaimRules {
            tenant_claim: Some("company".to_owned()),
            tenant: None,
            user: "sub".to_owned(),
            roles_claim: Some("realm_access.roles".to_owned()),
            roles: BTreeMap::from([
                ("support".to_owned(), Rights::VIEW),
                ("engineers".to_owned(), Rights::USE.and(Rights::ADMIN)),
            ]),
            default_rights: Rights::NONE,
            email_domains: Vec::new(),
        }
    }

    fn user(rules: &ClaimRules, claims: &Value) -> Result<ProviderUser, SignInRefusalReason> {
        rules.user(claims.as_object().unwrap()).map_err(|refusal| refusal.reason)
    }

    #[test]
    fn the_rights_of_all_roles_are_added_and_unknown_roles_give_none() {
        let claims =
            |roles: Value| json!({"sub": "u-1", "company": "7", "realm_access": {"roles": roles}, "name": "Ada"});
        let rights = |roles: Value| user(&rules(), &claims(roles)).unwrap().rights;
        assert_eq!(rights(json!(["support", "engineers", "x"])), Rights::VIEW.and(Rights::USE).and(Rights::ADMIN));
        assert_eq!(rights(json!("support")), Rights::VIEW);
        for none in [json!([]), json!(["admin"]), json!({"support": true}), json!(null), json!(["Support", 7])] {
            assert_eq!(rights(none), Rights::NONE);
        }
        let rules = ClaimRules { default_rights: Rights::VIEW, ..rules() };
        assert_eq!(
            user(&rules, &claims(json!(["x"]))).unwrap(),
            ProviderUser { tenant_id: 7, user: "u-1".into(), name: Some("Ada".into()), rights: Rights::VIEW }
        );
    }

    #[test]
    fn a_claim_with_dots_in_its_name_comes_before_a_path() {
        let claims = json!({"https://a.example/roles": ["x"], "https://a": {"example/roles": ["y"]}});
        let found = claim(claims.as_object().unwrap(), "https://a.example/roles");
        assert_eq!(found, Some(&json!(["x"])));
    }

    #[test]
    fn without_a_tenant_or_a_user_there_is_no_sign_in() {
        for tenant in [json!(null), json!(0), json!(-1), json!("seven"), json!(1.5), json!([1])] {
            let claims = json!({"sub": "u", "company": tenant});
            assert_eq!(user(&rules(), &claims), Err(SignInRefusalReason::NoTenant), "{claims}");
        }
        let rules_with_default = ClaimRules { tenant: Some(3), ..rules() };
        assert_eq!(user(&rules_with_default, &json!({"sub": "u"})).unwrap().tenant_id, 3);
        assert_eq!(user(&rules_with_default, &json!({"sub": "u", "company": 4})).unwrap().tenant_id, 4);
        assert_eq!(user(&rules_with_default, &json!({"sub": "u", "company": "x"})), Err(SignInRefusalReason::NoTenant));
        for sub in [json!(null), json!(""), json!(5)] {
            assert_eq!(user(&rules(), &json!({"sub": sub, "company": 1})), Err(SignInRefusalReason::NoUser));
        }
    }

    #[test]
    fn only_verified_addresses_of_the_allowed_domains_sign_in() {
        let rules = ClaimRules { email_domains: vec!["example.com".to_owned()], ..rules() };
        let with = |email: Value, verified: Value| {
            user(&rules, &json!({"sub": "u", "company": 1, "email": email, "email_verified": verified}))
        };
        assert!(with(json!("ada@Example.com"), json!(true)).is_ok());
        for (email, verified) in [
            (json!("ada@example.com"), json!(false)),
            (json!("ada@example.com"), json!("true")),
            (json!("ada@example.com"), json!(null)),
            (json!("ada@evil.example.com"), json!(true)),
            (json!("ada@example.com@evil.com"), json!(true)),
            (json!("example.com"), json!(true)),
            (json!(null), json!(true)),
        ] {
            assert_eq!(with(email.clone(), verified), Err(SignInRefusalReason::EmailNotAllowed), "{email}");
        }
    }
}
