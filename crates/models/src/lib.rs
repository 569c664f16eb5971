//! Upstreams: everything that answers as a model.
