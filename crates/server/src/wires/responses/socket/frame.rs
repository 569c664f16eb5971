//! WebSocket frames as bytes, RFC 6455 section 5: heads, masks, close codes. No I/O.

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    fn of(bits: u8) -> Option<Self> {
        Some(match bits {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xa => Self::Pong,
            _ => return None,
        })
    }

    fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Text => 0x1,
            Self::Binary => 0x2,
            Self::Close => 0x8,
            Self::Ping => 0x9,
            Self::Pong => 0xa,
        }
    }

    pub(super) fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// The most bytes that a control frame carries.
pub(super) const CONTROL_BYTES: u64 = 125;

/// Why a connection ends, as both sides say it.
pub(super) mod code {
    /// Done.
    pub(in super::super) const NORMAL: u16 = 1000;
    /// The server ends, or the connection's time is over.
    pub(in super::super) const AWAY: u16 = 1001;
    /// Not WebSocket.
    pub(in super::super) const PROTOCOL: u16 = 1002;
    /// A kind of message that is not taken.
    pub(in super::super) const UNSUPPORTED: u16 = 1003;
    /// Text that is not UTF-8.
    pub(in super::super) const NOT_TEXT: u16 = 1007;
    /// Against the rules of this server.
    pub(in super::super) const POLICY: u16 = 1008;
    /// A message that is too large.
    pub(in super::super) const TOO_LARGE: u16 = 1009;
    /// No room now.
    pub(in super::super) const TRY_AGAIN: u16 = 1013;
}

/// The head of a frame that a client sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// Whether it is the last one of its message.
    pub(super) last: bool,
    pub(super) opcode: Opcode,
    /// Bytes of its payload.
    pub(super) length: u64,
    pub(super) mask: [u8; 4],
}

/// What no client may send. The text is for the close frame.
pub(super) type Wrong = &'static str;

impl Head {
    /// Reads a head and says how many bytes it has; nothing while some of them are missing.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, Wrong> {
        let &[first, second, ref rest @ ..] = bytes else { return Ok(None) };
        if first & 0x70 != 0 {
            return Err("reserved bits are set that no extension was agreed on for");
        }
        let opcode = Opcode::of(first & 0x0f).ok_or("unknown opcode")?;
        let last = first & 0x80 != 0;
        if second & 0x80 == 0 {
            return Err("frames of a client have to be masked");
        }
        let short = u64::from(second & 0x7f);
        if opcode.is_control() && (!last || short > CONTROL_BYTES) {
            return Err("control frames are short and whole");
        }
        let (length, rest) = match short {
            126 => match rest.split_first_chunk() {
                Some((length, rest)) => (u64::from(u16::from_be_bytes(*length)), rest),
                None => return Ok(None),
            },
            127 => match rest.split_first_chunk() {
                Some((length, rest)) => (u64::from_be_bytes(*length), rest),
                None => return Ok(None),
            },
            short => (short, rest),
        };
        if length > i64::MAX as u64 {
            return Err("a length has at most 63 bits");
        }
        let Some((mask, rest)) = rest.split_first_chunk() else { return Ok(None) };
        Ok(Some((Self { last, opcode, length, mask: *mask }, bytes.len() - rest.len())))
    }
}

