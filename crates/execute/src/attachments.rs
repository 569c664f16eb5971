//! The attachments of a user turn as parts of the user's message: images first, then files, then the editor's context.

use amalgam_core::media;
use amalgam_protocol::{Json, Writer};
use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    context::{fence, language_of},
    request::{Artifact, ClipboardImage, Contents, Hints, UserTurn},
};

/// The parts of a turn, in order. `solution_context` is the session's current one, updated by this turn.
///
/// Uploaded files are not included: only the file store knows their type ([`file_part`]).
pub fn parts(turn: &UserTurn<'_>, solution_context: Option<&str>) -> Vec<Json> {
    let images = turn.images.iter().map(image_part);
    let artifacts = turn.artifacts.iter().map(artifact_part);
    let context = solution_context.filter(|text| !text.trim().is_empty());
    let context = context.map(|text| text_part(&format!("[SOLUTION_CONTEXT]\n{text}")));
    let hints = hints_text(&turn.hints).map(|text| text_part(&text));
    images.chain(artifacts).chain(context).chain(hints).collect()
}

/// An uploaded file; an image part if it is an image.
pub fn file_part(file_id: &str, mime_type: Option<&str>) -> Json {
    // Some image types, such as SVG, are files to every model.
    let kind = match mime_type.is_some_and(|mime_type| media::is_image(&mime_type.to_ascii_lowercase())) {
        true => "input_image",
        false => "input_file",
    };
    part(kind, |writer| writer.key("file_id").string(file_id))
}

/// An image with its bytes.
pub fn image_part(image: &ClipboardImage<'_>) -> Json {
    picture(&image.mime_type, &image.data_base64)
}

/// A file: an image part, its text, or a file part with its bytes.
pub fn artifact_part(artifact: &Artifact<'_>) -> Json {
    let encoded = match &artifact.contents {
        Contents::Text(text) => return text_part(&file_text(artifact, text)),
        Contents::Base64(encoded) => encoded,
    };
    let mime_type = artifact.mime_type.as_deref();
    if let Some(mime_type) = mime_type.filter(|mime_type| is_image(mime_type)) {
        return picture(mime_type, encoded);
    }
    // A client may encode any file; content that is valid text is sent as text.
    let bytes = STANDARD.decode(encoded.as_bytes()).unwrap_or_default();
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') && mime_type != Some("application/pdf") => {
            text_part(&file_text(artifact, &text))
        }
        _ => part("input_file", |writer| {
            writer.key("filename").string(&artifact.file_name);
            let mime_type = mime_type.unwrap_or("application/octet-stream");
            writer.key("file_data").string(&format!("data:{mime_type};base64,{encoded}"));
        }),
    }
}

fn file_text(artifact: &Artifact<'_>, text: &str) -> String {
    let language = artifact.language.as_deref().unwrap_or_else(|| language_of(&artifact.relative_path));
    let tag: String =
        language.chars().filter(|character| character.is_alphanumeric() || "+#-_.".contains(*character)).collect();
    let fence = fence(text);
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!(
        "[FILE]\nPath: {}\nName: {}\nOrigin: {}\nLanguage: {language}\n{fence}{tag}\n{text}{end}{fence}",
        artifact.relative_path,
        artifact.file_name,
        artifact.origin.name(),
    )
}

fn hints_text(hints: &Hints<'_>) -> Option<String> {
    let lines = [("Workspace", &hints.workspace_id), ("Repository", &hints.repo), ("Language", &hints.language)];
    let hints: String =
        lines.into_iter().filter_map(|(label, hint)| Some(format!("\n{label}: {}", hint.as_deref()?))).collect();
    (!hints.is_empty()).then(|| format!("[WORKSPACE]{hints}"))
}

fn is_image(mime_type: &str) -> bool {
    mime_type.get(..6).is_some_and(|family| family.eq_ignore_ascii_case("image/"))
}

fn picture(mime_type: &str, encoded: &str) -> Json {
    part("input_image", |writer| {
        writer.key("image_url").string(&format!("data:{mime_type};base64,{encoded}"));
        writer.key("detail").string("auto");
    })
}

fn text_part(text: &str) -> Json {
    part("input_text", |writer| writer.key("text").string(text))
}

