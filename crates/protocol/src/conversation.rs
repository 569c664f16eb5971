//! The Conversations API: bodies of its requests, as views of their text.

use crate::{
    item::Item,
    json::Raw,
    shape::{Field, ShapeError, list, object},
};

/// The body of `POST /v1/conversations`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CreateConversation<'a> {
    /// Its first items.
    pub items: Vec<Item<'a>>,
    /// Up to 16 pairs of strings.
    pub metadata: Option<Raw<'a>>,
}

impl<'a> CreateConversation<'a> {
    /// Reads a request. An error names the path of the field at fault.
    pub fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        let mut request = Self::default();
        for (key, value) in object(raw)?.filter(|(_, value)| !value.is_null()) {
            match &*key.decode() {
                "items" => request.items = Items::field("items", value)?.0,
                "metadata" => request.metadata = Some(value),
                _ => {}
            }
        }
        Ok(request)
    }
}

/// The body of `POST /v1/conversations/{id}`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpdateConversation<'a> {
    /// Up to 16 pairs of strings; null is none.
    pub metadata: Raw<'a>,
}

impl<'a> UpdateConversation<'a> {
    /// Reads a request. An error names the path of the field at fault.
    pub fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        object(raw)?;
        let metadata = raw.get("metadata").ok_or_else(|| ShapeError::missing("metadata"))?;
        Ok(Self { metadata })
    }
}

/// The body of `POST /v1/conversations/{id}/items`.
#[derive(Debug, Clone, PartialEq)]
pub struct AddItems<'a> {
    /// The items in order.
    pub items: Vec<Item<'a>>,
}

impl<'a> AddItems<'a> {
    /// Reads a request. An error names the path of the field at fault.
    pub fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        object(raw)?;
        let items = raw.get("items").filter(|items| !items.is_null()).ok_or_else(|| ShapeError::missing("items"))?;
        Items::field("items", items).map(|items| Self { items: items.0 })
    }
}

struct Items<'a>(Vec<Item<'a>>);

impl<'a> Field<'a> for Items<'a> {
    fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        list(raw, "an array of items", Item::from_caller).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::ShapeFault;

    fn raw(text: &str) -> Raw<'_> {
        Raw::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn null_counts_as_not_said_and_unknown_fields_are_passed_by() {
        let nothing = CreateConversation::default();
        assert_eq!(CreateConversation::read(raw("{}")).unwrap(), nothing);
        assert_eq!(CreateConversation::read(raw(r#"{"items":null,"metadata":null,"own":1}"#)).unwrap(), nothing);
        let request =
            CreateConversation::read(raw(r#"{"items":[{"role":"user","content":"x"}],"metadata":{"a":"b"}}"#)).unwrap();
        assert_eq!((request.items.len(), request.metadata), (1, Some(raw(r#"{"a":"b"}"#))));
    }

    #[test]
    fn an_error_names_the_path() {
        let path = |text: &str| CreateConversation::read(raw(text)).unwrap_err().path;
        assert_eq!(path("[]"), "");
        assert_eq!(path(r#"{"items":"x"}"#), "items");
        assert_eq!(path(r#"{"items":[{"role":"user","content":"x"},null]}"#), "items[1]");
        assert_eq!(path(r#"{"items":[{"type":"function_call","call_id":"c"}]}"#), "items[0].name");
    }

    #[test]
    fn what_must_be_said_is_missed() {
        for text in ["{}", r#"{"items":null}"#] {
            let error = AddItems::read(raw(text)).unwrap_err();
            assert_eq!((error.path.as_str(), error.fault), ("items", ShapeFault::Missing), "{text}");
        }
        let error = UpdateConversation::read(raw("{}")).unwrap_err();
        assert_eq!((error.path.as_str(), error.fault), ("metadata", ShapeFault::Missing));
        assert_eq!(UpdateConversation::read(raw(r#"{"metadata":null}"#)).unwrap().metadata, Raw::NULL);
    }
}
