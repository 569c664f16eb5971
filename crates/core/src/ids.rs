//! Public ids, all made here.
//!
//! `resp_AM-{milliseconds}-{24}` for responses, `{prefix}_AM-{24}` for everything else, where 24 are lower-case letters
//! and digits that carry 124 random bits. The ids of a response's items begin with the same sixteen characters as the
//! last part of the response's own id, its stem: an item's id leads to its response without an index of items.
//!
//! Eight characters of a stem are the time and eight are random: stems of the same time are neighbours in an index, so
//! that new entries are appended. The ids of responses and of their items keep 82 random bits each.

use rand::{RngExt, SeedableRng, rngs::StdRng};

/// The kind of an id, which determines its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdKind {
    /// `msg`
    Message,
    /// `fc`
    FunctionCall,
    /// `fco`
    FunctionCallOutput,
    /// `call`
    Call,
    /// `rs`
    Reasoning,
    /// `ctc`
    CustomToolCall,
    /// `ctco`
    CustomToolCallOutput,
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
    /// `conv`
    Conversation,
    /// `cmp`
    Compaction,
    /// `key`
    Key,
    /// `mcp`: a call that the server ran.
    McpCall,
    /// `mcpl`
    McpListTools,
    /// `mcpr`
    McpApprovalRequest,
    /// `try`: a call outside any turn.
    Trial,
    /// `sess`
    Session,
    /// `file`
    File,
    /// `fs`
    FileSearchCall,
    /// `we`: a webhook endpoint.
    WebhookEndpoint,
    /// `evt`: an event of webhooks.
    WebhookEvent,
    /// `audit`: a row of the audit.
    Audit,
    /// `hold`: a reservation of limits.
    LimitHold,
    /// `csn`: a browser session of the console.
    ConsoleSession,
    /// `item`: an item of a kind without a prefix of its own.
    Item,
}

impl IdKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Message => "msg",
            Self::FunctionCall => "fc",
            Self::FunctionCallOutput => "fco",
            Self::Call => "call",
            Self::Reasoning => "rs",
            Self::CustomToolCall => "ctc",
            Self::CustomToolCallOutput => "ctco",
            Self::ShellCall => "sh",
            Self::LocalShellCall => "lsh",
            Self::ApplyPatchCall => "apc",
            Self::ToolSearchCall => "tsc",
            Self::ComputerCall => "cu",
            Self::Request => "req",
            Self::Conversation => "conv",
            Self::Compaction => "cmp",
            Self::Key => "key",
            Self::McpCall => "mcp",
            Self::McpListTools => "mcpl",
            Self::McpApprovalRequest => "mcpr",
            Self::Trial => "try",
            Self::Session => "sess",
            Self::File => "file",
            Self::FileSearchCall => "fs",
            Self::WebhookEndpoint => "we",
            Self::WebhookEvent => "evt",
            Self::Audit => "audit",
            Self::LimitHold => "hold",
            Self::ConsoleSession => "csn",
            Self::Item => "item",
        }
    }
}

/// The source of ids. Injected, so that a seed makes them reproducible.
pub enum Ids {
    /// The system's randomness, so that ids cannot be guessed.
    Unguessable,
    /// The same, for the items of one response: they begin with its stem.
    Within(Stem),
    /// Reproducible ids, for tests and simulations.
    Seeded(Box<StdRng>),
}

/// The common part of a response's id and the ids of its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stem([u8; STEM]);

impl Stem {
    /// The stem of an id in this server's format; none for any other text.
    pub fn of(id: &str) -> Option<Self> {
        let (head, random) = id.as_bytes().split_last_chunk::<LENGTH>()?;
        let ours = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let mark = MARK.as_bytes();
        let marked =
            head.ends_with(mark) || (head.ends_with(b"-") && head.windows(mark.len()).any(|part| part == mark));
        if !marked || !random.iter().all(ours) {
            return None;
        }
        random.first_chunk().copied().map(Self)
    }

    /// The stem as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl Ids {
    /// Reproducible ids.
    pub fn seeded(seed: u64) -> Self {
        Self::Seeded(Box::new(StdRng::seed_from_u64(seed)))
    }

    /// A new id.
    pub fn make(&mut self, kind: IdKind) -> String {
        let prefix = kind.prefix();
        let end = prefix.len() + MARK.len() + LENGTH;
        let mut id = String::with_capacity(end);
        id.push_str(prefix);
        id.push_str(MARK);
        if let Self::Within(stem) = self {
            id.push_str(stem.as_str());
        }
        self.push_random(&mut id, end);
        id
    }

    /// A new id that sorts by creation time.
    pub fn dated(&mut self, kind: IdKind, now_ms: u64) -> String {
        let mut id = [kind.prefix(), MARK].concat();
        let end = id.len() + LENGTH;
        id.push_str(std::str::from_utf8(&sortable(now_ms)).expect("letters are ASCII"));
        self.push_random(&mut id, end);
        id
    }

