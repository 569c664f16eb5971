//! Assembles the calls of one answer from fragments.
//!
//! Servers differ in everything here: fragments are identified by index, by id or by neither; ids are missing, repeated
//! or the same for two calls; names are split or repeated; arguments arrive whole, in pieces or as an object. Calls
//! begin in the order in which they first appear, once their name is complete.

use amalgam_core::{CallHead, CallKind, CallMap, CallTarget, ModelEvent, unwrap_custom};
use amalgam_protocol::{JsonStr, Literal, Raw, Shape};
use bytes::Bytes;

/// The calls so far.
#[derive(Debug, Default)]
pub(super) struct Calls {
    map: CallMap,
    calls: Vec<PartialCall>,
}

#[derive(Debug, Default)]
struct PartialCall {
    index: Option<u64>,
    id: Option<String>,
    name: String,
    /// Escaped, as received.
    arguments: Vec<u8>,
    /// How much of the arguments was passed on.
    sent: usize,
    /// The called tool, once the call has begun.
    target: Option<CallTarget>,
    ended: bool,
}

/// One element of `tool_calls`.
struct Fragment<'a> {
    index: Option<u64>,
    id: Option<String>,
    name: Option<String>,
    arguments: Option<Raw<'a>>,
}

impl<'a> Fragment<'a> {
    fn read(raw: Raw<'a>) -> Self {
        // Some servers omit the wrapping object.
        let function = raw.get("function").filter(|function| function.shape() == Shape::Object).unwrap_or(raw);
        let id = raw.get("id").and_then(|id| match id.shape() {
            Shape::String => id.as_str().map(|id| id.decode().into_owned()),
            Shape::Number => Some(id.text().to_owned()),
            _ => None,
        });
        Self {
            index: raw.get("index").and_then(Raw::as_u64),
            id: id.filter(|id| !id.is_empty()),
            name: function.get_str("name").map(|name| name.into_owned()).filter(|name| !name.is_empty()),
            arguments: function.get("arguments").filter(|arguments| !arguments.is_null()),
        }
    }

    /// Whether the arguments begin an object, as those of a new call do.
    fn begins_arguments(&self) -> bool {
        self.arguments.is_some_and(|arguments| match arguments.as_str() {
            Some(text) => text.escaped().trim_start().starts_with('{'),
            None => arguments.shape() == Shape::Object,
        })
    }
}

impl Calls {
    pub(super) fn new(map: CallMap) -> Self {
        Self { map, calls: Vec::new() }
    }

    /// Whether there are no calls.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Handles the `tool_calls` of a streamed chunk.
    pub(super) fn fragments(&mut self, list: Raw<'_>, whole: &Bytes, events: &mut Vec<ModelEvent>) {
        let mut touched = None;
        for raw in list.elements().filter(|raw| raw.shape() == Shape::Object) {
            let fragment = Fragment::read(raw);
            let at = match self.place_of(&fragment, touched) {
                Some(at) => at,
                None => self.begin(fragment.index, events),
            };
            touched = Some(at);
            self.append(at, fragment, whole, events);
        }
    }

    /// Handles a `function_call`, the older format.
    pub(super) fn function_call(&mut self, raw: Raw<'_>, whole: &Bytes, events: &mut Vec<ModelEvent>) {
        if raw.shape() == Shape::Object {
            let at = if self.calls.is_empty() { self.begin(Some(0), events) } else { 0 };
            self.append(at, Fragment::read(raw), whole, events);
        }
    }

    /// Handles the `tool_calls` of a whole answer: every element is a call.
    pub(super) fn whole(&mut self, list: Raw<'_>, whole: &Bytes, events: &mut Vec<ModelEvent>) {
        for raw in list.elements().filter(|raw| raw.shape() == Shape::Object) {
            let at = self.begin(None, events);
            self.append(at, Fragment::read(raw), whole, events);
        }
    }

    /// Adds a complete call.
    pub(super) fn add_whole(&mut self, name: &str, arguments: Raw<'_>, events: &mut Vec<ModelEvent>) {
        let at = self.begin(None, events);
        let arguments = Some(arguments).filter(|arguments| !arguments.is_null());
        let fragment = Fragment { index: None, id: None, name: Some(name.to_owned()), arguments };
        self.append(at, fragment, &Bytes::new(), events);
    }

    /// Handles the end of the answer: begins calls that have not begun, passes on what was held, ends complete calls.
    pub(super) fn conclude(&mut self, cut: bool, events: &mut Vec<ModelEvent>) {
        for (key, call) in self.calls.iter_mut().enumerate() {
            if call.name.is_empty() && call.arguments.is_empty() {
                continue;
            }
            call.start(key as u64, &self.map, events);
            call.send(key as u64, events);
            // A call that was cut off stays open, so that it is emitted as incomplete.
            if !cut || call.is_whole() {
                call.end(key as u64, events);
            } else {
                call.hand_out(key as u64, events);
            }
        }
    }

    /// The index of the call that a fragment belongs to; `None` for a new call.
    fn place_of(&self, fragment: &Fragment<'_>, touched: Option<usize>) -> Option<usize> {
        let at = match fragment.index {
            Some(_) => self.calls.iter().rposition(|call| call.index == fragment.index)?,
            None => {
                let by_id = self.calls.iter().rposition(|call| call.id.is_some() && call.id == fragment.id);
                let last = self.calls.len().checked_sub(1)?;
                // Two elements of one list are two calls.
                if by_id.is_none() && fragment.name.is_some() && touched == Some(last) {
                    return None;
                }
                by_id.unwrap_or(last)
            }
        };
        let call = self.calls.get(at)?;
        (!self.is_another(call, fragment)).then_some(at)
    }

