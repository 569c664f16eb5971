use proptest::{collection::vec, prelude::*};

use super::*;

const WHOLE: Agreed = Agreed { longest: MOST_BYTES };

/// The answer to offers, and the longest message that is deflated by it.
fn answered(offers: &[&'static str]) -> Option<(String, usize)> {
    let mut headers = HeaderMap::new();
    for offer in offers {
        headers.append(header::SEC_WEBSOCKET_EXTENSIONS, HeaderValue::from_static(offer));
    }
    agree(&headers).map(|(agreed, answer)| (answer.to_str().unwrap().to_owned(), agreed.longest))
}

/// A message inflated from pieces of it.
fn inflated(pieces: &[&[u8]], most: usize) -> Result<Bytes, Closed> {
    let mut inflating = Inflating::new(most);
    for piece in pieces {
        inflating.take(BytesMut::from(*piece));
        while inflating.has_work() {
            inflating.step()?;
        }
    }
    inflating.end();
    while inflating.has_work() {
        inflating.step()?;
    }
    inflating.finish()
}

/// What any deflater may send for a text: blocks of these lengths, the last of them marked as such or not.
fn deflated(text: &[u8], level: CompressionLevel, last: bool) -> Vec<u8> {
    let mut compressor = CompressorOxide::with_format_and_level(DataFormat::Raw, level);
    let mut bytes = Vec::new();
    let flush = if last { TDEFLFlush::Finish } else { TDEFLFlush::Sync };
    compress_to_output(&mut compressor, text, flush, |piece| {
        bytes.extend_from_slice(piece);
        true
    });
    match last {
        true => bytes.push(0),
        false => bytes.truncate(bytes.len() - END.len()),
    }
    bytes
}

#[test]
fn the_first_offer_that_can_be_met_is_taken() {
    const PLAIN: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    let whole = Some((PLAIN.to_owned(), MOST_BYTES));
    for offer in [
        "permessage-deflate",
        "Permessage-Deflate; client_max_window_bits",
        "permessage-deflate; client_max_window_bits=8 ;server_no_context_takeover; client_no_context_takeover",
        "permessage-deflate; client_max_window_bits=\"15\"",
        "x-webkit-deflate-frame, permessage-deflate",
        "permessage-deflate; server_max_window_bits=7, permessage-deflate",
        "permessage-deflate; unheard_of, permessage-deflate; client_max_window_bits",
    ] {
        assert_eq!(answered(&[offer]), whole, "{offer}");
    }
    assert_eq!(answered(&["a; b=c", "permessage-deflate"]), whole);
    for (bits, longest) in [(15, MOST_BYTES), (14, 16384), (8, 256)] {
        let offer: &'static str = format!("permessage-deflate; server_max_window_bits={bits}").leak();
        assert_eq!(answered(&[offer]), Some((format!("{PLAIN}; server_max_window_bits={bits}"), longest)));
    }
}

#[test]
fn an_offer_that_cannot_be_met_is_declined() {
    for offer in [
        "",
        "permessage-bzip2",
        "permessage-deflate-more",
        "permessage-deflate;",
        "permessage-deflate; x",
        "permessage-deflate; server_no_context_takeover=true",
        "permessage-deflate; client_no_context_takeover=\"\"",
        "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
        "permessage-deflate; server_max_window_bits",
        "permessage-deflate; server_max_window_bits=10; server_max_window_bits=10",
        "permessage-deflate; server_max_window_bits=7",
        "permessage-deflate; server_max_window_bits=16",
        "permessage-deflate; server_max_window_bits=010",
        "permessage-deflate; server_max_window_bits=+9",
        "permessage-deflate; client_max_window_bits=",
        "permessage-deflate; client_max_window_bits=\"12",
        "permessage-deflate; client_max_window_bits=99999999999999999999",
    ] {
        assert_eq!(answered(&[offer]), None, "{offer}");
    }
}

#[test]
fn only_what_becomes_smaller_by_it_is_deflated() {
    let text = "Hallo ".repeat(100_000);
    let of = |length: usize| WHOLE.deflate(&[&text.as_bytes()[..length]]);
    assert_eq!((of(0), of(LEAST_BYTES - 1), of(MOST_BYTES + 1)), (None, None, None));
    assert!(of(LEAST_BYTES).unwrap().len() < 100);
    assert!(of(MOST_BYTES).unwrap().len() < 10_000);
    let mut noise = 1_u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        noise.to_be_bytes()[0]
    })
    .take(4096)
    .collect();
    assert_eq!(WHOLE.deflate(&[&noise]), None);
    assert_eq!(Agreed { longest: 256 }.deflate(&[&text.as_bytes()[..2000]]), None);
}

