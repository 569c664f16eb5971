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

/// Where ids come from. Handed in, so that a seed replays a history.
pub enum Ids {
    /// The system's randomness: nobody can guess them.
    Unguessable,
    /// The same ids every time, for tests and simulations.
    Seeded(Box<StdRng>),
}

impl Ids {
    /// The same ids every time.
    pub fn seeded(seed: u64) -> Self {
        Self::Seeded(Box::new(StdRng::seed_from_u64(seed)))
    }

    /// A new id.
    pub fn make(&mut self, kind: IdKind) -> String {
        let prefix = kind.prefix();
        let mut id = String::with_capacity(prefix.len() + 4 + LENGTH);
        id.push_str(prefix);
        id.push_str("_AM-");
        self.push_random(&mut id);
        id
    }

    /// A new response id; `now_ms` is in milliseconds since 1970.
    pub fn response(&mut self, now_ms: u64) -> String {
        let mut id = format!("resp_AM-{now_ms:013}-");
        self.push_random(&mut id);
        id
    }

    fn push_random(&mut self, id: &mut String) {
        for _ in 0..2 {
            let mut draw = || match self {
                Self::Unguessable => rand::rng().random::<u64>(),
                Self::Seeded(rng) => rng.random(),
            };
            // Twelve letters of 36 are just over 62 bits: a draw beyond the last full round would make some likelier.
            let mut bits = loop {
                let bits = draw();
                if bits < CEILING {
                    break bits;
                }
            };
            for _ in 0..LENGTH / 2 {
                id.push(char::from(*LETTERS.get((bits % 36) as usize).unwrap_or(&b'a')));
                bits /= 36;
            }
        }
    }
}

const LENGTH: usize = 24;
const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
/// The largest multiple of 36^12 that a draw can hold: below it every id is equally likely.
const CEILING: u64 = u64::MAX - u64::MAX % 36_u64.pow(LENGTH as u32 / 2);

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
        let mut ids = Ids::Unguessable;
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
