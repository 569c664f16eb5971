//! Tools that are Rust functions: typed arguments in, a value out.
//!
//! The schema that the model sees is generated from the function's argument type, so the two cannot differ. One file
//! per tool under `catalog/`, one line each in `catalog.rs`.

use std::{fmt, marker::PhantomData, sync::Arc};

use amalgam_core::{BoxFuture, Handler, ToolCall, ToolError, ToolOutput};
use amalgam_protocol::Json;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A tool that is part of the program.
#[derive(Clone)]
pub struct Builtin {
    /// Its configured name, which the model calls unless the bank has another one.
    pub name: &'static str,
    /// Its description for the model.
    pub description: &'static str,
    /// The JSON Schema of its arguments.
    pub parameters: Json,
    /// When to use it, for the system prompt.
    pub guidance: &'static str,
    /// Runs it.
    pub run: Arc<dyn Handler>,
}

impl fmt::Debug for Builtin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "built-in {}", self.name)
    }
}

impl Builtin {
    /// A tool that takes `A`. Arguments of another type never reach `run`.
    pub fn new<A, F>(name: &'static str, description: &'static str, guidance: &'static str, run: F) -> Self
    where
        A: Arguments,
        F: for<'a> Fn(A, ToolCall<'a>) -> BoxFuture<'a, Result<Value, ToolError>> + Send + Sync + 'static,
    {
        let handler = TypedHandler { run, takes: PhantomData::<fn(A)> };
        Self { name, description, parameters: json(&A::schema()), guidance, run: Arc::new(handler) }
    }
}

/// The arguments of a built-in tool. Declared with [`arguments!`](crate::arguments).
pub trait Arguments: DeserializeOwned + Send + 'static {
    /// The schema of these arguments.
    fn schema() -> Value;
}

/// The type of one argument.
pub trait Argument {
    /// Whether it may be omitted.
    const OPTIONAL: bool = false;
    /// The schema of its values.
    fn schema() -> Value;
}

/// Declares the arguments of a built-in tool: a struct, and the schema that matches it.
///
/// After the type comes the description for the model, then further keywords of JSON Schema where they are needed.
///
/// ```
/// amalgam_tools::arguments! {
///     /// Which course.
///     pub struct Course {
///         course_id: i64 = "The number of the course.", minimum: 1;
///         language: Option<String> = "Two letters, such as `de`.", pattern: "^[a-z]{2}$";
///     }
/// }
/// ```
#[macro_export]
macro_rules! arguments {
    ($(#[$about:meta])* $visibility:vis struct $name:ident {
        $($field:ident: $kind:ty = $description:literal $(, $keyword:ident: $value:expr)*;)*
    }) => {
        $(#[$about])*
        #[derive(Debug, ::serde::Deserialize)]
        $visibility struct $name {
            $(#[doc = $description] $visibility $field: $kind,)*
        }

        impl $crate::Arguments for $name {
            fn schema() -> ::serde_json::Value {
                let mut schema = ::serde_json::json!({
                    "type": "object", "properties": {}, "required": [], "additionalProperties": false,
                });
                $({
                    let mut property = <$kind as $crate::Argument>::schema();
                    property["description"] = $description.into();
                    $(property[stringify!($keyword)] = ::serde_json::json!($value);)*
                    schema["properties"][stringify!($field)] = property;
                    if !<$kind as $crate::Argument>::OPTIONAL {
                        if let Some(required) = schema["required"].as_array_mut() {
                            required.push(stringify!($field).into());
                        }
                    }
                })*
                schema
            }
        }
    };
}

macro_rules! argument {
    ($($kind:ty: $name:literal;)*) => {$(
        impl Argument for $kind {
            fn schema() -> Value {
                serde_json::json!({"type": $name})
            }
        }
    )*};
}

argument! {
    String: "string";
    i64: "integer";
    f64: "number";
    bool: "boolean";
}

impl<T: Argument> Argument for Vec<T> {
    fn schema() -> Value {
        serde_json::json!({"type": "array", "items": T::schema()})
    }
}

/// Omitted or null.
impl<T: Argument> Argument for Option<T> {
    const OPTIONAL: bool = true;

    fn schema() -> Value {
        let mut schema = T::schema();
        let kind = schema["type"].take();
        schema["type"] = serde_json::json!([kind, "null"]);
        schema
    }
}

struct TypedHandler<A, F> {
    run: F,
    takes: PhantomData<fn(A)>,
}

impl<A, F> Handler for TypedHandler<A, F>
where
    A: Arguments,
    F: for<'a> Fn(A, ToolCall<'a>) -> BoxFuture<'a, Result<Value, ToolError>> + Send + Sync,
{
    fn run<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            // The schema was checked before; this is the check of the type.
            let arguments = serde_json::from_str(call.arguments.text())
                .map_err(|error| ToolError::Refused(format!("the arguments cannot be used: {error}")))?;
            Ok(ToolOutput { output: json(&(self.run)(arguments, call).await?) })
        })
    }
}

/// The same value as text.
fn json(value: &Value) -> Json {
    Json::parse(&value.to_string().into()).expect("what was written as JSON is JSON of bearable depth")
}

#[cfg(test)]
mod tests {
    use amalgam_core::ArgumentCheck as _;
    use amalgam_protocol::Raw;
    use serde_json::json;

    use super::*;
    use crate::Schema;

    arguments! {
        /// One argument of each type.
        struct Everything {
            id: i64 = "A number.", minimum: 1;
            names: Vec<String> = "Names.", maxItems: 2;
            note: Option<String> = "A note.";
        }
    }

    #[test]
    fn the_schema_says_what_the_type_takes() {
        let expected = json!({
            "type": "object",
            "properties": {
                "id": {"type": "integer", "description": "A number.", "minimum": 1},
                "names": {"type": "array", "items": {"type": "string"}, "description": "Names.", "maxItems": 2},
                "note": {"type": ["string", "null"], "description": "A note."},
            },
            "required": ["id", "names"],
            "additionalProperties": false,
        });
        assert_eq!(Everything::schema(), expected);
    }

    #[test]
    fn what_the_schema_allows_the_type_takes_and_the_rest_is_refused_by_both() {
        let schema = Schema::compile(json(&Everything::schema()).raw()).unwrap();
        for (text, good) in [
            (r#"{"id": 1, "names": []}"#, true),
            (r#"{"id": 1, "names": ["a"], "note": null}"#, true),
            (r#"{"id": "1", "names": []}"#, false),
            (r#"{"id": 1}"#, false),
            (r#"{"id": 1, "names": [1]}"#, false),
        ] {
            let raw = Raw::parse(text.as_bytes()).unwrap();
            assert_eq!(schema.check(raw).is_ok(), good, "{text}");
            let read = serde_json::from_str::<Everything>(text).map(|read| (read.id, read.names, read.note));
            assert_eq!(read.is_ok(), good, "{text}");
        }
    }
}
