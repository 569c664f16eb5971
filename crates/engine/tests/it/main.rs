//! The engine from outside, with models that do as they are told and a clock that stands still.

mod model;
mod turns;
