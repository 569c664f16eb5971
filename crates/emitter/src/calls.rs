//! Open calls: deltas of the first incomplete call are emitted as they arrive, the others wait.

use std::collections::HashSet;

use amalgam_protocol::{EventKind, Literal};

use super::{
    Emitter, Open,
    items::{OpenCall, Place, id_kind},
};
use amalgam_core::{CallHead, CallKind, Fault, IdKind, ModelError};

impl Emitter {
    /// Sets call ids that are in use: a call for which the model repeats one gets another id. For wires that match
    /// results to calls only by id.
    pub fn avoid_calls(&mut self, used: HashSet<String>) {
        self.used_calls = used;
    }

    /// The id of a call in this answer: the model's own, or a new one if the model gave none or repeated one. Outputs
    /// name only the id, so two calls of one answer never share it.
    pub fn call_id(&mut self, given: Option<String>) -> String {
        let free = |id: &String| !id.is_empty() && !self.used_calls.contains(id) && !self.answer_calls.contains(id);
        let given = given.filter(free);
        self.reassigned |= given.is_none();
        let call_id = given.unwrap_or_else(|| self.ids.make(IdKind::Call));
        self.answer_calls.insert(call_id.clone());
        call_id
    }

    /// Whether a call of this answer has another id than the model gave it.
    pub fn has_reassigned_calls(&self) -> bool {
        self.reassigned
    }

    pub(super) fn start_call(&mut self, key: u64, call: CallHead) {
        let call_id = self.call_id(call.call_id);
        let id = self.ids.make(id_kind(call.kind));
        let call = OpenCall::new(key, id, call_id, call.kind, call.name, call.namespace);
        match &self.open {
            Some(Open::Call(current)) if !current.is_complete() => return self.waiting.push_back(call),
            _ => self.close(),
        }
        self.open_call(call);
    }

    pub(super) fn open_call(&mut self, call: OpenCall) {
        // A tool with its own item type has no events between the first and the last.
        if !matches!(call.kind, CallKind::Client(_)) {
            self.item_added(|| call.item_so_far());
        }
        let early = Literal::from_escaped(&call.text);
        let place = self.place();
        if !early.is_empty() {
            self.call_delta_event(&call, place, &early);
        }
        self.open = Some(Open::Call(call));
    }

    pub(super) fn call_delta(&mut self, key: u64, delta: &Literal) -> Result<(), Fault> {
        if delta.is_empty() {
            return Ok(());
        }
        if matches!(&self.open, Some(Open::Call(call)) if call.key == key) {
            let place = self.place();
            let Some(Open::Call(mut call)) = self.open.take() else { return Ok(()) };
            call.text.extend_from_slice(delta.escaped());
            self.call_delta_event(&call, place, delta);
            self.open = Some(Open::Call(call));
            if !self.waiting.is_empty() {
                self.advance();
            }
            return Ok(());
        }
        match self.waiting.iter_mut().find(|call| call.key == key) {
            Some(call) => {
                call.text.extend_from_slice(delta.escaped());
                Ok(())
            }
            None if delta.decode().trim().is_empty() => Ok(()),
            None => Err(ModelError::Unreadable("more arguments for a call that is over".to_owned()).into_fault()),
        }
    }

    pub(super) fn call_delta_event(&mut self, call: &OpenCall, place: Place, delta: &Literal) {
        let kind = match call.kind {
            CallKind::Function => EventKind::ArgumentsDelta,
            CallKind::Custom => EventKind::CustomInputDelta,
            CallKind::Client(_) => return,
        };
        self.event(kind, |writer| {
            call.locate(place, writer);
            writer.key("delta").literal(delta);
        });
    }

    pub(super) fn end_call(&mut self, key: u64) {
        if let Some(Open::Call(call)) = &mut self.open
            && call.key == key
        {
            call.ended = true;
            if !self.waiting.is_empty() {
                self.advance();
            }
        } else if let Some(call) = self.waiting.iter_mut().find(|call| call.key == key) {
            call.ended = true;
        }
    }

    /// Closes calls that are complete, and opens the ones that waited.
    pub(super) fn advance(&mut self) {
        while matches!(&self.open, Some(Open::Call(call)) if call.is_complete()) {
            self.close_open("completed");
            match self.waiting.pop_front() {
                Some(next) => self.open_call(next),
                None => return,
            }
        }
    }
}
