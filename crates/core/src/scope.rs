//! Scopes: authenticated callers and their rights. Authentication creates them.

use std::sync::Arc;

use crate::{RequestContext, TraceContext, TurnSpan};

/// An authenticated caller. Stored data is accessible only through a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    tenant_id: i64,
    user: Arc<str>,
    state: TenantState,
    rights: Rights,
    has_credential: bool,
    key_id: Option<Arc<str>>,
    request: Option<Arc<RequestContext>>,
    /// Whether the request changes nothing.
    reads_only: bool,
    /// The terms of a browser token.
    client: Option<Arc<ClientTerms>>,
}

/// The terms under which a browser token is used, besides its user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientTerms {
    /// The agents that it may talk to.
    pub agents: Vec<String>,
    /// How many messages its user may send on a day (UTC) with browser tokens.
    pub messages_per_day: u64,
}

impl Scope {
    /// A caller whose credential was checked, or the owner of a turn that continues without its caller. A lint
    /// forbids all other uses.
    pub fn authenticated(tenant_id: i64, user: impl Into<Arc<str>>, state: TenantState, rights: Rights) -> Self {
        Self {
            tenant_id,
            user: user.into(),
            state,
            rights,
            has_credential: true,
            key_id: None,
            request: None,
            reads_only: false,
            client: None,
        }
    }

    /// The same caller without a credential, on a server that needs none.
    #[must_use]
    pub fn without_credential(self) -> Self {
        Self { has_credential: false, ..self }
    }

    /// The same caller, who authenticated with this key.
    #[must_use]
    pub fn with_key(self, key_id: Option<Arc<str>>) -> Self {
        Self { key_id, ..self }
    }

    /// The same caller in a request that changes nothing: the right to view is enough to read what an administrator reads.
    #[must_use]
    pub fn reading(self) -> Self {
        Self { reads_only: true, ..self }
    }

    /// The same caller, who holds a browser token with these terms.
    #[must_use]
    pub fn with_client(self, terms: ClientTerms) -> Self {
        Self { client: Some(Arc::new(terms)), ..self }
    }

    /// The terms of the caller's browser token; none for every other credential.
    pub fn client(&self) -> Option<&ClientTerms> {
        self.client.as_deref()
    }

    /// The same caller in this request.
    #[must_use]
    pub fn with_request(self, request: Arc<RequestContext>) -> Self {
        Self { request: Some(request), ..self }
    }

    /// The stored key that the caller authenticated with; none for keys of the configuration, tokens and callers without a key.
    pub fn key_id(&self) -> Option<&Arc<str>> {
        self.key_id.as_ref()
    }

    /// The id of the caller's request.
    pub fn request_id(&self) -> Option<&Arc<str>> {
        self.request.as_ref().map(|request| request.id())
    }

    /// The caller's request.
    pub fn request(&self) -> Option<&Arc<RequestContext>> {
        self.request.as_ref()
    }

    /// The place of the caller's request in its trace, for requests to other servers.
    pub fn trace(&self) -> Option<TraceContext> {
        self.request.as_ref().and_then(|request| request.trace())
    }

    /// Adds a span to the turn that the caller's request is about to start.
    pub fn add_span(&self, span: TurnSpan) {
        if let Some(request) = &self.request {
            request.add_span(span);
        }
    }

    /// Whether the caller authenticated with a key or a token.
    pub fn has_credential(&self) -> bool {
        self.has_credential
    }

    /// The tenant's id.
    pub fn tenant_id(&self) -> i64 {
        self.tenant_id
    }

    /// The owner of the caller's data: the user that the caller named, or the key itself.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The same, shared.
    pub fn user_id(&self) -> &Arc<str> {
        &self.user
    }

    /// Whether the tenant's responses are stored.
    pub fn state(&self) -> TenantState {
        self.state
    }

    /// The rights of the caller.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// The context that sealed values of this caller are bound to.
    pub fn seal_context(&self) -> String {
        ["tenant:", &self.tenant_id.to_string()].concat()
    }

    /// The caller as an administrator of its tenant, if it is one, or if it may view and the request only reads.
    pub fn admin(&self) -> Option<Admin<'_>> {
        let may_view = self.reads_only && self.rights.contains(Rights::VIEW);
        (may_view || self.rights.contains(Rights::ADMIN)).then_some(Admin(self))
    }

    /// The caller as the operator of all tenants, if it is one.
    pub fn operator(&self) -> Option<Operator> {
        self.rights.contains(Rights::OPERATOR).then_some(Operator(()))
    }
}

/// A caller that may access the data of all users of its own tenant.
#[derive(Debug, Clone, Copy)]
pub struct Admin<'a>(&'a Scope);

impl Admin<'_> {
    /// The tenant's id.
    pub fn tenant_id(self) -> i64 {
        self.0.tenant_id
    }
}

/// The operator of the installation: the process itself, a command on its machine, or a caller with that right.
#[derive(Debug, Clone, Copy)]
pub struct Operator(());

impl Operator {
    /// The process itself, or a command with its configuration.
    pub fn of_this_process() -> Self {
        Self(())
    }
}

/// The rights of a key; a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rights(u8);

impl Rights {
    /// No right.
    pub const NONE: Self = Self(0);
    /// Use the API: responses, conversations, models.
    pub const USE: Self = Self(1);
    /// Administer its own tenant.
    pub const ADMIN: Self = Self(2);
    /// Administer all tenants.
    pub const OPERATOR: Self = Self(4);
    /// Read the metrics of the process.
    pub const METRICS: Self = Self(8);
    /// Read what an administrator of its own tenant may read.
    pub const VIEW: Self = Self(16);

    const NAMES: [(Self, &'static str); 5] = [
        (Self::USE, "use"),
        (Self::VIEW, "view"),
        (Self::ADMIN, "admin"),
        (Self::OPERATOR, "operator"),
        (Self::METRICS, "metrics"),
    ];

    /// The union.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all rights of `other` are included.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The right with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(right, _)| *right)
    }

    /// All names.
    pub fn all_names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().map(|(_, name)| *name)
    }

    /// The names of the included rights.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(right, _)| self.contains(*right)).map(|(_, name)| *name)
    }
}

/// Whether a tenant's responses are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TenantState {
    /// Requests may name earlier responses.
    #[default]
    Stored,
    /// Requests contain the whole history.
    Stateless,
}

impl TenantState {
    /// The name in the store and the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Stateless => "stateless",
        }
    }

    /// The state with this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Stored, Self::Stateless].into_iter().find(|state| state.name() == name)
    }
}