/// Takes the mask off a piece of a payload that begins `offset` bytes into it.
pub(super) fn unmask(piece: &mut [u8], mask: [u8; 4], offset: usize) {
    let mut mask = mask;
    mask.rotate_left(offset % 4);
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let mut words = piece.chunks_exact_mut(8);
    for word in &mut words {
        if let Ok(bytes) = <[u8; 8]>::try_from(&*word) {
            word.copy_from_slice(&(u64::from_ne_bytes(bytes) ^ wide).to_ne_bytes());
        }
    }
    for (byte, mask) in words.into_remainder().iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

/// Writes the head of a whole frame; a server's frames have no mask.
pub(super) fn write_head(bytes: &mut Vec<u8>, opcode: Opcode, length: usize) {
    bytes.push(0x80 | opcode.bits());
    match length {
        0..=125 => bytes.push(length as u8),
        126..=0xffff => {
            bytes.push(126);
            bytes.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            bytes.push(127);
            bytes.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

/// The code of a close frame's payload; none where the client gave none.
pub(super) fn close_code(payload: &[u8]) -> Result<Option<u16>, Wrong> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return match payload.is_empty() {
            true => Ok(None),
            false => Err("half a close code"),
        };
    };
    let code = u16::from_be_bytes(*code);
    // 1004 to 1006 and 1015 are never sent; what is below 3000 and not listed is not defined.
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err("no such close code");
    }
    match std::str::from_utf8(reason) {
        Ok(_) => Ok(Some(code)),
        Err(_) => Err("the reason is not UTF-8"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame as a client sends it.
    fn sent(first: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_head(&mut bytes, Opcode::Text, payload.len());
        bytes[0] = first;
        bytes[1] |= 0x80;
        bytes.extend_from_slice(&mask);
        bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        bytes
    }

    #[test]
    fn the_masked_example_of_the_specification_is_read() {
        let mut bytes = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        let (head, size) = Head::read(&bytes).unwrap().unwrap();
        let mask = [0x37, 0xfa, 0x21, 0x3d];
        assert_eq!((head, size), (Head { last: true, opcode: Opcode::Text, length: 5, mask }, 6));
        unmask(&mut bytes[size..], mask, 0);
        assert_eq!(&bytes[size..], b"Hello");
    }

    #[test]
    fn what_no_client_may_send_is_told_from_what_is_not_there_yet() {
        let mask = [1, 2, 3, 4];
        for first in [0xc1, 0xa1, 0x91, 0x83, 0x87, 0x8b, 0x8f, 0x09, 0x08] {
            assert!(Head::read(&sent(first, b"", mask)).is_err(), "{first:#x}");
        }
        assert!(Head::read(&[0x81, 0x05]).is_err(), "not masked");
        assert!(Head::read(&sent(0x89, &[0; 126], mask)).is_err(), "a long ping");
        assert!(Head::read(&[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]).is_err(), "64 bits of length");
        for length in [0, 125, 126, 65_535, 65_536] {
            let bytes = sent(0x81, &vec![0; length], mask);
            let size = bytes.len() - length;
            for missing in 0..size {
                assert_eq!(Head::read(&bytes[..missing]), Ok(None));
            }
            assert_eq!(Head::read(&bytes).unwrap().unwrap().0.length, length as u64);
        }
    }

    #[test]
    fn close_codes_are_those_that_may_be_sent() {
        for code in [1000, 1001, 1003, 1007, 1011, 1014, 3000, 4999] {
            assert_eq!(close_code(&u16::to_be_bytes(code)), Ok(Some(code)));
        }
        for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535] {
            assert!(close_code(&u16::to_be_bytes(code)).is_err(), "{code}");
        }
        assert_eq!(close_code(b""), Ok(None));
        assert!(close_code(b"\x03").is_err());
        assert!(close_code(b"\x03\xe8\xff").is_err());
    }

    proptest! {
        #[test]
        fn a_mask_comes_off_whatever_the_pieces(payload: Vec<u8>, mask: [u8; 4], cut in 0_usize..64) {
            let mut bytes = sent(0x81, &payload, mask).split_off(Head::read(&sent(0x81, &payload, mask)).unwrap().unwrap().1);
            let cut = cut.min(bytes.len());
            let (first, second) = bytes.split_at_mut(cut);
            unmask(first, mask, 0);
            unmask(second, mask, cut);
            prop_assert_eq!(bytes, payload);
        }

        // P9
        #[test]
        fn no_bytes_make_the_reader_fall_over(bytes: Vec<u8>) {
            let _ = Head::read(&bytes);
            let _ = close_code(&bytes);
        }
    }
}
