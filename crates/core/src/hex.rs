//! Hexadecimal digits, such as those of a digest.

/// Two digits for each byte, in lower case.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
