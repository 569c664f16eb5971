//! Matches results with the pending calls, and renders them for the model.
//!
//! AGN-034 s5: results match calls in identity and order. Any other submission is refused as a whole, with all
//! differences; the calls stay pending.

use std::{collections::HashMap, fmt};

use amalgam_protocol::{Json, Raw, Shape, Writer};

use super::request::{Outcome, ToolResult};

/// A difference between results and pending calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// A call without a result.
    Missing {
        /// The call.
        call_id: String,
        /// Its index among the calls.
        position: usize,
    },
    /// A result for a call that is not pending.
    Extra {
        /// Its index among the results.
        index: usize,
        /// The call that it names.
        call_id: String,
    },
    /// A second result for a call.
    Duplicate {
        /// Its index among the results.
        index: usize,
        /// The call.
        call_id: String,
    },
    /// A result in another position than its call.
    Reordered {
        /// Its index among the results.
        index: usize,
        /// The call.
        call_id: String,
        /// The call whose result belongs at this position.
        expected: String,
    },
}

impl Difference {
    /// The field at fault: `ToolResults[1].ToolCallId`, or the whole list for a missing result.
    pub fn field(&self) -> String {
        match self {
            Self::Missing { .. } => "ToolResults".to_owned(),
            Self::Extra { index, .. } | Self::Duplicate { index, .. } | Self::Reordered { index, .. } => {
                format!("ToolResults[{index}].ToolCallId")
            }
        }
    }

    /// The code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing_result",
            Self::Extra { .. } => "extra_result",
            Self::Duplicate { .. } => "duplicate_result",
            Self::Reordered { .. } => "reordered_result",
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { call_id, position } => {
                write!(formatter, "call `{call_id}` (number {}) has no result", position + 1)
            }
            Self::Extra { call_id, .. } => write!(formatter, "no call `{call_id}` waits for a result"),
            Self::Duplicate { call_id, .. } => write!(formatter, "call `{call_id}` has a result before this one"),
            Self::Reordered { call_id, expected, .. } => {
                write!(formatter, "the result of call `{expected}` belongs here, not that of `{call_id}`")
            }
        }
    }
}

/// All differences between the submitted results and the pending calls; empty if they match.
///
/// A missing or extra result does not make the results after it reordered: order is judged among the calls that have a
/// result.
pub fn differences<'a>(
    pending: impl IntoIterator<Item = &'a str>,
    submitted: impl IntoIterator<Item = &'a str>,
) -> Vec<Difference> {
    let pending: Vec<&str> = pending.into_iter().collect();
    // The indexes of a call id among the calls, the last one first. A model may have used one id twice.
    let mut positions: HashMap<&str, Vec<usize>> = HashMap::with_capacity(pending.len());
    for (position, call_id) in pending.iter().enumerate().rev() {
        positions.entry(call_id).or_default().push(position);
    }
    let mut differences = Vec::new();
    let mut matched: Vec<(usize, usize)> = Vec::with_capacity(pending.len());
    for (index, call_id) in submitted.into_iter().enumerate() {
        match positions.get_mut(call_id).map(Vec::pop) {
            Some(Some(position)) => matched.push((index, position)),
            Some(None) => differences.push(Difference::Duplicate { index, call_id: call_id.to_owned() }),
            None => differences.push(Difference::Extra { index, call_id: call_id.to_owned() }),
        }
    }
    let mut in_order: Vec<usize> = matched.iter().map(|(_, position)| *position).collect();
    in_order.sort_unstable();
    let call = |position: usize| pending.get(position).copied().unwrap_or_default().to_owned();
    for ((index, position), expected) in matched.iter().zip(&in_order) {
        if position != expected {
            differences.push(Difference::Reordered {
                index: *index,
                call_id: call(*position),
                expected: call(*expected),
            });
        }
    }
    let mut missing: Vec<usize> = positions.into_values().flatten().collect();
    missing.sort_unstable();
    differences.extend(missing.into_iter().map(|position| Difference::Missing { call_id: call(position), position }));
    differences
}

/// The item with the result of a call, for the model.
pub fn output_item(result: &ToolResult<'_>) -> Json {
    let mut writer = Writer::default();
    writer.object(|writer| {
        writer.key("type").string("function_call_output");
        writer.key("call_id").string(&result.call_id);
        match &result.outcome {
            Outcome::Result(text) => writer.key("output").string(text),
            Outcome::Error(message) => writer.key("output").string(&failure(message)),
        }
    });
    Json::from_writer(writer)
}

