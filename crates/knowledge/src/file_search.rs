//! Reads the tool `file_search` of a request: collections, limits, and filters as conditions.

use amalgam_core::{ComparisonOperator, Condition, FileSearchRequest};
use amalgam_protocol::{FileSearchTool, Raw, Shape, ShapeError};

/// The number of results of a request that names none.
const DEFAULT_LIMIT: usize = 10;
/// The most results that a request may ask for.
const MAX_LIMIT: u64 = 50;
/// The maximum number of comparisons of all filters together, and of values of one.
const MAX_CONDITIONS: usize = 32;
const MAX_VALUES: usize = 64;
/// The deepest nesting of filters.
const MAX_DEPTH: usize = 8;
/// The prefix of vector store ids of an upstream.
const UPSTREAM_PREFIX: &str = "vs_";

/// The search that a tool asks for; none if all of its vector stores are the upstream's.
pub fn file_search_request(
    tool: Raw<'_>,
    path: String,
    results: bool,
) -> Result<Option<FileSearchRequest>, ShapeError> {
    let tool = FileSearchTool::of(tool)?;
    let names = &tool.vector_store_ids.0;
    let of_upstreams = names.iter().filter(|name| name.starts_with(UPSTREAM_PREFIX)).count();
    if of_upstreams == names.len() {
        return Ok(None);
    }
    if of_upstreams > 0 {
        let message = "must be collections of this server or stores of the upstream, and not both in one tool";
        return Err(ShapeError::value("vector_store_ids", message));
    }
    let limit = match tool.max_num_results {
        None => DEFAULT_LIMIT,
        Some(limit @ 1..=MAX_LIMIT) => limit as usize,
        Some(_) => {
            return Err(ShapeError::value("max_num_results", format!("must be between 1 and {MAX_LIMIT}")));
        }
    };
    let mut conditions = Vec::new();
    if let Some(filters) = tool.filters.filter(|filters| !filters.is_null()) {
        collect(filters, 0, &mut conditions).map_err(|error| error.under("filters"))?;
    }
    let least_score = match tool.ranking_options.and_then(|options| options.get("score_threshold")) {
        None => 0.0,
        Some(score) if score.is_null() => 0.0,
        Some(score) => score.as_f64().filter(|score| (0.0..=1.0).contains(score)).ok_or_else(|| {
            ShapeError::value("score_threshold", "must be a number between 0 and 1").under("ranking_options")
        })?,
    };
    let collections = names.iter().map(|name| name.clone().into_owned()).collect();
    Ok(Some(FileSearchRequest { path, collections, conditions, limit, least_score, results }))
}

/// Adds the conditions of a filter, all of which must hold.
fn collect(filter: Raw<'_>, depth: usize, conditions: &mut Vec<Condition<'static>>) -> Result<(), ShapeError> {
    if filter.shape() != Shape::Object {
        return Err(ShapeError::expected("", "an object", filter));
    }
    if depth == MAX_DEPTH {
        return Err(ShapeError::value("", format!("must not be deeper than {MAX_DEPTH} levels")));
    }
    let kind = filter.get_str("type").ok_or_else(|| ShapeError::missing("type"))?;
    match &*kind {
        "and" => {
            for (index, nested) in nested(filter)?.enumerate() {
                collect(nested, depth + 1, conditions).map_err(|error| error.at(index).under("filters"))?;
            }
        }
        "or" => conditions.push(alternatives(filter)?),
        _ => conditions.push(comparison(filter, &kind)?),
    }
    match conditions.len() > MAX_CONDITIONS {
        true => Err(ShapeError::value("", format!("must not compare more than {MAX_CONDITIONS} times"))),
        false => Ok(()),
    }
}

fn nested(filter: Raw<'_>) -> Result<impl Iterator<Item = Raw<'_>>, ShapeError> {
    let list = filter.get("filters").ok_or_else(|| ShapeError::missing("filters"))?;
    match list.shape() {
        Shape::Array => Ok(list.elements()),
        _ => Err(ShapeError::expected("filters", "an array of filters", list)),
    }
}

/// `or` is supported for alternatives of one key, which are one condition.
fn alternatives(filter: Raw<'_>) -> Result<Condition<'static>, ShapeError> {
    let mut joined: Option<Condition<'static>> = None;
    for (index, nested) in nested(filter)?.enumerate() {
        let kind = nested.get_str("type").unwrap_or_default();
        let other = match &*kind {
            "eq" | "in" => comparison(nested, &kind).map_err(|error| error.at(index).under("filters"))?,
            _ => return Err(not_one_key()),
        };
        match &mut joined {
            None => joined = Some(other),
            Some(known) if known.key == other.key => known.values.extend(other.values),
            Some(_) => return Err(not_one_key()),
        }
    }
    let joined = joined.ok_or_else(|| ShapeError::value("filters", "must not be empty"))?;
    match joined.values.len() > MAX_VALUES {
        true => Err(ShapeError::value("filters", format!("must not have more than {MAX_VALUES} values"))),
        false => Ok(joined),
    }
}

fn not_one_key() -> ShapeError {
    ShapeError::value("type", "`or` is supported for `eq` and `in` of one key only")
}

fn comparison(filter: Raw<'_>, kind: &str) -> Result<Condition<'static>, ShapeError> {
    let operator = match kind {
        "eq" | "in" => ComparisonOperator::Equals,
        "ne" | "nin" => ComparisonOperator::Differs,
        "gt" | "gte" | "lt" | "lte" => {
            let message =
                format!("`{kind}` is not supported: what is known about documents is text, which has no order");
            return Err(ShapeError::value("type", message));
        }
        _ => {
            let message = "must be one of `eq`, `ne`, `in`, `nin`, `and`, `or`";
            return Err(ShapeError::value("type", message));
        }
    };
    let key = filter.get_str("key").filter(|key| !key.is_empty()).ok_or_else(|| ShapeError::missing("key"))?;
    let value = filter.get("value").ok_or_else(|| ShapeError::missing("value"))?;
    let values = match (kind, value.shape()) {
        ("in" | "nin", Shape::Array) => value
            .elements()
            .enumerate()
            .map(|(index, value)| text_of(value).map_err(|error| error.at(index).under("value")))
            .collect::<Result<Vec<_>, _>>()?,
        ("in" | "nin", _) => return Err(ShapeError::expected("value", "an array", value)),
        _ => vec![text_of(value).map_err(|error| error.under("value"))?],
    };
    if values.is_empty() || values.len() > MAX_VALUES {
        return Err(ShapeError::value("value", format!("must have between 1 and {MAX_VALUES} values")));
    }
    let values = values.into_iter().map(Into::into).collect();
    Ok(Condition { key: key.into_owned().into(), operator, values })
}

/// Attributes of documents are text; numbers and booleans are compared as they are written.
fn text_of(value: Raw<'_>) -> Result<String, ShapeError> {
    match value.shape() {
        Shape::String => Ok(value.as_str().map(|text| text.decode().into_owned()).unwrap_or_default()),
        Shape::Number | Shape::Bool => Ok(value.text().to_owned()),
        _ => Err(ShapeError::expected("", "a string, a number or a boolean", value)),
    }
}

#[cfg(test)]
#[path = "file_search_tests.rs"]
mod tests;