    /// A new response id; `now_ms` is in milliseconds since 1970.
    pub fn response(&mut self, now_ms: u64) -> String {
        // Not `format!`: that would be a third of the cost of a new id.
        let now = now_ms.to_string();
        let mut id = String::with_capacity(RESPONSE.len() + MARK.len() + now.len().max(DIGITS) + 1 + LENGTH);
        id.push_str(RESPONSE);
        id.push_str(MARK);
        id.extend(std::iter::repeat_n('0', DIGITS.saturating_sub(now.len())));
        id.push_str(&now);
        id.push('-');
        let end = id.len() + LENGTH;
        id.push_str(std::str::from_utf8(&sortable(now_ms)).expect("letters are ASCII"));
        self.push_random(&mut id, end);
        id
    }

    /// Random characters up to the length of `end`.
    fn push_random(&mut self, id: &mut String, end: usize) {
        while id.len() < end {
            let mut draw = || match self {
                Self::Unguessable | Self::Within(_) => rand::rng().random::<u64>(),
                Self::Seeded(rng) => rng.random(),
            };
            // Twelve letters of 36 are just over 62 bits: a draw beyond the last full multiple would make some
            // likelier.
            let mut bits = loop {
                let bits = draw();
                if bits < CEILING {
                    break bits;
                }
            };
            let count = (LENGTH / 2).min(end - id.len());
            let mut letters = [0; LENGTH / 2];
            for letter in letters.iter_mut().take(count) {
                *letter = LETTERS.get((bits % 36) as usize).copied().unwrap_or_default();
                bits /= 36;
            }
            let letters = letters.get(..count).unwrap_or_default();
            id.push_str(std::str::from_utf8(letters).expect("letters are ASCII"));
        }
    }
}

/// The time as eight characters that sort by time until the year 2059, and wrap around then.
fn sortable(now_ms: u64) -> [u8; TIME] {
    let (mut text, mut rest) = ([0; TIME], now_ms);
    for letter in text.iter_mut().rev() {
        *letter = IN_ORDER.get((rest % 36) as usize).copied().unwrap_or_default();
        rest /= 36;
    }
    text
}

/// The separator after the prefix of every id.
const MARK: &str = "_AM-";
const RESPONSE: &str = "resp";
/// The minimum number of digits of a time in milliseconds.
const DIGITS: usize = 13;
const LENGTH: usize = 24;
const STEM: usize = 16;
const TIME: usize = 8;
/// The same characters in the sort order of indexes.
const IN_ORDER: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
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
        assert!(ids.response(5).starts_with("resp_AM-0000000000005-"));
        assert!(ids.response(10_000_000_000_000).starts_with("resp_AM-10000000000000-"));
        assert!(random.len() == 24 && random.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()));
        let message = ids.make(IdKind::Message);
        assert!(message.starts_with("msg_AM-") && message.len() == 31);
        let many: std::collections::HashSet<String> = (0..1000).map(|_| ids.make(IdKind::Call)).collect();
        assert_eq!(many.len(), 1000);
    }

    #[test]
    fn ids_of_items_share_the_stem_of_their_response_and_nothing_else_has_one() {
        let response = Ids::Unguessable.response(1_700_000_000_123);
        let stem = Stem::of(&response).unwrap();
        let mut ids = Ids::Within(stem);
        let (first, second) = (ids.make(IdKind::Message), ids.make(IdKind::Message));
        assert_ne!(first, second);
        for id in [&first, &second] {
            assert_eq!(id.len(), 31);
            assert_eq!(Stem::of(id), Some(stem));
        }
        for other in [
            "",
            "msg_123",
            "resp_AM-1-short",
            "msg_AM-ABCDEFGHIJKLMNOPQRSTUVWX",
            "msg_AM-é234567890123456789012",
            "msg-abcdefghijklmnopqrstuvwx",
            "msg_AM_abcdefghijklmnopqrstuvwx",
            "abcdefghijklmnopqrstuvwx",
        ] {
            assert_eq!(Stem::of(other), None, "{other}");
        }
    }

    #[test]
    fn stems_stand_in_the_order_of_time() {
        let stem = |now_ms: u64| Stem::of(&Ids::Unguessable.response(now_ms)).unwrap().as_str().to_owned();
        let times = [0, 35, 36, 1_700_000_000_123, 1_700_000_000_124, 1_900_000_000_000];
        assert!(times.map(stem).is_sorted(), "{:?}", times.map(stem));
        assert_ne!(stem(1_700_000_000_123), stem(1_700_000_000_123));
        assert_eq!(sortable(36_u64.pow(8)), *b"00000000");
    }

    #[test]
    fn a_seed_gives_the_same_ids_again() {
        assert_eq!(Ids::seeded(7).make(IdKind::Message), Ids::seeded(7).make(IdKind::Message));
    }
}