/// What the model reads instead of a result: `{"status":"failed","result":…}`.
///
/// A message that is valid JSON is embedded as JSON; any other one is a string.
pub fn failure(message: &str) -> String {
    let value = Raw::parse(message.as_bytes()).ok();
    let value = value.filter(|value| matches!(value.shape(), Shape::Object | Shape::Array));
    let mut writer = Writer::with_capacity(message.len() + 40);
    writer.object(|writer| {
        writer.key("status").string("failed");
        match value {
            Some(value) => writer.key("result").raw(value),
            None => writer.key("result").string(message),
        }
    });
    String::from_utf8(writer.into_bytes()).expect("a writer writes text")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn differences_of(pending: &[&str], submitted: &[&str]) -> Vec<String> {
        let differences = differences(pending.iter().copied(), submitted.iter().copied());
        differences.iter().map(|difference| format!("{} {}", difference.code(), difference.field())).collect()
    }

    #[test]
    fn results_match_in_identity_and_order_or_every_difference_is_told() {
        // R034-15, R034-18, C-13
        let cases: [(&[&str], &[&str]); 11] = [
            (&["a", "b"], &[]),
            (
                &["b", "a"],
                &["reordered_result ToolResults[0].ToolCallId", "reordered_result ToolResults[1].ToolCallId"],
            ),
            (&["a"], &["missing_result ToolResults"]),
            // Results after a missing one are still in order.
            (&["b"], &["missing_result ToolResults"]),
            (&[], &["missing_result ToolResults", "missing_result ToolResults"]),
            (&["a", "x", "b"], &["extra_result ToolResults[1].ToolCallId"]),
            (&["a", "b", "b"], &["duplicate_result ToolResults[2].ToolCallId"]),
            (&["a", "a"], &["duplicate_result ToolResults[1].ToolCallId", "missing_result ToolResults"]),
            (&["A", "b"], &["extra_result ToolResults[0].ToolCallId", "missing_result ToolResults"]),
            (
                &["b", "x", "a", "b"],
                &[
                    "extra_result ToolResults[1].ToolCallId",
                    "duplicate_result ToolResults[3].ToolCallId",
                    "reordered_result ToolResults[0].ToolCallId",
                    "reordered_result ToolResults[2].ToolCallId",
                ],
            ),
            (
                &["x"],
                &["extra_result ToolResults[0].ToolCallId", "missing_result ToolResults", "missing_result ToolResults"],
            ),
        ];
        for (submitted, expected) in cases {
            assert_eq!(differences_of(&["a", "b"], submitted), expected, "{submitted:?}");
        }
        // A model that used one id for two calls gets two results.
        assert_eq!(differences_of(&["a", "a"], &["a", "a"]), Vec::<String>::new());
    }

    #[test]
    fn a_difference_says_which_call_it_is_about() {
        // R034-18
        let differences = differences(["a", "b", "c"], ["b", "a", "x"]);
        let messages: Vec<String> = differences.iter().map(ToString::to_string).collect();
        assert_eq!(
            messages,
            [
                "no call `x` waits for a result",
                "the result of call `a` belongs here, not that of `b`",
                "the result of call `b` belongs here, not that of `a`",
                "call `c` (number 3) has no result",
            ]
        );
    }

    #[test]
    fn an_outcome_becomes_an_output_item() {
        // R034-16, R034-20, C-14
        let item = |outcome| {
            let result = ToolResult { call_id: "call_1".into(), execution_ms: 3.0, outcome };
            serde_json::from_slice::<Value>(output_item(&result).bytes()).unwrap()
        };
        let output = |text: &str| json!({"type": "function_call_output", "call_id": "call_1", "output": text});
        for text in ["{ \"a\" : 1 }", "plain", "", "null", "\"quoted\""] {
            assert_eq!(item(Outcome::Result(text.into())), output(text));
        }
        for (message, expected) in [
            ("no such file", r#"{"status":"failed","result":"no such file"}"#),
            (r#"{"code": 5}"#, r#"{"status":"failed","result":{"code": 5}}"#),
            ("[1, 2]", r#"{"status":"failed","result":[1, 2]}"#),
            ("{not json", r#"{"status":"failed","result":"{not json"}"#),
            ("[12:30] timed out", r#"{"status":"failed","result":"[12:30] timed out"}"#),
            ("5", r#"{"status":"failed","result":"5"}"#),
        ] {
            assert_eq!(item(Outcome::Error(message.into())), output(expected));
        }
    }

    proptest! {
        #[test]
        fn nothing_differs_exactly_when_both_lists_are_one(
            pending in prop::collection::vec("[a-c]", 0..5), submitted in prop::collection::vec("[a-d]", 0..5),
        ) {
            let found = differences(pending.iter().map(String::as_str), submitted.iter().map(String::as_str));
            prop_assert_eq!(found.is_empty(), pending == submitted);
        }
    }
}
