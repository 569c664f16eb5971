//! The whole program from outside, and the rules that the workspace keeps.

mod auth;
mod config;
mod demo;
mod faults;
mod house;
mod models;
mod responses_door;
mod support;
mod validation;
