//! Ids of the keys of the configuration file, which are not in the store: for limits, usage, the audit and the log.
//!
//! An id is the same in every process and after every restart, because it is made of the tenant and of the key's hash. It names a
//! tenant by its number, so that an administrator of the tenant may set limits of its keys.

use amalgam_core::hex;

/// How the ids begin. No stored key has such an id.
const PREFIX: &str = "key_config-";

/// Bytes of the hash in an id.
const HASH_BYTES: usize = 8;

/// The id of a key of the configuration.
pub fn configured_key_id(tenant_id: i64, hash: &[u8; 32]) -> String {
    let (part, _) = hash.split_at(HASH_BYTES);
    format!("{PREFIX}{tenant_id}-{}", hex(part))
}

/// The tenant of a key with such an id; none for any other id.
pub(crate) fn tenant_of_configured_key(id: &str) -> Option<i64> {
    let (tenant_id, hash) = id.strip_prefix(PREFIX)?.rsplit_once('-')?;
    let is_hash = hash.len() == 2 * HASH_BYTES && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    tenant_id.parse().ok().filter(|number: &i64| is_hash && number.to_string() == tenant_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_tenant_and_nothing_else_is_one() {
        let id = configured_key_id(7, &[0xab; 32]);
        assert_eq!(id, "key_config-7-abababababababab");
        assert_eq!(tenant_of_configured_key(&id), Some(7));
        for wrong in [
            "key_AM-1",
            "key_config-7",
            "key_config-7-ab",
            "key_config-07-abababababababab",
            "key_config-x-abababababababab",
        ] {
            assert_eq!(tenant_of_configured_key(wrong), None, "{wrong}");
        }
    }
}
