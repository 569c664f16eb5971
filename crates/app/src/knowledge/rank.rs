//! Orders what words have found by what it means.

use amalgam_core::store::FoundChunk;

/// How much meaning counts; words count for the rest.
const MEANING: f64 = 0.7;

/// Scores pieces by their distance from the question and by their words, both between 0 and 1, the best first.
///
/// A piece without a place is taken to mean as much as the others do on average, so that neither having one nor lacking one is an
/// advantage. Where no piece has a place, nothing is changed.
pub(super) fn by_meaning<'q>(chunks: &mut [FoundChunk], question_in: impl Fn(&str) -> Option<&'q [f32]>) {
    let nearness: Vec<Option<f64>> = chunks
        .iter()
        .map(|chunk| cosine(chunk.embedding.as_deref()?, question_in(&chunk.collection)?).map(|cosine| cosine.max(0.0)))
        .collect();
    let known: Vec<f64> = nearness.iter().copied().flatten().collect();
    if known.is_empty() {
        return;
    }
    let average = known.iter().sum::<f64>() / known.len() as f64;
    let best = chunks.iter().map(|chunk| chunk.score).fold(0.0, f64::max);
    for (chunk, nearness) in chunks.iter_mut().zip(nearness) {
        let words = if best > 0.0 { chunk.score.max(0.0) / best } else { 0.0 };
        chunk.score = MEANING * nearness.unwrap_or(average) + (1.0 - MEANING) * words;
    }
    // Stable: where meaning makes no difference, the order of the words stays.
    chunks.sort_by(|one, other| other.score.total_cmp(&one.score));
}

/// How much two directions agree, from -1 to 1; nothing for places of different spaces, and for no direction at all.
fn cosine(one: &[f32], other: &[f32]) -> Option<f64> {
    if one.len() != other.len() {
        return None;
    }
    let (mut product, mut square, mut other_square) = (0.0, 0.0, 0.0);
    for (one, other) in one.iter().zip(other) {
        let (one, other) = (f64::from(*one), f64::from(*other));
        product += one * other;
        square += one * one;
        other_square += other * other;
    }
    let cosine = product / (square * other_square).sqrt();
    cosine.is_finite().then_some(cosine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(path: &str, score: f64, embedding: Option<Vec<f32>>) -> FoundChunk {
        FoundChunk {
            id: path.to_owned(),
            collection: "c".to_owned(),
            path: path.to_owned(),
            language: "plaintext".to_owned(),
            attributes: Vec::new(),
            symbol: None,
            start_line: 1,
            end_line: 1,
            content: String::new(),
            score,
            embedding,
        }
    }

    fn order(chunks: &[FoundChunk]) -> Vec<&str> {
        chunks.iter().map(|chunk| chunk.path.as_str()).collect()
    }

    #[test]
    fn directions_agree_by_their_angle_alone() {
        let close = |found: Option<f64>, expected: f64| assert!((found.unwrap() - expected).abs() < 1e-9, "{found:?}");
        close(cosine(&[1.0, 0.0], &[5.0, 0.0]), 1.0);
        close(cosine(&[1.0, 0.0], &[0.0, 2.0]), 0.0);
        close(cosine(&[1.0, 1.0], &[-3.0, -3.0]), -1.0);
        for (one, other) in [(&[1.0][..], &[1.0, 0.0][..]), (&[0.0], &[1.0]), (&[], &[]), (&[f32::NAN], &[1.0])] {
            assert_eq!(cosine(one, other), None, "{one:?} {other:?}");
        }
    }

    #[test]
    fn what_means_the_same_goes_before_what_has_more_of_the_words() {
        let mut chunks = vec![
            chunk("words", 10.0, Some(vec![0.0, 1.0])),
            chunk("meaning", 4.0, Some(vec![1.0, 0.1])),
            chunk("neither", 1.0, Some(vec![-1.0, 0.0])),
        ];
        by_meaning(&mut chunks, |_| Some(&[1.0, 0.0]));
        assert_eq!(order(&chunks), ["meaning", "words", "neither"]);
        assert!(chunks.iter().all(|chunk| (0.0..=1.0).contains(&chunk.score)), "{chunks:?}");
    }

    #[test]
    fn a_piece_without_a_place_stands_by_its_words_among_the_others() {
        let mut chunks = vec![
            chunk("near", 5.0, Some(vec![1.0, 0.0])),
            chunk("unplaced", 5.0, None),
            chunk("other space", 5.0, Some(vec![1.0])),
            chunk("far", 5.0, Some(vec![0.0, 1.0])),
        ];
        by_meaning(&mut chunks, |_| Some(&[1.0, 0.0]));
        assert_eq!(order(&chunks), ["near", "unplaced", "other space", "far"]);
    }

    #[test]
    fn without_any_place_the_order_and_the_scores_of_the_words_stay() {
        let found = vec![chunk("a", 3.0, None), chunk("b", 2.0, Some(vec![1.0]))];
        let mut chunks = found.clone();
        by_meaning(&mut chunks, |_| None);
        assert_eq!(chunks, found);
    }
}
