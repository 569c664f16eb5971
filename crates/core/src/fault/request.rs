//! Faults for requests that cannot be parsed.

use amalgam_protocol::{RequestError, ShapeError, ShapeFault, SyntaxError};

use super::{Fault, FaultKind};

/// A body that is not JSON.
impl From<SyntaxError> for Fault {
    fn from(error: SyntaxError) -> Self {
        Fault::new(FaultKind::Invalid, format!("We could not parse the JSON body of your request: {error}."))
            .code("invalid_json")
    }
}

/// A field with the wrong format.
impl From<ShapeError> for Fault {
    fn from(error: ShapeError) -> Self {
        let path = match error.path.is_empty() {
            true => "body".to_owned(),
            false => error.path,
        };
        let (message, code) = match &error.fault {
            ShapeFault::Missing => (format!("Missing required parameter: '{path}'."), "missing_required_parameter"),
            ShapeFault::Type { .. } => (format!("Invalid type for '{path}': {}.", error.fault), "invalid_type"),
            ShapeFault::Value(_) => (format!("Invalid value for '{path}': {}.", error.fault), "invalid_value"),
        };
        Fault::new(FaultKind::Invalid, message).param(path).code(code)
    }
}

impl From<RequestError> for Fault {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Syntax(error) => error.into(),
            RequestError::Shape(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_named_in_message_and_param() {
        let fault = Fault::from(ShapeError::missing("call_id").at(2).under("input"));
        assert_eq!(fault.message, "Missing required parameter: 'input[2].call_id'.");
        assert_eq!(fault.param.as_deref(), Some("input[2].call_id"));
    }
}
