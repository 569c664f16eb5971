//! The inputs of a user turn: files, images, and search conditions.

use std::{borrow::Cow, collections::HashSet};

use amalgam_core::{ComparisonOperator, Condition};
use amalgam_protocol::Shape;

use super::{
    fields::{Field, FieldFaultKind, FieldNames, Object, RequestFaults},
    request::Bounds,
};

/// A file with its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact<'a> {
    /// Relative to the folder that the client has open, with `/` as separator; never leads out of it.
    pub relative_path: String,
    /// The last segment of the path, or the user's name for the file.
    pub file_name: Cow<'a, str>,
    /// The content.
    pub contents: Contents<'a>,
    /// Whether the editor or the user added it.
    pub origin: ArtifactOrigin,
    /// Such as `text/markdown`.
    pub mime_type: Option<Cow<'a, str>>,
    /// Such as `csharp`.
    pub language: Option<Cow<'a, str>>,
}

/// The content of a file, by its `Encoding`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents<'a> {
    /// `utf8`
    Text(Cow<'a, str>),
    /// `base64`: valid, and still encoded.
    Base64(Cow<'a, str>),
}

/// The origin of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArtifactOrigin {
    /// The editor added it automatically.
    Ide,
    /// The user added it.
    User,
}

impl ArtifactOrigin {
    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ide => "ide",
            Self::User => "user",
        }
    }
}

/// An image with its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClipboardImage<'a> {
    /// Unique in its request.
    pub id: Cow<'a, str>,
    /// `image/…`
    pub mime_type: Cow<'a, str>,
    /// Valid base64 of at least one byte.
    pub data_base64: Cow<'a, str>,
}

pub(super) fn artifacts<'a>(field: &Field<'a>, bounds: &Bounds, faults: &mut RequestFaults) -> Vec<Artifact<'a>> {
    let elements = field.list(bounds.artifacts, faults).unwrap_or_default();
    elements.iter().filter_map(|element| artifact(element, bounds, faults)).collect()
}

fn artifact<'a>(element: &Field<'a>, bounds: &Bounds, faults: &mut RequestFaults) -> Option<Artifact<'a>> {
    const KNOWN: [FieldNames; 7] =
        [&["RelativePath"], &["FileName"], &["Contents"], &["Origin"], &["MimeType"], &["Language"], &["Encoding"]];
    let path = element.path.clone();
    let object = Object::read(path, element.raw, &KNOWN, bounds.unknown_fields, |_| None, faults)?;
    let relative_path = object.require("RelativePath", faults).and_then(|field| {
        let path = field.name(bounds.name_bytes, faults)?;
        relative(&path).or_else(|| field.invalid("must lead to a file below the open folder", faults))
    });
    let file_name = object.require("FileName", faults).and_then(|field| {
        let name = field.name(bounds.name_bytes, faults)?;
        if name.contains(['/', '\\']) || matches!(&*name, "." | "..") {
            return field.invalid("must be a name without a folder", faults);
        }
        Some(name)
    });
    let encoded = match object.get("Encoding") {
        Some(field) => field.name(bounds.name_bytes, faults).and_then(|encoding| match &*encoding {
            "utf8" => Some(false),
            "base64" => Some(true),
            _ => field.invalid("must be `utf8` or `base64`", faults),
        }),
        None => Some(false),
    };
    let contents = object.require("Contents", faults).and_then(|field| match encoded? {
        false => field.text(bounds.artifact_bytes, faults).map(Contents::Text),
        true => {
            let text = field.text(usize::MAX, faults)?;
            field.base64(&text, bounds.artifact_bytes, faults)?;
            Some(Contents::Base64(text))
        }
    });
    let origin = object.require("Origin", faults).and_then(|field| match &*field.name(bounds.name_bytes, faults)? {
        "ide" => Some(ArtifactOrigin::Ide),
        "user" => Some(ArtifactOrigin::User),
        _ => field.invalid("must be `ide` or `user`", faults),
    });
    let mime_type = object.get("MimeType").and_then(|field| mime_type(&field, None, bounds, faults));
    let language = object.get("Language").and_then(|field| field.name(bounds.name_bytes, faults));
    Some(Artifact {
        relative_path: relative_path?,
        file_name: file_name?,
        contents: contents?,
        origin: origin?,
        mime_type,
        language,
    })
}

/// Normalises a path to `/` as separator; none if it might lead out of its folder.
///
/// Clients on Windows write backslashes, and a later reader may run on Windows: both separators are accepted, drives
/// are refused, and so is a segment of only dots and spaces, since Windows reads it as dots.
fn relative(path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.split(['/', '\\']) {
        let drive =
            part.as_bytes().get(1) == Some(&b':') && part.as_bytes().first().is_some_and(u8::is_ascii_alphabetic);
        match part {
            "." => {}
            _ if drive || part.trim_matches(['.', ' ']).is_empty() => return None,
            _ => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// A valid `type/subtype`, with this type if one is given.
fn mime_type<'a>(
    field: &Field<'a>,
    family: Option<&str>,
    bounds: &Bounds,
    faults: &mut RequestFaults,
) -> Option<Cow<'a, str>> {
    let text = field.name(bounds.name_bytes, faults)?;
    let token = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
    };
    match text.split_once('/') {
        Some((kind, subtype)) if token(kind) && token(subtype) => {
            if let Some(family) = family.filter(|family| !kind.eq_ignore_ascii_case(family)) {
                return field.invalid(format!("must be a type of {family}"), faults);
            }
            Some(text)
        }
        _ => field.invalid("must be a media type such as `image/png`", faults),
    }
}

