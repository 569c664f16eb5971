//! The framing of HTTP/1.1 bodies: where a body ends, and which bytes on the connection belong to it.
//!
//! Free of I/O: received bytes go in, in any pieces, and the body comes out.

/// The maximum size of everything between the chunks of one answer, extensions and trailers together.
const AROUND_BYTES: usize = 16 * 1024;

/// The bytes do not follow the declared framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadFraming;

/// How the end of a body is recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Framing {
    /// By the number of remaining bytes.
    Length(u64),
    /// By chunk sizes.
    Chunked(Chunked),
    /// By the end of the connection.
    UntilClose,
}

impl Framing {
    /// Whether the whole body was read.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunked) => chunked.step == Step::Over,
            Self::UntilClose => false,
        }
    }

    /// The number of remaining bytes, if it is known.
    pub(super) fn left(&self) -> Option<u64> {
        match self {
            Self::Length(left) => Some(*left),
            Self::Chunked(_) | Self::UntilClose => None,
        }
    }

    /// Appends the bytes of the body to `body`. Returns how many bytes of `input` were used: all, unless the body has
    /// ended.
    pub(super) fn decode(&mut self, input: &[u8], body: &mut Vec<u8>) -> Result<usize, BadFraming> {
        match self {
            Self::Length(left) => Ok(take(left, input, body)),
            Self::Chunked(chunked) => chunked.decode(input, body),
            Self::UntilClose => {
                body.extend_from_slice(input);
                Ok(input.len())
            }
        }
    }

    /// Whether the body is complete when the connection is closed now.
    pub(super) fn ends_with_close(&self) -> bool {
        self.is_over() || *self == Self::UntilClose
    }
}

/// Moves at most `left` bytes and counts them down.
fn take(left: &mut u64, input: &[u8], body: &mut Vec<u8>) -> usize {
    let most = usize::try_from(*left).unwrap_or(usize::MAX);
    let taken = input.get(..most).unwrap_or(input);
    body.extend_from_slice(taken);
    *left -= taken.len() as u64;
    taken.len()
}

/// The state of chunked transfer coding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunked {
    step: Step,
    /// How many more bytes may be between chunks.
    around: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Before the first digit of a size.
    NoSize,
    /// In a size.
    Size(u64),
    /// After a size, until the end of its line.
    Extension(u64),
    SizeLf(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// At the beginning of a line after the last chunk.
    TrailerStart,
    Trailer,
    TrailerLf,
    LastLf,
    Over,
}

impl Default for Chunked {
    fn default() -> Self {
        Self { step: Step::NoSize, around: AROUND_BYTES }
    }
}

impl Chunked {
    fn decode(&mut self, input: &[u8], body: &mut Vec<u8>) -> Result<usize, BadFraming> {
        let mut used = 0;
        while let Some(&byte) = input.get(used) {
            match &mut self.step {
                Step::Over => break,
                Step::NoSize if let Some((chunk, length)) = whole_chunk(input.get(used..).unwrap_or_default()) => {
                    body.extend_from_slice(chunk);
                    used += length;
                }
                Step::Data(left) => {
                    used += take(left, input.get(used..).unwrap_or_default(), body);
                    if *left == 0 {
                        self.step = Step::DataCr;
                    }
                }
                step => {
                    *step = step.after(byte, &mut self.around)?;
                    used += 1;
                }
            }
        }
        Ok(used)
    }
}

impl Step {
    /// The state after a byte that is not data.
    fn after(self, byte: u8, around: &mut usize) -> Result<Self, BadFraming> {
        Ok(match (self, byte) {
            (Self::NoSize, _) => Self::Size(digit(byte).ok_or(BadFraming)?),
            (Self::Size(size), b'\r') => Self::SizeLf(size),
            (Self::Size(size), b';' | b' ' | b'\t') => Self::Extension(size),
            (Self::Size(size), _) => {
                let size = size.checked_mul(16).ok_or(BadFraming)?;
                Self::Size(size + digit(byte).ok_or(BadFraming)?)
            }
            (Self::Extension(size), b'\r') => Self::SizeLf(size),
            (Self::SizeLf(0), b'\n') => Self::TrailerStart,
            (Self::SizeLf(size), b'\n') => Self::Data(size),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::NoSize,
            (Self::TrailerStart, b'\r') => Self::LastLf,
            (Self::Trailer, b'\r') => Self::TrailerLf,
            (Self::TrailerLf, b'\n') => Self::TrailerStart,
            (Self::LastLf, b'\n') => Self::Over,
            // Extensions and trailers are ignored, but they must end.
            (Self::Extension(_) | Self::TrailerStart | Self::Trailer, byte) if byte != b'\n' => {
                *around = around.checked_sub(1).ok_or(BadFraming)?;
                if let Self::Extension(_) = self { self } else { Self::Trailer }
            }
            _ => return Err(BadFraming),
        })
    }
}

