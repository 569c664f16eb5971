//! How attributes and embeddings are stored in columns.

use amalgam_protocol::{Json, Writer};

use crate::rows::json;

/// Names and values, one after the other, as an array.
pub(super) fn attributes_json(attributes: &[(String, String)]) -> Json {
    let mut writer = Writer::default();
    writer.array(|writer| {
        for (name, value) in attributes {
            writer.string(name);
            writer.string(value);
        }
    });
    Json::from_writer(writer)
}

/// Names and values from their array.
pub(super) fn attributes(text: &str) -> Vec<(String, String)> {
    let array = json(text);
    let mut strings = array.raw().elements().filter_map(|string| Some(string.as_str()?.decode().into_owned()));
    let mut attributes = Vec::new();
    while let (Some(name), Some(value)) = (strings.next(), strings.next()) {
        attributes.push((name, value));
    }
    attributes
}

/// An embedding as it is stored.
pub(super) fn embedding_bytes(embedding: &[f32]) -> Vec<u8> {
    embedding.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// An embedding from its column.
pub(super) fn embedding(bytes: &[u8]) -> Vec<f32> {
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers.iter().map(|number| f32::from_le_bytes(*number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_into_columns_comes_out_again() {
        let known = [("repo", "amalgam"), ("it's", "\"quoted\"\n"), ("", "")];
        let known: Vec<_> = known.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(attributes(attributes_json(&known).raw().text()), known);
        let numbers = [0.0, -1.5, f32::MAX, f32::MIN_POSITIVE];
        assert_eq!(embedding(&embedding_bytes(&numbers)), numbers);
    }
}
