//! The kit against itself: what the scripted upstream sends is what the client sees.

mod binary;
mod spec;
mod upstream;
