//! `permessage-deflate`, RFC 7692: what of an offer is agreed to, and messages made small and whole again. No I/O.
//!
//! Nothing is kept between two messages, on either side: a connection that waits costs no more than one without
//! compression, and a message costs what is in it.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, header};
use miniz_oxide::{
    DataFormat,
    deflate::{
        CompressionLevel,
        core::{CompressorOxide, TDEFLFlush, TDEFLStatus, compress_to_output},
    },
    inflate::{
        TINFLStatus,
        core::{
            DecompressorOxide, decompress_with_limit,
            inflate_flags::{TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF},
        },
    },
};

const NAME: &str = "permessage-deflate";

/// A shorter message is not worth the work; one that is longer takes milliseconds, in which others wait.
const LEAST_BYTES: usize = 1024;
const MOST_BYTES: usize = 256 * 1024;

/// Bits of the largest window that there is.
const WHOLE_WINDOW: u8 = 15;

/// Bytes that are inflated at once; others have their turn in between.
const STEP_BYTES: usize = 256 * 1024;

/// The end of a deflated message, which is not sent.
const END: [u8; 4] = [0x00, 0x00, 0xff, 0xff];

/// The same, and an empty last block: only a message that is whole comes to its end with it.
const END_AND_LAST: [u8; 9] = [0x00, 0x00, 0xff, 0xff, 0x01, 0x00, 0x00, 0xff, 0xff];

/// What was agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agreed {
    /// The longest message that is sent deflated.
    longest: usize,
}

/// The first of a client's offers that can be met, and the answer to it.
pub(super) fn agree(headers: &HeaderMap) -> Option<(Agreed, HeaderValue)> {
    let values = headers.get_all(header::SEC_WEBSOCKET_EXTENSIONS).iter().filter_map(|value| value.to_str().ok());
    let offer = values.flat_map(|value| value.split(',')).find_map(Offer::read)?;
    let mut answer = format!("{NAME}; server_no_context_takeover; client_no_context_takeover");
    if let Some(bits) = offer.server_bits {
        answer.push_str(&format!("; server_max_window_bits={bits}"));
    }
    let longest = match offer.server_bits.unwrap_or(WHOLE_WINDOW) {
        WHOLE_WINDOW => MOST_BYTES,
        // A message that is no longer than the window cannot look back further.
        bits => 1 << bits,
    };
    Some((Agreed { longest }, HeaderValue::try_from(answer).ok()?))
}

/// What a client offers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Offer {
    /// The largest window that it wants us to use.
    server_bits: Option<u8>,
}

impl Offer {
    /// Reads an offer; nothing of one that is another extension's, is not well-formed, or asks for what is not known here.
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        if !parts.next()?.eq_ignore_ascii_case(NAME) {
            return None;
        }
        let mut offer = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for part in parts {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name.trim_end(), Some(unquoted(value.trim_start()))),
                None => (part, None),
            };
            if seen.contains(&name) {
                return None;
            }
            seen.push(name);
            match (name, value) {
                // Both are so whether or not they are asked for.
                ("server_no_context_takeover" | "client_no_context_takeover", None) => {}
                ("server_max_window_bits", Some(value)) => offer.server_bits = Some(bits(value)?),
                // Whatever the client's window is, a message is inflated in one piece.
                ("client_max_window_bits", None) => {}
                ("client_max_window_bits", Some(value)) => _ = bits(value)?,
                _ => return None,
            }
        }
        Some(offer)
    }
}

fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

/// The size of a window: decimal, without zeros in front.
fn bits(value: &str) -> Option<u8> {
    (8..=WHOLE_WINDOW).find(|bits| bits.to_string() == value)
}

