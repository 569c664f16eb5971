//! Rules of the tenant's assistant: settings, prompt, requests, recommendations.
//!
//! Pure functions: no waiting, no storage. The application composes turns with them.

pub mod catalog;
pub mod client_secret;
pub mod courses;
pub mod prompt;
pub mod recommendation;
pub mod request;
mod session;
pub mod settings;

use amalgam_core::hex;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

pub use session::{AssistantSessionTurn, window};

/// The identifier of a user for an upstream: 64 hexadecimal digits that cannot be traced back without the salt.
///
/// The same user of the same tenant always has the same identifier; users of two tenants have different ones even under
/// the same name.
pub fn safety_identifier(salt: &str, tenant_id: i64, user: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(salt.as_bytes()).expect("a MAC takes a key of any length");
    mac.update(&tenant_id.to_be_bytes());
    mac.update(user.as_bytes());
    hex(&mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_known_by_a_salted_hash_alone() {
        // RNCC-42. Python: hmac.new(b"salt", (7).to_bytes(8, "big") + b"ana@example.com", "sha256").hexdigest()
        let identifier = safety_identifier("salt", 7, "ana@example.com");
        assert_eq!(identifier, EXPECTED);
        assert_ne!(identifier, safety_identifier("pepper", 7, "ana@example.com"));
        assert_ne!(identifier, safety_identifier("salt", 8, "ana@example.com"));
        assert_ne!(identifier, safety_identifier("salt", 7, "ben@example.com"));
        // A salt of any length is valid.
        assert_eq!(safety_identifier(&"s".repeat(1000), 7, "").len(), 64);
    }

    const EXPECTED: &str = "c2ace18b56a5a61f89e744229a13e43d7aa6f6515e3784ff1c0e29b31cc1edb1";
}
