//! The values of one label: bounded in number, and each with its counters, so that counting allocates nothing.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

/// The maximum number of values of a label. Callers choose the names of models and tools.
const MAX_VALUES: usize = 200;

/// The value that stands for all values above the maximum.
const OTHER: &str = "other";

/// The maximum length of a value.
const MAX_CHARS: usize = 100;

/// A value of a label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LabelValue(Arc<str>);

impl LabelValue {
    /// The text without characters that would need an escape in the text format.
    fn new(text: &str) -> Self {
        let plain =
            |character: char| if character.is_control() || "\"\\".contains(character) { '_' } else { character };
        Self(text.chars().map(plain).take(MAX_CHARS).collect::<String>().into())
    }
}

impl EncodeLabelValue for LabelValue {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(&self.0)
    }
}

/// The values of a label that were seen, each with what is counted for it.
pub(super) struct LabelValues<S> {
    series: RwLock<HashMap<Box<str>, Arc<S>>>,
    /// For all further values.
    other: OnceLock<Arc<S>>,
    make: Box<dyn Fn(LabelValue) -> S + Send + Sync>,
}

impl<S> LabelValues<S> {
    /// No values yet; `make` creates the counters of a value.
    pub(super) fn new(make: impl Fn(LabelValue) -> S + Send + Sync + 'static) -> Self {
        Self { series: RwLock::default(), other: OnceLock::new(), make: Box::new(make) }
    }

    /// The counters of a value, or those of `other` if there are too many values.
    pub(super) fn of(&self, text: &str) -> Arc<S> {
        if let Some(series) = self.series.read().unwrap_or_else(PoisonError::into_inner).get(text) {
            return Arc::clone(series);
        }
        let mut all = self.series.write().unwrap_or_else(PoisonError::into_inner);
        // One place is for `other`.
        if all.len() >= MAX_VALUES - 1 && !all.contains_key(text) {
            return Arc::clone(self.other.get_or_init(|| Arc::new((self.make)(LabelValue::new(OTHER)))));
        }
        Arc::clone(all.entry(text.into()).or_insert_with(|| Arc::new((self.make)(LabelValue::new(text)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_above_the_maximum_share_one_series() {
        let values = LabelValues::new(|value| value);
        let all: std::collections::HashSet<_> =
            (0..1000).map(|n| values.of(&format!("m{n}")).as_ref().clone()).collect();
        assert_eq!(all.len(), MAX_VALUES);
        assert_eq!(*values.of("m0"), LabelValue::new("m0"));
        assert_eq!(*values.of("m999"), LabelValue::new(OTHER));
    }

    #[test]
    fn a_value_needs_no_escapes() {
        assert_eq!(&*LabelValue::new("a\"b\\c\nd").0, "a_b_c_d");
        assert_eq!(LabelValue::new(&"é".repeat(500)).0.chars().count(), MAX_CHARS);
    }
}
