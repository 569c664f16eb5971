//! Attributes of spans, of data points and of the resource.

use crate::message::{AnyValue, AttributeValue, KeyValue};

/// Attributes in the order in which they were added. Values that are absent are left out.
#[derive(Debug, Default)]
pub(crate) struct Attributes(Vec<KeyValue>);

impl Attributes {
    /// Adds a value, if there is one.
    pub(crate) fn add(&mut self, key: &str, value: impl IntoAttribute) {
        if let Some(value) = value.into_attribute() {
            self.0.push(KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) });
        }
    }

    pub(crate) fn into_list(self) -> Vec<KeyValue> {
        self.0
    }
}

/// What can be the value of an attribute.
pub(crate) trait IntoAttribute {
    fn into_attribute(self) -> Option<AttributeValue>;
}

impl<T: IntoAttribute> IntoAttribute for Option<T> {
    fn into_attribute(self) -> Option<AttributeValue> {
        self.and_then(T::into_attribute)
    }
}

impl IntoAttribute for &str {
    fn into_attribute(self) -> Option<AttributeValue> {
        Some(AttributeValue::Text(self.to_owned()))
    }
}

impl IntoAttribute for bool {
    fn into_attribute(self) -> Option<AttributeValue> {
        Some(AttributeValue::Bool(self))
    }
}

impl IntoAttribute for i64 {
    fn into_attribute(self) -> Option<AttributeValue> {
        Some(AttributeValue::Int(self))
    }
}

impl IntoAttribute for u64 {
    fn into_attribute(self) -> Option<AttributeValue> {
        Some(AttributeValue::Int(i64::try_from(self).unwrap_or(i64::MAX)))
    }
}

impl IntoAttribute for f64 {
    fn into_attribute(self) -> Option<AttributeValue> {
        Some(AttributeValue::Double(self))
    }
}