impl Agreed {
    /// A message deflated, from pieces that follow one another; nothing where it is better sent as it is.
    pub(super) fn deflate(self, pieces: &[&[u8]]) -> Option<Vec<u8>> {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        if !(LEAST_BYTES..=self.longest).contains(&length) {
            return None;
        }
        let mut compressor = CompressorOxide::with_format_and_level(DataFormat::Raw, CompressionLevel::BestSpeed);
        let mut deflated = Vec::with_capacity(length / 2);
        let (last, first) = pieces.split_last()?;
        let flushes = first.iter().map(|piece| (piece, TDEFLFlush::None)).chain([(last, TDEFLFlush::Sync)]);
        for (piece, flush) in flushes {
            let (status, _) = compress_to_output(&mut compressor, piece, flush, |bytes| {
                deflated.extend_from_slice(bytes);
                true
            });
            if status != TDEFLStatus::Okay {
                return None;
            }
        }
        let whole = deflated.len().checked_sub(END.len())?;
        let is_whole = deflated.ends_with(&END) && whole < length;
        deflated.truncate(whole);
        is_whole.then_some(deflated)
    }
}

/// Why a message cannot be inflated.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// It is not what deflating makes, or its end is missing.
    Garbled,
    /// It is larger than a message may be.
    TooLarge,
}

/// A message that comes in deflated.
pub(super) struct Inflating {
    state: Box<DecompressorOxide>,
    /// The most bytes that it may have, deflated or not.
    most: usize,
    /// Bytes that have come.
    come: usize,
    /// Those of them that were not looked at yet.
    input: BytesMut,
    /// The message as it is so far.
    output: Vec<u8>,
    /// What became of the last step.
    status: TINFLStatus,
    /// Whether all of it has come.
    ended: bool,
}

impl Inflating {
    pub(super) fn new(most: usize) -> Self {
        Self {
            state: Box::default(),
            most,
            come: 0,
            input: BytesMut::new(),
            output: Vec::new(),
            status: TINFLStatus::NeedsMoreInput,
            ended: false,
        }
    }

    /// Bytes that have come.
    pub(super) fn come(&self) -> usize {
        self.come
    }

    /// Takes what has come; `step` looks at it.
    pub(super) fn take(&mut self, piece: BytesMut) {
        self.come += piece.len();
        self.input.unsplit(piece);
    }

    /// All of it has come.
    pub(super) fn end(&mut self) {
        self.input.extend_from_slice(&END_AND_LAST);
        self.ended = true;
    }

    /// Whether there is something to do before more can be taken.
    pub(super) fn has_work(&self) -> bool {
        !self.input.is_empty() || self.status == TINFLStatus::HasMoreOutput
    }

    /// Whether all of it has come and was looked at.
    pub(super) fn is_done(&self) -> bool {
        self.ended && !self.has_work()
    }

    /// Inflates a bounded part of what has come. Memory is taken for what is there, and never for more than may be.
    pub(super) fn step(&mut self) -> Result<(), Closed> {
        const FLAGS: u32 = TINFL_FLAG_HAS_MORE_INPUT | TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let filled = self.output.len();
        // One byte more than may be shows that there is more.
        let room = (filled + STEP_BYTES.min(self.input.len().saturating_mul(8).max(LEAST_BYTES))).min(self.most + 1);
        if self.output.capacity() < room {
            self.output.reserve_exact(room.max((filled * 2).min(self.most + 1)) - filled);
        }
        self.output.resize(room, 0);
        let (status, read, written) =
            decompress_with_limit(&mut self.state, &self.input, &mut self.output, filled, usize::MAX, FLAGS);
        self.output.truncate(filled + written);
        self.input.advance(read.min(self.input.len()));
        self.status = status;
        if self.output.len() > self.most {
            return Err(Closed::TooLarge);
        }
        match status {
            TINFLStatus::NeedsMoreInput | TINFLStatus::HasMoreOutput => Ok(()),
            // A block may call itself the last one; what follows begins anew.
            TINFLStatus::Done => {
                self.state.init();
                Ok(())
            }
            _ => Err(Closed::Garbled),
        }
    }

    /// The message, once all of it was looked at.
    pub(super) fn finish(self) -> Result<Bytes, Closed> {
        match self.is_done() && self.status == TINFLStatus::Done {
            true => Ok(self.output.into()),
            false => Err(Closed::Garbled),
        }
    }
}

#[cfg(test)]
#[path = "deflate_tests.rs"]
mod tests;
