//! The whole program from outside, and the rules that the workspace keeps.

mod config;
mod house;
