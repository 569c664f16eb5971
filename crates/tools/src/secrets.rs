//! Redacts our own secrets from text that services return.

use std::borrow::Cow;

use secrecy::{ExposeSecret as _, SecretString};

/// A shorter secret would match unrelated text.
const MIN_SECRET_BYTES: usize = 8;
const HIDDEN: &str = "[redacted]";

/// Secrets that are sent to a service and must not be returned to a model or a user.
#[derive(Default)]
pub(crate) struct Secrets(Vec<SecretString>);

impl Secrets {
    /// Adds the value of a header: all of it, and the part after a scheme such as `Bearer`.
    pub(crate) fn add(&mut self, header: &SecretString) {
        let whole = header.expose_secret();
        let credential = whole.split_once(' ').map(|(_, credential)| credential.trim());
        let parts = [Some(whole), credential].into_iter().flatten();
        self.0.extend(parts.filter(|part| part.len() >= MIN_SECRET_BYTES).map(SecretString::from));
    }

    /// `text` without the secrets.
    pub(crate) fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.0.iter().fold(Cow::Borrowed(text), |text, secret| match text.contains(secret.expose_secret()) {
            true => Cow::Owned(text.replace(secret.expose_secret(), HIDDEN)),
            false => text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // P12
    #[test]
    fn a_secret_is_hidden_with_and_without_its_scheme_and_ordinary_words_stay() {
        let mut secrets = Secrets::default();
        secrets.add(&"Bearer sk-123456789".into());
        secrets.add(&"short".into());
        assert_eq!(secrets.hide("a Bearer sk-123456789, sk-123456789!"), "a [redacted], [redacted]!");
        assert_eq!(secrets.hide("Bearer of short news"), "Bearer of short news");
    }
}
