//! Checks the uploaded files of a request before a model is called.
//!
//! Files of the history are not checked: the model reads that a file was deleted.

use std::collections::HashMap;

use amalgam_core::{Fault, Scope, Stem, media, store::FileRecord, uploads};
use amalgam_engine::FILES_PER_TURN;
use amalgam_protocol::{Content, CreateResponse, Input, Item, ItemKind, Part, PartKind, ResponseParameters};

use crate::app::Application;

/// Checks the files that the request's own items name; `request` is a view of `parameters`.
pub(crate) async fn check(
    app: &Application,
    scope: &Scope,
    parameters: &ResponseParameters,
    request: &CreateResponse<'_>,
) -> Result<(), Fault> {
    let mut found: HashMap<&str, Option<FileRecord>> = HashMap::new();
    for (list, input) in [("instructions", &request.instructions), ("input", &request.input)] {
        let Some(Input::Items(items)) = input else { continue };
        for item in items {
            let Some((field, parts)) = parts(item) else { continue };
            for (index, part) in parts.iter().enumerate() {
                let Some(id) = uploads::named_by(part) else { continue };
                let path = || format!("{}.{field}[{index}].file_id", parameters.item_path(list, item.raw));
                if !found.contains_key(id) {
                    if found.len() == FILES_PER_TURN {
                        let message = format!("At most {FILES_PER_TURN} uploaded files can be in one turn.");
                        return Err(Fault::invalid(path(), message));
                    }
                    let file = match Stem::of(id).is_some() {
                        true => app.store.file(scope, id, app.clock.now_ms()).await?,
                        false => None,
                    };
                    found.insert(id, file);
                }
                match found.get(id).and_then(Option::as_ref) {
                    None => return Err(no_such_file(id, path())),
                    Some(file) if matches!(part.kind, PartKind::Image(_)) && !media::is_image(&file.media_type) => {
                        let message = format!("The file '{id}' is no image of a kind that models look at.");
                        return Err(Fault::invalid(path(), message));
                    }
                    Some(_) => {}
                }
            }
        }
    }
    Ok(())
}

/// The field of an item that has parts, and the parts.
fn parts<'i, 'a>(item: &'i Item<'a>) -> Option<(&'static str, &'i [Part<'a>])> {
    let (field, content) = match &item.kind {
        ItemKind::Message(message) | ItemKind::AgentMessage(message) => ("content", &message.content),
        ItemKind::FunctionCallOutput(output) | ItemKind::CustomToolCallOutput(output) => ("output", &output.output),
        _ => return None,
    };
    match content {
        Content::Parts(parts) => Some((field, parts)),
        Content::Text(_) | Content::Value(_) => None,
    }
}

/// The same error for a missing file, an expired one, and another caller's. S10
fn no_such_file(id: &str, path: String) -> Fault {
    let shown: String = id.chars().take(200).collect();
    Fault::invalid(path, format!("File with id '{shown}' not found.")).code("file_not_found")
}