pub(super) fn images<'a>(field: &Field<'a>, bounds: &Bounds, faults: &mut RequestFaults) -> Vec<ClipboardImage<'a>> {
    let elements = field.list(bounds.images, faults).unwrap_or_default();
    let mut seen = HashSet::new();
    let mut images = Vec::with_capacity(elements.len());
    for element in elements {
        let Some(image) = image(&element, bounds, faults) else { continue };
        match seen.insert(image.id.clone()) {
            true => images.push(image),
            false => faults.add(
                format!("{}.Id", element.path),
                FieldFaultKind::Repeated,
                "is the id of an image that came before",
            ),
        }
    }
    images
}

fn image<'a>(element: &Field<'a>, bounds: &Bounds, faults: &mut RequestFaults) -> Option<ClipboardImage<'a>> {
    const KNOWN: [FieldNames; 3] = [&["Id"], &["MimeType"], &["DataBase64"]];
    let path = element.path.clone();
    let object = Object::read(path, element.raw, &KNOWN, bounds.unknown_fields, |_| None, faults)?;
    let id = object.require("Id", faults).and_then(|field| field.name(bounds.name_bytes, faults));
    let mime_type =
        object.require("MimeType", faults).and_then(|field| mime_type(&field, Some("image"), bounds, faults));
    let data_base64 = object.require("DataBase64", faults).and_then(|field| {
        let text = field.non_blank(usize::MAX, faults)?;
        field.base64(&text, bounds.image_bytes, faults)?;
        Some(text)
    });
    Some(ClipboardImage { id: id?, mime_type: mime_type?, data_base64: data_base64? })
}

/// A list of conditions, or an object that has it as `Conditions`.
pub(super) fn scope<'a>(field: &Field<'a>, bounds: &Bounds, faults: &mut RequestFaults) -> Vec<Condition<'a>> {
    const KNOWN: [FieldNames; 1] = [&["Conditions"]];
    let list = match field.raw.shape() {
        Shape::Object => {
            let path = field.path.clone();
            let object = Object::read(path, field.raw, &KNOWN, bounds.unknown_fields, |_| None, faults);
            object.and_then(|object| object.get("Conditions"))
        }
        _ => Some(field.clone()),
    };
    let elements = list.and_then(|list| list.list(bounds.conditions, faults)).unwrap_or_default();
    elements.iter().filter_map(|element| condition(element, bounds, faults)).collect()
}

fn condition<'a>(element: &Field<'a>, bounds: &Bounds, faults: &mut RequestFaults) -> Option<Condition<'a>> {
    const KNOWN: [FieldNames; 3] = [&["Key"], &["Operator"], &["Values"]];
    let path = element.path.clone();
    let object = Object::read(path, element.raw, &KNOWN, bounds.unknown_fields, |_| None, faults)?;
    let key = object.require("Key", faults).and_then(|field| field.name(bounds.name_bytes, faults));
    let operator = object.require("Operator", faults).and_then(|field| {
        let name = field.name(bounds.name_bytes, faults)?;
        ComparisonOperator::ALL
            .into_iter()
            .find(|operator| operator.name() == name)
            .or_else(|| field.invalid("must be one of `==`, `!=`, `contains`, `does_not_contain`", faults))
    });
    let values = object.require("Values", faults).and_then(|field| {
        let elements = field.list(bounds.condition_values, faults)?;
        if elements.is_empty() {
            return field.invalid("must hold at least one value", faults);
        }
        let before = elements.len();
        let values: Vec<_> = elements.iter().filter_map(|value| value.text(bounds.name_bytes, faults)).collect();
        (values.len() == before).then_some(values)
    });
    Some(Condition { key: key?, operator: operator?, values: values? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_below_its_folder() {
        // R034-21
        for (path, expected) in [
            ("src/main.rs", "src/main.rs"),
            ("./src/./main.rs", "src/main.rs"),
            (r"src\win\main.cs", "src/win/main.cs"),
            ("a..b/..hidden/c...", "a..b/..hidden/c..."),
            ("é/名.txt", "é/名.txt"),
            (".gitignore", ".gitignore"),
            ("~/x", "~/x"),
        ] {
            assert_eq!(relative(path).as_deref(), Some(expected), "{path}");
        }
        for path in [
            "",
            "/etc/passwd",
            r"\Windows",
            r"\\server\share\x",
            r"\\?\C:\x",
            "C:/x",
            "c:x",
            r"a\D:\x",
            "..",
            "../x",
            "a/../../x",
            r"a\..\x",
            "a/..\\x",
            ".. /x",
            "a/.../x",
            "a/ /x",
            "a//x",
            "a/",
            ".",
            "./",
            "file:///etc/passwd",
        ] {
            assert_eq!(relative(path), None, "{path}");
        }
    }

    #[test]
    fn a_condition_admits_by_its_operator() {
        // R034-11
        let condition = |operator| Condition { key: "path".into(), operator, values: vec!["src".into(), "lib".into()] };
        for (operator, expected) in [
            (ComparisonOperator::Equals, [true, false, false, false]),
            (ComparisonOperator::Differs, [false, true, true, true]),
            (ComparisonOperator::Contains, [true, true, false, false]),
            (ComparisonOperator::DoesNotContain, [false, false, true, true]),
        ] {
            let values = [Some("src"), Some("a/lib/b"), Some("doc"), None];
            assert_eq!(values.map(|value| condition(operator).admits(value)), expected, "{operator:?}");
        }
    }
}
