//! HTTP: listener, layers, authentication, wires.
