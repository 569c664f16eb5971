//! Orders chunks that a search by words has found by their embeddings.

use amalgam_core::store::FoundChunk;

/// The weight of the embeddings; words have the rest.
const EMBEDDING_WEIGHT: f64 = 0.7;

/// Scores chunks by their distance from the question and by their words, both between 0 and 1, the best first.
///
/// A chunk without an embedding gets the average similarity of the others, so that neither having one nor lacking one is an
/// advantage. Where no chunk has one, nothing is changed.
pub fn rank_by_embeddings<'q>(chunks: &mut [FoundChunk], question_embedding: impl Fn(&str) -> Option<&'q [f32]>) {
    let similarity: Vec<Option<f64>> = chunks
        .iter()
        .map(|chunk| {
            cosine(chunk.embedding.as_deref()?, question_embedding(&chunk.collection)?).map(|cosine| cosine.max(0.0))
        })
        .collect();
    let similarities: Vec<f64> = similarity.iter().copied().flatten().collect();
    if similarities.is_empty() {
        return;
    }
    let average = similarities.iter().sum::<f64>() / similarities.len() as f64;
    let best = chunks.iter().map(|chunk| chunk.score).fold(0.0, f64::max);
    for (chunk, similarity) in chunks.iter_mut().zip(similarity) {
        let word_score = if best > 0.0 { chunk.score.max(0.0) / best } else { 0.0 };
        chunk.ranking.similarity = similarity;
        chunk.score = EMBEDDING_WEIGHT * similarity.unwrap_or(average) + (1.0 - EMBEDDING_WEIGHT) * word_score;
    }
    // The sort is stable: equal scores keep the order of the words.
    chunks.sort_by(|left, right| right.score.total_cmp(&left.score));
}

/// The cosine similarity, from -1 to 1; none for vectors of different lengths and for zero vectors.
fn cosine(left: &[f32], right: &[f32]) -> Option<f64> {
    if left.len() != right.len() {
        return None;
    }
    let (mut product, mut left_square, mut right_square) = (0.0, 0.0, 0.0);
    for (left, right) in left.iter().zip(right) {
        let (left, right) = (f64::from(*left), f64::from(*right));
        product += left * right;
        left_square += left * left;
        right_square += right * right;
    }
    let cosine = product / (left_square * right_square).sqrt();
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
            ranking: amalgam_core::store::ChunkRanking::default(),
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
        for (left, right) in [(&[1.0][..], &[1.0, 0.0][..]), (&[0.0], &[1.0]), (&[], &[]), (&[f32::NAN], &[1.0])] {
            assert_eq!(cosine(left, right), None, "{left:?} {right:?}");
        }
    }

    #[test]
    fn what_means_the_same_goes_before_what_has_more_of_the_words() {
        let mut chunks = vec![
            chunk("words", 10.0, Some(vec![0.0, 1.0])),
            chunk("meaning", 4.0, Some(vec![1.0, 0.1])),
            chunk("neither", 1.0, Some(vec![-1.0, 0.0])),
        ];
        rank_by_embeddings(&mut chunks, |_| Some(&[1.0, 0.0]));
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
        rank_by_embeddings(&mut chunks, |_| Some(&[1.0, 0.0]));
        assert_eq!(order(&chunks), ["near", "unplaced", "other space", "far"]);
    }

    #[test]
    fn without_any_place_the_order_and_the_scores_of_the_words_stay() {
        let found = vec![chunk("a", 3.0, None), chunk("b", 2.0, Some(vec![1.0]))];
        let mut chunks = found.clone();
        rank_by_embeddings(&mut chunks, |_| None);
        assert_eq!(chunks, found);
    }
}
