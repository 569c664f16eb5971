//! Bytes in pieces: what is sent one after the other need not be copied together first.

use std::sync::Arc;

use bytes::Bytes;

/// Bytes that may lie in several places. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Slices(Repr);

#[derive(Debug, Clone)]
enum Repr {
    One(Bytes),
    Many { pieces: Arc<[Bytes]>, length: usize },
}

impl Slices {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::One(bytes) => bytes.len(),
            Repr::Many { length, .. } => *length,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces in their order.
    pub fn pieces(&self) -> &[Bytes] {
        match &self.0 {
            Repr::One(bytes) => std::slice::from_ref(bytes),
            Repr::Many { pieces, .. } => pieces,
        }
    }

    /// All of it in one place; copied only where it is not.
    pub fn whole(&self) -> Bytes {
        match &self.0 {
            Repr::One(bytes) => bytes.clone(),
            Repr::Many { pieces, .. } => pieces.concat().into(),
        }
    }
}

impl Default for Slices {
    fn default() -> Self {
        Self(Repr::One(Bytes::new()))
    }
}

impl From<Bytes> for Slices {
    fn from(bytes: Bytes) -> Self {
        Self(Repr::One(bytes))
    }
}

impl From<Vec<u8>> for Slices {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl FromIterator<Bytes> for Slices {
    fn from_iter<T: IntoIterator<Item = Bytes>>(pieces: T) -> Self {
        let pieces: Vec<Bytes> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        match <[Bytes; 1]>::try_from(pieces) {
            Ok([one]) => one.into(),
            Err(pieces) => Self(Repr::Many { length: pieces.iter().map(Bytes::len).sum(), pieces: pieces.into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_add_up_to_the_whole() {
        for (pieces, whole) in [(vec![], ""), (vec!["", "one", ""], "one"), (vec!["a", "", "bc"], "abc")] {
            let slices: Slices = pieces.into_iter().map(Bytes::from).collect();
            assert_eq!((slices.whole(), slices.len()), (Bytes::from(whole), whole.len()));
            assert!(slices.pieces().iter().all(|piece| !piece.is_empty()));
            assert_eq!(slices.is_empty(), whole.is_empty());
        }
    }
}
