//! Public ids, all made here.
//!
//! `resp_AM-{milliseconds}-{24}` for responses, `{prefix}_AM-{24}` for everything else; 24 characters of lower-case
//! letters and digits carry 124 random bits.

use rand::{RngExt, SeedableRng, rngs::StdRng};

/// What an id is for; decides its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdKind {
    /// `msg`
    Message,
    /// `fc`
    FunctionCall,
    /// `call`
    Call,
    /// `rs`
    Reasoning,
    /// `ctc`
    CustomToolCall,
    /// `sh`
    ShellCall,
    /// `lsh`
    LocalShellCall,
    /// `apc`
    ApplyPatchCall,
    /// `tsc`
    ToolSearchCall,
    /// `cu`
    ComputerCall,
    /// `req`
    Request,
}

impl IdKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Message => "msg",
            Self::FunctionCall => "fc",
            Self::Call => "call",
            Self::Reasoning => "rs",
            Self::CustomToolCall => "ctc",
            Self::ShellCall => "sh",
            Self::LocalShellCall => "lsh",
            Self::ApplyPatchCall => "apc",
            Self::ToolSearchCall => "tsc",
            Self::ComputerCall => "cu",
            Self::Request => "req",
        }
    }
}

/// Where ids come from: a generator that is handed in, so that a seed replays a history.
pub struct Ids(StdRng);

impl Ids {
    /// Ids that nobody can guess.
    pub fn unguessable() -> Self {
        Self(rand::make_rng())
    }

    /// The same ids every time, for tests and simulations.
    pub fn seeded(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// A new id.
    pub fn make(&mut self, kind: IdKind) -> String {
        format!("{}_AM-{}", kind.prefix(), self.random())
    }

    /// A new response id; `now_ms` is in milliseconds since 1970.
    pub fn response(&mut self, now_ms: u64) -> String {
        format!("resp_AM-{now_ms:013}-{}", self.random())
    }

    fn random(&mut self) -> String {
        const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        (0..24).map(|_| char::from(*LETTERS.get(self.0.random_range(0..36)).unwrap_or(&b'a'))).collect()
    }
}

impl std::fmt::Debug for Ids {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Ids")
    }
}


#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_published_form_and_differ() {
        // RAM-45, RAM-46
        let mut ids = Ids::unguessable();
        let response = ids.response(1_700_000_000_123);
        let (head, random) = response.rsplit_once('-').unwrap();
        assert_eq!(head, "resp_AM-1700000000123");
        assert!(random.len() == 24 && random.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()));
        let message = ids.make(IdKind::Message);
        assert!(message.starts_with("msg_AM-") && message.len() == 31);
        let many: std::collections::HashSet<String> = (0..1000).map(|_| ids.make(IdKind::Call)).collect();
        assert_eq!(many.len(), 1000);
    }

    #[test]
    fn a_seed_gives_the_same_ids_again() {
        assert_eq!(Ids::seeded(7).make(IdKind::Message), Ids::seeded(7).make(IdKind::Message));
    }
}
