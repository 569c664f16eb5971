//! What every engine promises, and what each of them promises alone.

#[macro_use]
mod contract;
mod given;
mod postgres;
mod sqlite;
