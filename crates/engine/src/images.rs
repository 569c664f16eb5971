//! Addresses in the history: fetches images that a model needs as bytes, and checks addresses that an upstream fetches.

use std::collections::HashMap;

use amalgam_core::{Entry, Fault, FaultKind};
use amalgam_protocol::{Content, JsonStr, PartKind, Raw};

use crate::{engine::Engine, model_call::ModelCall};

/// The maximum size of one fetched image.
const IMAGE_BYTES: usize = 20 * 1024 * 1024;

/// The maximum number of images fetched for one turn.
const IMAGES_PER_TURN: usize = 32;

/// The maximum number of addresses that one turn may pass to an upstream.
const ADDRESSES_PER_TURN: usize = 1000;

impl Engine {
    /// Fetches the images of the history; `data:` URIs by address.
    pub(crate) async fn fetch_images(&self, call: &ModelCall<'_>) -> Result<HashMap<String, String>, Fault> {
        let mut left = self.settings.upload_bytes;
        let mut images = HashMap::new();
        for address in addresses(call).into_iter().filter(|address| address.name == "image_url") {
            if images.contains_key(&address.url) {
                continue;
            }
            if images.len() >= IMAGES_PER_TURN {
                return Err(Fault::invalid("input", format!("At most {IMAGES_PER_TURN} images can be fetched.")));
            }
            let limit = left.min(IMAGE_BYTES);
            let fetched = match self.fetch.fetch(&address.url, limit).await {
                Ok(fetched) if !fetched.media_type.starts_with("image/") => {
                    let fault = Fault::invalid(address.path(call), "An image address does not lead to an image.");
                    return Err(fault);
                }
                Ok(fetched) => fetched,
                Err(fault) if fault.code.as_deref() == Some("url_content_too_large") && limit < IMAGE_BYTES => {
                    let most = self.settings.upload_bytes;
                    let message = format!("The images that are fetched for one turn have more than {most} bytes.");
                    return Err(Fault::new(FaultKind::TooLarge, message).param(address.path(call)));
                }
                Err(fault) if fault.kind == FaultKind::Invalid => return Err(fault.param(address.path(call))),
                Err(fault) => return Err(fault),
            };
            left = left.saturating_sub(fetched.bytes.len());
            images.insert(address.url, fetched.data_uri());
        }
        Ok(images)
    }

    /// Refuses addresses that an upstream must not fetch.
    pub(crate) async fn check_addresses(&self, call: &ModelCall<'_>, addresses: &[Address<'_>]) -> Result<(), Fault> {
        if addresses.len() > ADDRESSES_PER_TURN {
            return Err(Fault::invalid("input", format!("At most {ADDRESSES_PER_TURN} addresses can be named.")));
        }
        // Concurrently, because each check resolves a name.
        let checks = addresses.iter().map(|address| async {
            self.fetch.check(&address.url).await.map_err(|fault| match fault.kind {
                FaultKind::Invalid => fault.param(address.path(call)),
                _ => fault,
            })
        });
        futures_util::future::try_join_all(checks).await.map(drop)
    }
}

/// The addresses that the upstream fetches: all except those that were fetched here.
pub(crate) fn handed_on<'a>(call: &ModelCall<'a>, fetched: &HashMap<String, String>) -> Vec<Address<'a>> {
    let mut addresses = addresses(call);
    addresses.retain(|address| !fetched.contains_key(&address.url));
    addresses
}

/// The address of an image or a file, and where the caller named it.
pub(crate) struct Address<'a> {
    url: String,
    /// `image_url` or `file_url`.
    name: &'static str,
    /// The item that names it, if the caller sent one.
    item: Option<Raw<'a>>,
    /// The index of the part that names it; `None` for an output that is only a screenshot.
    part: Option<usize>,
    /// The field of the item.
    field: &'static str,
}

impl Address<'_> {
    /// The path in the caller's request; `input` for an address of an earlier turn.
    fn path(&self, call: &ModelCall<'_>) -> String {
        let place = |list: &'static str| {
            let path = call.parameters.item_path(list, self.item?);
            (path != list).then(|| format!("{path}.{}", self.field))
        };
        match (place("input").or_else(|| place("instructions")), self.part) {
            (Some(content), Some(part)) => format!("{content}[{part}].{}", self.name),
            (Some(output), None) => format!("{output}.{}", self.name),
            (None, _) => "input".to_owned(),
        }
    }
}

/// All addresses that are not `data:` URIs, in the order of the history.
fn addresses<'a>(call: &ModelCall<'a>) -> Vec<Address<'a>> {
    let mut addresses = Vec::new();
    for entry in call.history.instructions.iter().chain(&call.history.entries) {
        let (content, item, field) = match entry {
            Entry::Message { content, item, .. } => (content, *item, "content"),
            Entry::Output(output) => {
                if let Some(url) = output.screenshot().and_then(remote) {
                    let item = Some(output.item);
                    addresses.push(Address { url, name: "image_url", item, part: None, field: "output" });
                }
                (&output.content, Some(output.item), "output")
            }
            _ => continue,
        };
        let Content::Parts(parts) = content else { continue };
        addresses.extend(parts.iter().enumerate().filter_map(|(part, named)| {
            let (name, url) = match &named.kind {
                PartKind::Image(image) | PartKind::Screenshot(image) => ("image_url", image.url?.0),
                PartKind::File(file) => ("file_url", file.url?),
                _ => return None,
            };
            Some(Address { url: remote(url)?, name, item, part: Some(part), field })
        }));
    }
    addresses
}

/// The address, unless it is a `data:` URI. A `data:` URI may be long, so it is recognised without decoding it.
fn remote(url: JsonStr<'_>) -> Option<String> {
    let is_data = |text: &str| text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("data:"));
    if is_data(url.escaped()) {
        return None;
    }
    Some(url.decode().into_owned()).filter(|url| !is_data(url))
}
