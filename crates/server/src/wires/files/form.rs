//! Reads an upload from its form.

use amalgam_core::{Fault, FaultKind, media};
use amalgam_protocol::ShapeError;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::multipart::{Part, malformed, parts};

/// The maximum length of a file name, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// The maximum length of a purpose.
const MAX_PURPOSE_BYTES: usize = 64;
/// The error for an invalid purpose.
pub(super) const PURPOSE: &str = "must be a word such as `user_data`";
/// The range of a file's expiry time, in seconds.
const EXPIRY_SECONDS: std::ops::RangeInclusive<u64> = 3600..=2_592_000;

/// An uploaded file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Upload {
    pub(super) filename: String,
    pub(super) purpose: String,
    pub(super) media_type: String,
    pub(super) content: Bytes,
    /// The file expires after this many seconds.
    pub(super) expires_after_seconds: Option<u64>,
}

impl Upload {
    /// Reads a form with the given boundary and a file of at most `max_bytes` bytes.
    pub(super) fn read(body: &Bytes, boundary: Option<&str>, max_bytes: usize) -> Result<Self, Fault> {
        let boundary = boundary.ok_or_else(|| malformed("its Content-Type names no boundary"))?;
        let mut fields = Fields::default();
        for part in parts(body, boundary)? {
            let field = match part.name.as_str() {
                "file" => &mut fields.file,
                "purpose" => &mut fields.purpose,
                "expires_after[anchor]" => &mut fields.anchor,
                "expires_after[seconds]" => &mut fields.seconds,
                other => {
                    let shown: String = other.chars().take(200).collect();
                    let message = format!("Unknown parameter: '{shown}'.");
                    return Err(Fault::invalid(shown, message).code("unknown_parameter"));
                }
            };
            if field.is_some() {
                return Err(Fault::invalid(part.name, "This parameter is given twice."));
            }
            *field = Some(part);
        }
        let expires_after_seconds = fields.expires_after()?;
        let purpose = fields.purpose()?;
        let file = fields.file.ok_or_else(|| ShapeError::missing("file"))?;
        if file.content.len() > max_bytes {
            let message = format!("The file is larger than {max_bytes} bytes.");
            return Err(Fault::new(FaultKind::TooLarge, message).param("file"));
        }
        if file.content.is_empty() {
            return Err(Fault::invalid("file", "The file is empty."));
        }
        let filename = filename(file.filename.as_deref().unwrap_or_default())?;
        let media_type = media::of_file(&file.content, file.content_type.as_deref(), &filename);
        Ok(Self { filename, purpose, media_type, content: file.content, expires_after_seconds })
    }

    /// A digest of the content: equal for the same upload with another boundary.
    pub(super) fn digest(&self) -> Bytes {
        let mut digest = Sha256::new();
        let expires_after = self.expires_after_seconds.unwrap_or_default().to_string();
        for text in [&*self.filename, &*self.purpose, &*self.media_type, &*expires_after] {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text);
        }
        digest.update(&self.content);
        Bytes::copy_from_slice(&digest.finalize())
    }
}

#[derive(Default)]
struct Fields {
    file: Option<Part>,
    purpose: Option<Part>,
    anchor: Option<Part>,
    seconds: Option<Part>,
}

impl Fields {
    fn purpose(&self) -> Result<String, Fault> {
        let purpose = text(&self.purpose).filter(|purpose| !purpose.is_empty());
        let purpose = purpose.ok_or_else(|| ShapeError::missing("purpose"))?;
        match is_purpose(purpose) {
            true => Ok(purpose.to_owned()),
            false => Err(invalid("purpose", PURPOSE)),
        }
    }

    fn expires_after(&self) -> Result<Option<u64>, Fault> {
        match (text(&self.anchor), text(&self.seconds)) {
            (None, None) => Ok(None),
            (anchor, seconds) => {
                if anchor != Some("created_at") {
                    return Err(invalid("expires_after[anchor]", "must be `created_at`"));
                }
                let seconds =
                    seconds.and_then(|seconds| seconds.parse().ok()).filter(|seconds| EXPIRY_SECONDS.contains(seconds));
                let why = format!("must be a whole number from {} to {}", EXPIRY_SECONDS.start(), EXPIRY_SECONDS.end());
                seconds.map(Some).ok_or_else(|| invalid("expires_after[seconds]", &why))
            }
        }
    }
}

/// Whether this is a valid purpose.
pub(super) fn is_purpose(purpose: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_PURPOSE_BYTES).contains(&purpose.len()) && purpose.bytes().all(allowed)
}

