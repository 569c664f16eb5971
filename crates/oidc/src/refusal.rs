//! Why a sign-in was refused: a code that the sign-in page explains, and a detail for the log.

use std::fmt;

/// A reason that the sign-in page explains. The codes are part of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignInRefusalReason {
    /// The user cancelled, or the provider denied access.
    Denied,
    /// The provider reported another error.
    ProviderError,
    /// The provider does not answer, or not as the specification says.
    ProviderUnavailable,
    /// This browser has not begun the sign-in, or has begun another one since.
    UnknownSignIn,
    /// The sign-in took too long.
    Expired,
    /// The ID token is not valid.
    InvalidToken,
    /// The provider does not name a user that this server can have.
    NoUser,
    /// No tenant belongs to the user.
    NoTenant,
    /// No role of the user opens the console.
    NoRole,
    /// The user's email address is not one that may sign in.
    EmailNotAllowed,
    /// Too many sign-ins from this address have failed.
    TooManyAttempts,
    /// This server cannot complete the sign-in now.
    Unavailable,
}

impl SignInRefusalReason {
    /// All reasons.
    pub const ALL: [Self; 12] = [
        Self::Denied,
        Self::ProviderError,
        Self::ProviderUnavailable,
        Self::UnknownSignIn,
        Self::Expired,
        Self::InvalidToken,
        Self::NoUser,
        Self::NoTenant,
        Self::NoRole,
        Self::EmailNotAllowed,
        Self::TooManyAttempts,
        Self::Unavailable,
    ];

    /// The code in the address of the sign-in page.
    pub fn code(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::ProviderError => "provider_error",
            Self::ProviderUnavailable => "provider_unavailable",
            Self::UnknownSignIn => "unknown_sign_in",
            Self::Expired => "expired",
            Self::InvalidToken => "invalid_token",
            Self::NoUser => "no_user",
            Self::NoTenant => "no_tenant",
            Self::NoRole => "no_role",
            Self::EmailNotAllowed => "email_not_allowed",
            Self::TooManyAttempts => "too_many_attempts",
            Self::Unavailable => "unavailable",
        }
    }
}

/// A refused sign-in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct SignInRefusal {
    /// What the user is told.
    pub reason: SignInRefusalReason,
    /// What the log says. It has no token and no code.
    pub detail: String,
}

impl SignInRefusal {
    /// A refusal with its detail.
    pub fn new(reason: SignInRefusalReason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

impl fmt::Display for SignInRefusalReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.code())
    }
}