/// A chunk that has arrived completely, as nearly all have, and its encoded length.
fn whole_chunk(input: &[u8]) -> Option<(&[u8], usize)> {
    let (mut size, mut digits) = (0, 0);
    while let Some(value) = input.get(digits).and_then(|byte| digit(*byte)).filter(|_| digits < 7) {
        size = size * 16 + value;
        digits += 1;
    }
    let start = digits + 2;
    let end = start + usize::try_from(size).ok().filter(|size| *size > 0)?;
    let framed = input.get(digits..start)? == b"\r\n" && input.get(end..end + 2)? == b"\r\n";
    framed.then_some((input.get(start..end)?, end + 2))
}

fn digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The body, the bytes after it, and whether it is complete.
    fn read(mut framing: Framing, pieces: &[&[u8]]) -> Result<(Vec<u8>, Vec<u8>, bool), BadFraming> {
        let (mut body, mut after) = (Vec::new(), Vec::new());
        for piece in pieces {
            let used = framing.decode(piece, &mut body)?;
            assert!(used == piece.len() || framing.is_over(), "bytes are left over only behind a body");
            after.extend_from_slice(&piece[used..]);
        }
        Ok((body, after, framing.is_over()))
    }

    fn chunked() -> Framing {
        Framing::Chunked(Chunked::default())
    }

    /// Cuts a text at these positions.
    fn pieces<'a>(text: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        places.extend([0, text.len()]);
        places.sort_unstable();
        places.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
    }

    proptest! {
        #[test]
        fn chunks_cut_anywhere_give_the_same_body(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
            extension in prop::sample::select(vec!["", ";a=b", " ", ";q=\"x y\""]),
            trailers in prop::sample::select(vec!["", "x: 1\r\n", "x: 1\r\ny: 2\r\n"]),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut text = Vec::new();
            for chunk in &chunks {
                text.extend_from_slice(format!("{:X}{extension}\r\n", chunk.len()).as_bytes());
                text.extend_from_slice(chunk);
                text.extend_from_slice(b"\r\n");
            }
            text.extend_from_slice(format!("000{extension}\r\n{trailers}\r\nHTTP").as_bytes());
            let expected = (chunks.concat(), b"HTTP".to_vec(), true);
            prop_assert_eq!(read(chunked(), &pieces(&text, &cuts)), Ok(expected.clone()));
            let single: Vec<&[u8]> = text.chunks(1).collect();
            prop_assert_eq!(read(chunked(), &single), Ok(expected));
        }

        #[test]
        fn a_stated_length_cut_anywhere_gives_the_same_body(
            body in prop::collection::vec(any::<u8>(), 0..60),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let text = [&body[..], b"HTTP"].concat();
            let framing = Framing::Length(body.len() as u64);
            prop_assert_eq!(read(framing, &pieces(&text, &cuts)), Ok((body.clone(), b"HTTP".to_vec(), true)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..80)) {
            let whole = read(chunked(), &[&text]);
            let single: Vec<&[u8]> = text.chunks(1).collect();
            prop_assert_eq!(whole, read(chunked(), &single));
        }
    }

    #[test]
    fn what_is_not_quite_chunked_is_refused() {
        for text in [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            "0x1\r\na\r\n",
            "1\na\n",
            "1\r\nab\r\n",
            "1\r\na\n",
            "1;x\ny\r\n",
            "ffffffffffffffff0\r\n",
            "0\r\n\n",
            "0\r\nx: 1\n",
        ] {
            assert_eq!(read(chunked(), &[text.as_bytes()]), Err(BadFraming), "{text:?}");
        }
    }

    #[test]
    fn what_stands_around_the_chunks_is_bounded() {
        let long = "x".repeat(AROUND_BYTES + 1);
        for text in [format!("1;{long}\r\na\r\n"), format!("0\r\n{long}")] {
            assert_eq!(read(chunked(), &[text.as_bytes()]), Err(BadFraming));
        }
    }

    #[test]
    fn a_close_ends_only_a_body_without_an_end_of_its_own() {
        let mut start = chunked();
        start.decode(b"5\r\nab", &mut Vec::new()).unwrap();
        for (framing, whole) in
            [(Framing::UntilClose, true), (Framing::Length(0), true), (Framing::Length(1), false), (start, false)]
        {
            assert_eq!(framing.ends_with_close(), whole, "{framing:?}");
        }
    }
}
