//! Traces and metrics by OTLP, read by a collector that decodes the protobuf, and the spans that are stored with a turn.

mod collector;
mod delivery;
mod exported_metrics;
mod traces;
