//! Losses: the parts of a request that an upstream's API cannot express. Never silent: headers, logs, traces and strict
//! mode use this list.

use std::{borrow::Cow, fmt};

/// A part of the request that the upstream does not get as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The field, such as `tools[2]` or `top_logprobs`.
    pub field: Cow<'static, str>,
    /// The effect of the loss.
    pub reason: Cow<'static, str>,
}

impl Loss {
    /// Records that `field` was lost or changed, and why.
    pub fn new(field: impl Into<Cow<'static, str>>, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }

    /// The last entry of a truncated list.
    fn more() -> Self {
        Self::new("…", "more was lost than is listed")
    }

    /// Whether a part of the input was changed or left out. An unlisted reason counts as such.
    pub fn is_of_input(&self) -> bool {
        self.field == "input" || *self == Self::more()
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.reason)
    }
}

/// Losses without duplicates.
///
/// The caller's input determines the number of losses, so the list is bounded: after [`Losses::MAX`] it only says that there
/// are more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Losses(Vec<Loss>);

impl Losses {
    /// The maximum number of entries.
    pub const MAX: usize = 64;

    /// The maximum length of a field or a reason in bytes; both may contain the caller's text.
    const MAX_TEXT_BYTES: usize = 256;

    /// Records that `field` was lost or changed, and why.
    pub fn add(&mut self, field: impl Into<Cow<'static, str>>, reason: impl Into<Cow<'static, str>>) {
        self.push(Loss::new(field, reason));
    }

    /// Adds a loss unless it is listed already: a hundred images with the same fault are one loss.
    pub fn push(&mut self, loss: Loss) {
        let loss = Loss { field: shortened(loss.field), reason: shortened(loss.reason) };
        match self.0.len() {
            _ if self.0.contains(&loss) => {}
            0..Self::MAX => self.0.push(loss),
            Self::MAX => self.0.push(Loss::more()),
            _ => {}
        }
    }

    /// Adds another list.
    pub fn extend(&mut self, losses: impl IntoIterator<Item = Loss>) {
        losses.into_iter().for_each(|loss| self.push(loss));
    }

    /// The list.
    pub fn into_list(self) -> Vec<Loss> {
        self.0
    }
}

fn shortened(text: Cow<'static, str>) -> Cow<'static, str> {
    match text.len() > Losses::MAX_TEXT_BYTES {
        true => {
            let (shortened, _) = text.split_at(text.floor_char_boundary(Losses::MAX_TEXT_BYTES));
            Cow::Owned(format!("{shortened}…"))
        }
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_told_once_and_the_list_says_where_it_ends() {
        let mut losses = Losses::default();
        for _ in 0..2 {
            losses.extend((0..Losses::MAX).map(|n| Loss::new(format!("field_{n}"), "unknown")));
        }
        assert_eq!(losses.clone().into_list().len(), Losses::MAX, "all of them, once");
        for n in 0..3 {
            losses.add(format!("further_{n}"), "unknown");
        }
        let list = losses.clone().into_list();
        assert_eq!(list.get(Losses::MAX..), Some(&[Loss::more()][..]));
        // A truncated list is added to another one unchanged.
        let mut other = Losses::default();
        other.extend(list);
        assert_eq!(other, losses);
    }

    #[test]
    fn words_of_the_caller_are_cut_between_characters() {
        let mut losses = Losses::default();
        losses.add("é".repeat(1000), "ö".repeat(1000));
        losses.add("é".repeat(2000), "ö".repeat(2000));
        let list = Loss::new("é".repeat(128) + "…", "ö".repeat(128) + "…");
        assert_eq!(losses.into_list(), [list]);
    }
}
