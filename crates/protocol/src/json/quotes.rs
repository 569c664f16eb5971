//! Finds the strings of a text in blocks of 64 bytes: bit masks instead of a branch for every quote and escape.
//!
//! A large request is mostly text, and a branch at each of its escapes is mispredicted about half of the time.

use wide::u8x16;

/// The quotes of strings, in order, and whether the bytes between them are valid.
pub(super) struct Quotes<'a> {
    text: &'a [u8],
    /// The start of the current block.
    block: usize,
    /// The end of the scanned bytes.
    seen: usize,
    /// Quotes of this block that were not returned yet; the lowest bit is the first byte.
    quotes: u64,
    /// All ones if the last block ends inside a string.
    inside: u64,
    /// One if the first byte of the next block is escaped.
    escapes: u64,
    /// Whether an invalid byte was found in a string.
    faulty: bool,
}

/// The classes of a block's bytes, one bit for each byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Masks {
    quote: u64,
    backslash: u64,
    control: u64,
}

impl<'a> Quotes<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, block: 0, seen: 0, quotes: 0, inside: 0, escapes: 0, faulty: false }
    }

    /// The index after the string that opens at `start`. `None` if it or a string near it is invalid; then the caller
    /// must scan the string itself. Strings must be requested in order.
    #[inline]
    pub(super) fn string(&mut self, start: usize) -> Option<usize> {
        let (open, close) = (self.next()?, self.next()?);
        (open == start && !self.faulty).then_some(close + 1)
    }

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.quotes == 0 {
            self.load()?;
        }
        let at = self.block + self.quotes.trailing_zeros() as usize;
        self.quotes &= self.quotes - 1;
        Some(at)
    }

    /// Scans blocks until one has a quote.
    #[inline(never)]
    fn load(&mut self) -> Option<()> {
        // Local copies, so that they stay in registers from one block to the next.
        let Self { text, mut seen, mut inside, mut escapes, mut faulty, .. } = *self;
        let (quotes, block) = loop {
            let rest = text.get(seen..).filter(|rest| !rest.is_empty())?;
            let block = match rest.first_chunk() {
                Some(block) => Block::new(block),
                None => {
                    // Padding with spaces is harmless: they are neither quotes nor invalid.
                    let mut block = [b' '; 64];
                    block.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
                    Block::new(&block)
                }
            };
            let masks = block.masks();
            let escaped = escaped(masks.backslash, &mut escapes);
            let quotes = masks.quote & !escaped;
            let mut within = inside;
            if quotes != 0 {
                // Every quote toggles between inside and outside: the running parity of the quotes marks the bytes
                // inside strings.
                within ^= parities(quotes);
                inside = 0_u64.wrapping_sub(within >> 63);
            }
            faulty |= masks.control & within != 0;
            if escaped != 0 {
                // Nearly all are newlines, quotes and backslashes; only the others are checked one by one.
                let odd = escaped & !(masks.quote | masks.backslash | block.equal(b'n'));
                faulty |= odd != 0 && !escapes_are_good(text, seen, odd);
            }
            let start = seen;
            seen += 64;
            if quotes != 0 {
                break (quotes, start);
            }
        };
        *self = Self { text, block, seen, quotes, inside, escapes, faulty };
        Some(())
    }
}

/// The bytes after an unescaped backslash. `escapes` is one if the block before escapes the first byte, and becomes one
/// if this block escapes the first byte of the next.
#[inline]
fn escaped(backslash: u64, escapes: &mut u64) -> u64 {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let backslash = backslash & !*escapes;
    let follows = (backslash << 1) | *escapes;
    // Adding a run of backslashes to its first bit carries to the bit after the run; the parity of that bit shows the
    // length of the run.
    let odd_starts = backslash & !EVEN & !follows;
    let (even_runs, carry) = odd_starts.overflowing_add(backslash);
    *escapes = u64::from(carry);
    (EVEN ^ (even_runs << 1)) & follows
}

/// Whether the escapes of the block that begins at `start` are valid.
fn escapes_are_good(text: &[u8], start: usize, mut escaped: u64) -> bool {
    let mut good = true;
    while escaped != 0 {
        let at = start + escaped.trailing_zeros() as usize;
        escaped &= escaped - 1;
        good &= match text.get(at) {
            Some(b'u') => text.get(at + 1..at + 5).is_some_and(|four| four.iter().all(u8::is_ascii_hexdigit)),
            Some(byte) => ESCAPES.get(usize::from(*byte)) == Some(&true),
            // The backslash was the last byte: no string can end after it.
            None => true,
        };
    }
    good
}