/// The text of a field; none if it is not UTF-8.
fn text(part: &Option<Part>) -> Option<&str> {
    part.as_ref().map(|part| std::str::from_utf8(&part.content).unwrap_or("\u{fffd}").trim())
}

/// The last segment of a name: some clients send the whole path.
fn filename(sent: &str) -> Result<String, Fault> {
    let name = sent.rsplit(['/', '\\']).next().unwrap_or_default().trim();
    if name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        return Err(invalid(
            "file",
            &format!("its name must have at most {MAX_NAME_BYTES} bytes and no control characters"),
        ));
    }
    Ok(if name.is_empty() { "file" } else { name }.to_owned())
}

pub(super) fn invalid(path: &'static str, why: &str) -> Fault {
    Fault::invalid(path, format!("Invalid value for '{path}': {why}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(fields: &[(&str, &str)]) -> Result<Upload, (Option<String>, Option<String>)> {
        let mut body = String::new();
        for (disposition, content) in fields {
            body.push_str(&format!("--b\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{content}\r\n"));
        }
        body.push_str("--b--\r\n");
        let told = |text: Option<std::borrow::Cow<'static, str>>| text.map(std::borrow::Cow::into_owned);
        Upload::read(&body.into(), Some("b"), 10)
            .map_err(|fault| fault.into_parts())
            .map_err(|fault| (told(fault.param), told(fault.code)))
    }

    const FILE: (&str, &str) = ("name=file; filename=\"/tmp/a.md\"", "# Hi");
    const PURPOSE: (&str, &str) = ("name=purpose", "user_data");

    #[test]
    fn an_upload_is_a_file_and_what_it_is_for() {
        let expected = Upload {
            filename: "a.md".to_owned(),
            purpose: "user_data".to_owned(),
            media_type: "text/markdown".to_owned(),
            content: Bytes::from_static(b"# Hi"),
            expires_after_seconds: None,
        };
        assert_eq!(read(&[FILE, PURPOSE]), Ok(expected.clone()));
        let expires_after =
            [("name=\"expires_after[anchor]\"", "created_at"), ("name=\"expires_after[seconds]\"", "3600")];
        let living = Upload { expires_after_seconds: Some(3600), ..expected.clone() };
        assert_eq!(read(&[expires_after[1], FILE, PURPOSE, expires_after[0]]), Ok(living.clone()));
        assert_eq!(expected.digest(), expected.clone().digest());
        assert_ne!(expected.digest(), living.digest());
    }

    #[test]
    fn what_is_wrong_with_an_upload_is_named() {
        let (anchor, seconds) = ("name=\"expires_after[anchor]\"", "name=\"expires_after[seconds]\"");
        let long = format!("name=file; filename=\"{}\"", "n".repeat(256));
        let missing = Some("missing_required_parameter");
        type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, Option<&'a str>);
        let cases: [Case<'_>; 13] = [
            (&[PURPOSE], "file", missing),
            (&[FILE], "purpose", missing),
            (&[FILE, ("name=purpose", "")], "purpose", missing),
            (&[FILE, ("name=purpose", "for me\u{0}")], "purpose", None),
            (&[FILE, FILE, PURPOSE], "file", None),
            (&[FILE, PURPOSE, ("name=tenant", "2")], "tenant", Some("unknown_parameter")),
            (&[("name=file; filename=a", ""), PURPOSE], "file", None),
            (&[("name=file; filename=a", "more than 10"), PURPOSE], "file", None),
            (&[("name=file; filename=\"a%0Ab\"", "x"), PURPOSE], "file", None),
            (&[(&long, "x"), PURPOSE], "file", None),
            (&[FILE, PURPOSE, (anchor, "created_at")], "expires_after[seconds]", None),
            (&[FILE, PURPOSE, (seconds, "3600")], "expires_after[anchor]", None),
            (&[FILE, PURPOSE, (anchor, "created_at"), (seconds, "3599")], "expires_after[seconds]", None),
        ];
        for (fields, param, code) in cases {
            assert_eq!(read(fields), Err((Some(param.to_owned()), code.map(str::to_owned))), "{fields:?}");
        }
    }

    #[test]
    fn a_form_without_a_boundary_cannot_be_read() {
        let fault = Upload::read(&Bytes::from_static(b"--b--"), None, 10).unwrap_err();
        assert_eq!((fault.kind, fault.code.as_deref()), (FaultKind::Invalid, Some("invalid_multipart")));
    }
}