    /// Whether a fragment that seems to continue `call` is another call: some servers give every call the index 0.
    fn is_another(&self, call: &PartialCall, fragment: &Fragment<'_>) -> bool {
        let Some(name) = &fragment.name else { return false };
        match (&call.id, &fragment.id) {
            (Some(own), Some(other)) if own != other => return true,
            (Some(_), Some(_)) => return fragment.begins_arguments() && call.is_whole(),
            _ => {}
        }
        if call.arguments.is_empty() {
            // Is this a continued name, or the name of the next call?
            let longer = format!("{}{name}", call.name);
            return call.name != *name
                && self.map.knows(&call.name)
                && self.map.knows(name)
                && !self.map.knows(&longer);
        }
        call.name != *name || (fragment.begins_arguments() && call.is_whole())
    }

    fn begin(&mut self, index: Option<u64>, events: &mut Vec<ModelEvent>) -> usize {
        // Complete calls need not wait for the end of the answer.
        for (key, call) in self.calls.iter_mut().enumerate() {
            if call.target.is_some() && call.is_whole() {
                call.end(key as u64, events);
            }
        }
        self.calls.push(PartialCall { index, ..PartialCall::default() });
        self.calls.len() - 1
    }

    fn append(&mut self, at: usize, fragment: Fragment<'_>, whole: &Bytes, events: &mut Vec<ModelEvent>) {
        // A repeated id is dropped: the client could not tell the two calls apart when it returns outputs.
        let id = fragment.id.filter(|id| !self.calls.iter().any(|call| call.id.as_ref() == Some(id)));
        let all_begun = self.calls.iter().take(at + 1).all(|call| call.target.is_some());
        let Some(call) = self.calls.get_mut(at) else { return };
        if call.ended {
            return;
        }
        if call.id.is_none() && call.target.is_none() {
            call.id = id;
        }
        if let Some(name) = fragment.name
            && call.arguments.is_empty()
            && call.target.is_none()
        {
            // A repeated complete name is not appended.
            if call.name != name || !self.map.knows(&name) {
                call.name.push_str(&name);
            }
        }
        let Some(arguments) = fragment.arguments else { return };
        let (piece, shared) = match arguments.as_str() {
            Some(text) => (JsonStr::escaped(text).as_bytes(), true),
            None => (arguments.text().as_bytes(), false),
        };
        if shared && all_begun && call.streams() && call.sent == call.arguments.len() {
            // The usual case: passed on without a copy.
            if let Some(text) = arguments.as_str().filter(|text| !text.is_empty()) {
                events.push(ModelEvent::CallDelta { key: at as u64, delta: literal(whole, text) });
                call.arguments.extend_from_slice(piece);
                call.sent = call.arguments.len();
            }
            return;
        }
        match shared {
            true => call.arguments.extend_from_slice(piece),
            // An object in place of a string.
            false => call.arguments.extend_from_slice(Literal::from_text(arguments.text()).escaped()),
        }
        self.pass_on(events);
    }

    /// Begins calls whose names are complete, in order, and passes on their arguments.
    fn pass_on(&mut self, events: &mut Vec<ModelEvent>) {
        for (key, call) in self.calls.iter_mut().enumerate() {
            if call.target.is_none() {
                if call.name.is_empty() || call.arguments.is_empty() {
                    return;
                }
                call.start(key as u64, &self.map, events);
            }
            call.send(key as u64, events);
        }
    }
}

impl PartialCall {
    fn start(&mut self, key: u64, map: &CallMap, events: &mut Vec<ModelEvent>) {
        if self.target.is_some() {
            return;
        }
        let target = map.target(&self.name);
        let head = CallHead {
            kind: target.kind,
            call_id: self.id.clone(),
            name: target.name.clone(),
            namespace: target.namespace.clone(),
        };
        self.target = Some(target);
        events.push(ModelEvent::CallStart { key, call: head });
    }

    /// Whether arguments are streamed; those of a wrapped custom tool are unwrapped at the end.
    fn streams(&self) -> bool {
        self.target.as_ref().is_some_and(|target| target.kind != CallKind::Custom)
    }

    fn send(&mut self, key: u64, events: &mut Vec<ModelEvent>) {
        let waiting = self.arguments.get(self.sent..).unwrap_or_default();
        if self.streams() && !waiting.is_empty() {
            events.push(ModelEvent::CallDelta { key, delta: Literal::from_escaped(waiting) });
            self.sent = self.arguments.len();
        }
    }

    fn is_whole(&self) -> bool {
        self.arguments.ends_with(b"}") && Raw::parse(self.text().as_bytes()).is_ok()
    }

    fn text(&self) -> String {
        Literal::from_escaped(&self.arguments).decode()
    }

    fn hand_out(&mut self, key: u64, events: &mut Vec<ModelEvent>) {
        if !self.streams() && !self.arguments.is_empty() {
            let input = unwrap_custom(&self.text());
            if !input.is_empty() {
                events.push(ModelEvent::CallDelta { key, delta: Literal::from_text(&input) });
            }
        }
    }

    fn end(&mut self, key: u64, events: &mut Vec<ModelEvent>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.hand_out(key, events);
        // RAM-28: a call without arguments has an empty object as arguments.
        if self.streams() && self.arguments.is_empty() {
            events.push(ModelEvent::CallDelta { key, delta: Literal::from_text("{}") });
        }
        events.push(ModelEvent::CallEnd { key });
    }
}

/// Shares the memory of the received message if the text is a part of it.
fn literal(whole: &Bytes, text: JsonStr<'_>) -> Literal {
    match whole.is_empty() {
        true => text.into(),
        false => Literal::within(whole, text),
    }
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
