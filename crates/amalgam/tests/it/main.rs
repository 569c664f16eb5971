//! The whole program from outside, and the rules that the workspace keeps.

mod admin;
mod auth;
mod compact;
mod config;
mod conversations;
mod demo;
mod elsewhere;
mod faults;
mod house;
mod isolation;
mod keys;
mod models;
mod responses_door;
mod retrieve;
mod secrets;
mod socket;
mod support;
mod tenants;
mod tokens;
mod truncation;
mod validation;