fn part(kind: &str, fill: impl FnOnce(&mut Writer)) -> Json {
    let mut writer = Writer::default();
    writer.object(|writer| {
        writer.key("type").string(kind);
        fill(writer);
    });
    Json::from_writer(writer)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serde_json::{Value, json};

    use super::*;
    use crate::request::{ArtifactOrigin, Bounds, ExecuteRequest, read};

    fn value(part: &Json) -> Value {
        serde_json::from_slice(part.bytes()).unwrap()
    }

    fn artifact(contents: Contents<'static>, mime_type: Option<&'static str>) -> Artifact<'static> {
        Artifact {
            relative_path: "src/a.ts".to_owned(),
            file_name: "a.ts".into(),
            contents,
            origin: ArtifactOrigin::User,
            mime_type: mime_type.map(Cow::Borrowed),
            language: None,
        }
    }

    #[test]
    fn a_turn_brings_its_pictures_then_its_files_then_where_it_is() {
        // R003-30, R034-10, R034-12, R034-21, R034-22, R034-23
        let body = json!({
            "SessionId": "s", "TurnId": "t", "WorkspaceId": "w1", "Repo": "amalgam",
            "InputArtifacts": [{"RelativePath": "src/a.ts", "FileName": "a.ts", "Contents": "let x;", "Origin": "ide"}],
            "ClipboardImages": [{"Id": "i", "MimeType": "image/png", "DataBase64": "AAAA"}],
        })
        .to_string();
        let request = read(amalgam_protocol::Raw::parse(body.as_bytes()).unwrap(), &Bounds::default()).unwrap();
        let ExecuteRequest::UserTurn(turn) = request else { panic!("{request:?}") };
        let values: Vec<Value> = parts(&turn, Some("Two projects.")).iter().map(value).collect();
        let file = "[FILE]\nPath: src/a.ts\nName: a.ts\nOrigin: ide\nLanguage: typescript\n```typescript\nlet x;\n```";
        assert_eq!(
            values,
            [
                json!({"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}),
                json!({"type": "input_text", "text": file}),
                json!({"type": "input_text", "text": "[SOLUTION_CONTEXT]\nTwo projects."}),
                json!({"type": "input_text", "text": "[WORKSPACE]\nWorkspace: w1\nRepository: amalgam"}),
            ]
        );
    }

    #[test]
    fn a_file_is_told_by_what_is_in_it() {
        // R034-21
        let text = |text: &str| json!({"type": "input_text", "text": text});
        let head = "[FILE]\nPath: src/a.ts\nName: a.ts\nOrigin: user\nLanguage: typescript\n";
        let part = |contents, mime_type| value(&artifact_part(&artifact(contents, mime_type)));
        let fenced = part(Contents::Text("a\n```\nb\n".into()), None);
        assert_eq!(fenced, text(&format!("{head}````typescript\na\n```\nb\n````")));
        assert_eq!(part(Contents::Text("".into()), None), text(&format!("{head}```typescript\n```")));
        // "hi" in base64 is sent as text, and binary data unchanged.
        assert_eq!(part(Contents::Base64("aGk=".into()), None), text(&format!("{head}```typescript\nhi\n```")));
        assert_eq!(
            part(Contents::Base64("/wA=".into()), None),
            json!({"type": "input_file", "filename": "a.ts", "file_data": "data:application/octet-stream;base64,/wA="})
        );
        assert_eq!(
            part(Contents::Base64("JVBERg==".into()), Some("application/pdf")),
            json!({"type": "input_file", "filename": "a.ts", "file_data": "data:application/pdf;base64,JVBERg=="})
        );
        assert_eq!(
            part(Contents::Base64("AAAA".into()), Some("image/gif")),
            json!({"type": "input_image", "image_url": "data:image/gif;base64,AAAA", "detail": "auto"})
        );
    }

    #[test]
    fn an_uploaded_file_is_named_by_its_id() {
        // R034-10
        assert_eq!(value(&file_part("file_1", Some("IMAGE/png"))), json!({"type": "input_image", "file_id": "file_1"}));
        assert_eq!(value(&file_part("file_1", Some("text/plain"))), json!({"type": "input_file", "file_id": "file_1"}));
        let drawing = value(&file_part("file_1", Some("image/svg+xml")));
        assert_eq!(drawing, json!({"type": "input_file", "file_id": "file_1"}));
        assert_eq!(value(&file_part("file_1", None)), json!({"type": "input_file", "file_id": "file_1"}));
    }
}
