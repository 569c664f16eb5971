//! Calibrates our token counts with those that an upstream reports: every model has its own tokenizer and prompt overhead.
//!
//! A prompt whose tokens the upstream has reported is kept until a count for the same model is requested; only then is it counted
//! here, so that a server whose upstreams count spends no time on it.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use amalgam_core::TokenCount;
use bytes::Bytes;

use crate::count_prompt;

/// So many models are remembered for each upstream.
const MODELS: usize = 64;
/// Longer prompts are not kept to learn from.
const PROMPT_BYTES: usize = 128 * 1024;
/// Below so many tokens the words around a prompt decide, not the tokenizer.
const FEW_TOKENS: f64 = 64.0;
/// One tokenizer takes at most so many times the tokens of another, and at least so many. An upstream that reports less does not
/// count the whole prompt.
const STEEPEST: f64 = 4.0;
const FLATTEST: f64 = 0.5;

/// The calibration of the models of one upstream.
#[derive(Debug, Default)]
pub struct TokenCalibration(Mutex<HashMap<String, ModelCalibration>>);

#[derive(Debug, Default)]
struct ModelCalibration {
    /// A prompt that is still to be counted, with the tokens that the upstream has reported.
    waiting: Option<(Bytes, u64)>,
    /// The smallest and the largest prompt that was counted on both sides.
    smallest: Option<Sample>,
    largest: Option<Sample>,
}

/// The tokens of a prompt by our count and by the upstream's.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    ours: f64,
    theirs: f64,
}

/// How their count follows from ours.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    slope: f64,
    base: f64,
}

impl TokenCalibration {
    /// The upstream has reported how many tokens a prompt had.
    pub fn report(&self, model: &str, prompt: &Bytes, tokens: u64) {
        if tokens == 0 || prompt.len() > PROMPT_BYTES {
            return;
        }
        let mut models = self.models();
        if models.len() >= MODELS && !models.contains_key(model) {
            models.clear();
        }
        let known = models.entry(model.to_owned()).or_default();
        known.waiting = Some((prompt.clone(), tokens));
    }

    /// Our count of a prompt as the upstream would count it.
    pub fn prompt(&self, model: &str, count: TokenCount) -> TokenCount {
        match self.line(model) {
            Some(line) => TokenCount { text: line.at(count.text), ..count },
            None => count,
        }
    }

    /// Our count of a text inside a prompt as the upstream would count it.
    pub fn text(&self, model: &str, tokens: u64) -> u64 {
        self.line(model).map_or(tokens, |line| Line { base: 0.0, ..line }.at(tokens))
    }

    fn line(&self, model: &str) -> Option<Line> {
        let waiting = self.models().get_mut(model)?.waiting.take();
        // Counted outside of the lock: it takes a while.
        let sample = waiting.and_then(|(prompt, theirs)| {
            let count = count_prompt(&prompt);
            // The cost of an image says nothing about text.
            (count.media == 0 && count.text > 0).then_some(Sample { ours: count.text as f64, theirs: theirs as f64 })
        });
        let mut models = self.models();
        let known = models.get_mut(model)?;
        if let Some(sample) = sample {
            known.learn(sample);
        }
        known.line()
    }

    fn models(&self) -> MutexGuard<'_, HashMap<String, ModelCalibration>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModelCalibration {
    fn learn(&mut self, sample: Sample) {
        if sample.ours >= FEW_TOKENS && sample.theirs < sample.ours * FLATTEST {
            return;
        }
        if self.smallest.is_none_or(|known| sample.ours <= known.ours) {
            self.smallest = Some(sample);
        }
        if self.largest.is_none_or(|known| sample.ours >= known.ours) {
            self.largest = Some(sample);
        }
    }

    fn line(&self) -> Option<Line> {
        let (smallest, largest) = (self.smallest?, self.largest?);
        if largest.ours < FEW_TOKENS {
            return Some(Line { slope: 1.0, base: largest.theirs - largest.ours });
        }
        if largest.ours >= 2.0 * smallest.ours {
            let slope = (largest.theirs - smallest.theirs) / (largest.ours - smallest.ours);
            let slope = slope.clamp(FLATTEST, STEEPEST);
            return Some(Line { slope, base: largest.theirs - slope * largest.ours });
        }
        Some(Line { slope: (largest.theirs / largest.ours).clamp(FLATTEST, STEEPEST), base: 0.0 })
    }
}

impl Line {
    fn at(self, tokens: u64) -> u64 {
        let tokens = tokens as f64;
        (self.slope * tokens + self.base).max(FLATTEST * tokens).ceil() as u64
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prompt(words: usize) -> Bytes {
        json!({"messages": [{"role": "user", "content": "word ".repeat(words)}]}).to_string().into_bytes().into()
    }

    fn ours(prompt: &Bytes) -> u64 {
        count_prompt(prompt).text
    }

    fn near(calibration: &TokenCalibration, words: usize, theirs: u64) -> bool {
        let prompt = prompt(words);
        let count = calibration.prompt("m", count_prompt(&prompt)).text as f64;
        (count - theirs as f64).abs() <= theirs as f64 / 10.0
    }

    #[test]
    fn the_first_reported_count_makes_the_next_one_of_ours_right() {
        for factor in [0.6, 1.4, 3.0] {
            let theirs = |words: usize| (ours(&prompt(words)) as f64 * factor) as u64;
            let calibration = TokenCalibration::default();
            assert_eq!(calibration.prompt("m", TokenCount { text: 10, media: 7 }), TokenCount { text: 10, media: 7 });
            calibration.report("m", &prompt(500), theirs(500));
            for words in [100, 500, 5000] {
                assert!(near(&calibration, words, theirs(words)), "{factor} {words}");
            }
            assert_eq!(calibration.text("other", 10), 10);
        }
    }

    #[test]
    fn words_around_a_prompt_are_told_apart_from_its_tokens() {
        let theirs = |words: usize| (ours(&prompt(words)) as f64 * 1.3) as u64 + 40;
        let calibration = TokenCalibration::default();
        calibration.report("m", &prompt(5), theirs(5));
        assert!(near(&calibration, 6, theirs(6)));
        calibration.report("m", &prompt(2000), theirs(2000));
        for words in [5, 50, 1000, 8000] {
            assert!(near(&calibration, words, theirs(words)), "{words}");
        }
    }

    #[test]
    fn a_report_that_leaves_out_most_of_the_prompt_teaches_nothing() {
        let calibration = TokenCalibration::default();
        let long = count_prompt(&prompt(500));
        calibration.report("m", &prompt(500), 11);
        assert_eq!(calibration.prompt("m", long).text, long.text);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let calibration = TokenCalibration::default();
        for number in 0..3 * MODELS {
            calibration.report(&format!("m{number}"), &prompt(1), 9);
        }
        assert!(calibration.models().len() <= MODELS);
        calibration.report("long", &prompt(PROMPT_BYTES), 9);
        assert!(!calibration.models().contains_key("long"));
    }
}
