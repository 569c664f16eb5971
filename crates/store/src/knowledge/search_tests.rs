use proptest::prelude::*;

use super::*;

const MILLION: u64 = 1_000_000;

/// The queries of a search if this many samples have its words, with these weights.
fn asked(samples: &[u64], strong: [u64; STEPS.len()], limit: usize) -> (Vec<Question>, Vec<Question>) {
    let words: Vec<String> = (0..samples.len()).map(|number| format!("w{number}")).collect();
    let query = KnowledgeQuery { collections: &[], words: &words, conditions: &[], limit, embeddings: false };
    let collections = [SearchedCollection { number: 1, name: "code".into(), chunks: MILLION }];
    let mut search = Search::new(IndexSyntax::Fts5, &query, &collections).unwrap();
    assert_eq!(search.samples().len(), samples.len());
    let count = |question: &Question| {
        let step = STEPS
            .len()
            .min(question.text.rsplit(':').next().map_or(0, |step| step.trim_end_matches('"').parse().unwrap()));
        strong[step - 1]
    };
    let strengths: Vec<u64> = search.strengths(samples).iter().map(count).collect();
    let reads = search.reads(&strengths);
    let nothing = vec![Vec::new(); reads.len()];
    (reads, search.more(&nothing))
}

fn texts(questions: &[Question]) -> Vec<&str> {
    questions.iter().map(|question| question.text.as_str()).collect()
}

#[test]
fn rare_words_are_read_whole() {
    let (reads, more) = asked(&[0], [0; 3], 10);
    assert_eq!(texts(&reads), ["\"#:w0\"", "\"#:w0:1\"", "\"#:w0:2\"", "\"#:w0:3\""]);
    assert_eq!(texts(&more), [""; 0]);
}

#[test]
fn of_frequent_words_those_pieces_are_read_that_they_say_most_about() {
    let (reads, more) = asked(&[300], [100, 5, 0], 10);
    assert_eq!(texts(&reads), ["\"#:w0:2\"", "\"#:w0:3\""]);
    assert_eq!(texts(&more), ["\"#?w0\""], "any will do, and there are too many to walk through");
}

#[test]
fn of_a_word_that_says_much_about_nearly_all_pieces_samples_are_read() {
    let (reads, _) = asked(&[950], [950, 900, 800], 10);
    assert_eq!(texts(&reads), ["\"#?w0:3\""]);
}

#[test]
fn a_word_that_is_in_most_pieces_is_looked_for_only_if_nothing_else_is_asked() {
    let (reads, _) = asked(&[950, 0], [950, 900, 800], 10);
    assert!(texts(&reads).iter().all(|text| text.contains("w1")), "{reads:?}");
}

proptest! {
    #[test]
    fn what_is_asked_is_bounded_whatever_the_words(
        samples in prop::collection::vec(0_u64..1000, 1..=256),
        strong in prop::array::uniform3(0_u64..1000),
    ) {
        let (reads, more) = asked(&samples, strong, 500);
        let most: u64 = reads.iter().chain(&more).map(|question| question.most).filter(|most| *most < READ).sum();
        prop_assert!(most <= CHAMPIONS * 4);
        prop_assert!(reads.len() <= MOST_WORDS * 4);
    }
}