/// Bytes that may follow a backslash; `u` needs a further check.
const ESCAPES: [bool; 256] = {
    let mut good = [false; 256];
    let mut listed: &[u8] = b"\"\\/bfnrt";
    while let [byte, rest @ ..] = listed {
        good[*byte as usize] = true;
        listed = rest;
    }
    good
};

/// Each bit is the parity of all bits up to and including its own.
fn parities(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// 64 bytes, processed in units that every processor has.
#[derive(Clone, Copy)]
struct Block([u8x16; 4]);

impl Block {
    #[inline]
    fn new(block: &[u8; 64]) -> Self {
        let mut lanes = [u8x16::ZERO; 4];
        let (sixteens, _) = block.as_chunks();
        lanes.iter_mut().zip(sixteens).for_each(|(lane, bytes)| *lane = u8x16::new(*bytes));
        Self(lanes)
    }

    #[inline]
    fn masks(&self) -> Masks {
        Masks { quote: self.equal(b'"'), backslash: self.equal(b'\\'), control: self.control() }
    }

    /// The bytes below a space. Most blocks have none, which is checked first.
    #[inline]
    fn control(&self) -> u64 {
        let [first, second, third, fourth] = self.0;
        let least = first.min(second).min(third.min(fourth));
        match below_space(least).any() {
            true => self.bits(below_space),
            false => 0,
        }
    }

    #[inline]
    fn equal(&self, byte: u8) -> u64 {
        let all = u8x16::splat(byte);
        self.bits(|lane| lane.simd_eq(all))
    }

    /// One bit for each byte for which `is` returns ones.
    #[inline]
    fn bits(&self, is: impl Fn(u8x16) -> u8x16) -> u64 {
        let [first, second, third, fourth] = self.0.map(|lane| u64::from(is(lane).to_bitmask()));
        first | second << 16 | (third | fourth << 16) << 32
    }
}

#[inline]
fn below_space(lane: u8x16) -> u8x16 {
    lane.min(u8x16::splat(0x1f)).simd_eq(lane)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block() -> impl Strategy<Value = [u8; 64]> {
        let byte = prop_oneof![any::<u8>(), prop::sample::select(b"\"\\\x1f\x20\x00\xff".to_vec())];
        prop::collection::vec(byte, 64).prop_map(|bytes| bytes.try_into().unwrap())
    }

    proptest! {
        #[test]
        fn masks_say_what_each_byte_is(block in block()) {
            let bits = |is: fn(u8) -> bool| {
                block.iter().rev().fold(0, |bits: u64, byte| (bits << 1) | u64::from(is(*byte)))
            };
            let expected = Masks {
                quote: bits(|byte| byte == b'"'),
                backslash: bits(|byte| byte == b'\\'),
                control: bits(|byte| byte < 0x20),
            };
            prop_assert_eq!(Block::new(&block).masks(), expected);
        }

        #[test]
        fn strings_end_where_reading_byte_by_byte_says(text in "([a-z ]{0,70}|[\\\\\"]{1,5}|\\\\[nu]|é){0,30}") {
            let text = format!("\"{text}");
            let bytes = text.as_bytes();
            // The closing quote is the first one with an even number of backslashes before it.
            let mut escaped = false;
            let end = bytes.iter().skip(1).position(|byte| {
                let ends = *byte == b'"' && !escaped;
                escaped = *byte == b'\\' && !escaped;
                ends
            });
            let mut quotes = Quotes::new(bytes);
            let found = quotes.string(0);
            match end {
                Some(end) => prop_assert!(found == Some(end + 2) || quotes.faulty),
                None => prop_assert_eq!(found, None),
            }
        }
    }

    #[test]
    fn what_cannot_stand_in_a_string_is_found_at_every_place() {
        for padding in 0..130 {
            let text = |inner: &str| format!("\"{}{inner}{}\"", "x".repeat(padding), "y".repeat(70));
            for good in ["", "\\n", "\\\"", "\\\\", "\\u12aF", "é", "\u{7f}"] {
                let text = text(good);
                assert_eq!(Quotes::new(text.as_bytes()).string(0), Some(text.len()), "{text}");
            }
            for bad in ["\n", "\0", "\u{1f}", "\\x", "\\u12g4", "\\u", "\\U1234", "\\é"] {
                assert_eq!(Quotes::new(text(bad).as_bytes()).string(0), None, "{bad:?} after {padding}");
            }
        }
    }
}