#[test]
fn the_examples_of_the_specification_are_inflated() {
    // RFC 7692, 7.2.3: one block, two blocks, a block without compression, a block that is the last one.
    for example in [
        &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00][..],
        &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00],
        &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00],
        &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00],
    ] {
        assert_eq!(inflated(&[example], 5).unwrap(), "Hello", "{example:x?}");
        for piece in 1..example.len() {
            assert_eq!(inflated(&example.chunks(piece).collect::<Vec<_>>(), 5).unwrap(), "Hello", "{example:x?}");
        }
        assert_eq!(inflated(&[example], 4), Err(Closed::TooLarge));
    }
    assert_eq!(inflated(&[&[0x00]], 0).unwrap(), "");
}

#[test]
fn a_bomb_costs_no_more_than_a_message_may() {
    let bomb = deflated(&vec![b'x'; 8 << 20], CompressionLevel::DefaultLevel, false);
    assert!(bomb.len() < 10_000);
    const MOST: usize = 1 << 20;
    let mut inflating = Inflating::new(MOST);
    inflating.take(BytesMut::from(&*bomb));
    let mut steps = 0;
    let closed = loop {
        if let Err(closed) = inflating.step() {
            break closed;
        }
        steps += 1;
        assert!(inflating.output.len() <= steps * STEP_BYTES, "a step is bounded");
    };
    assert_eq!(closed, Closed::TooLarge);
    assert!(inflating.output.capacity() <= MOST + 1, "{}", inflating.output.capacity());
}

#[test]
fn what_is_not_whole_is_not_a_message() {
    let text = "Hallo, wer da? ".repeat(200);
    let whole = deflated(text.as_bytes(), CompressionLevel::DefaultLevel, false);
    assert_eq!(inflated(&[&whole], 10_000).unwrap(), text);
    for length in 0..whole.len() {
        assert!(inflated(&[&whole[..length]], 10_000) != Ok(text.clone().into()), "{length}");
    }
    assert_eq!(inflated(&[&whole[..whole.len() / 2]], 10_000), Err(Closed::Garbled));
    assert_eq!(inflated(&[], 10_000), Err(Closed::Garbled));
}

proptest! {
    #[test]
    fn what_was_deflated_is_inflated_in_whatever_pieces(
        words in vec("[a-zß☕]{0,12}", 0..400),
        cuts in vec(any::<prop::sample::Index>(), 0..8),
        last: bool,
        best: bool,
    ) {
        let text = words.join(" ").into_bytes();
        let level = if best { CompressionLevel::BestCompression } else { CompressionLevel::BestSpeed };
        let mut sent = vec![deflated(&text, level, last)];
        let middle = text.len() / 3;
        sent.extend(WHOLE.deflate(&[&text[..middle], &text[middle..]]));
        for bytes in sent {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
            prop_assert_eq!(inflated(&pieces, text.len()).unwrap(), text.clone());
            if !text.is_empty() {
                prop_assert_eq!(inflated(&pieces, text.len() - 1), Err(Closed::TooLarge));
            }
        }
    }

    // P9
    #[test]
    fn no_bytes_make_inflating_fall_over(pieces in vec(vec(any::<u8>(), 0..64), 0..8), most in 0_usize..5000) {
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        if let Ok(message) = inflated(&pieces, most) {
            prop_assert!(message.len() <= most);
        }
    }

    // P9: nearly right is where mistakes hide.
    #[test]
    fn no_damage_makes_inflating_fall_over(text in "[a-e ]{0,4000}", at: prop::sample::Index, with: u8) {
        let mut bytes = deflated(text.as_bytes(), CompressionLevel::DefaultLevel, false);
        let at = at.index(bytes.len());
        bytes[at] = with;
        let _ = inflated(&[&bytes], 8000);
    }

    #[test]
    fn no_offer_makes_the_reader_fall_over(offer in "[a-z_=;\", 0-9]{0,80}", tail in "(; ?[a-z_]{0,30}(=[0-9\"]{0,3})?){0,4}") {
        let _ = Offer::read(&offer);
        let _ = Offer::read(&format!("permessage-deflate{tail}"));
    }
}
