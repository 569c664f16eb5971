//! Flags of a subcommand: `--name value` and bare `--name`, each at most once.
//!
//! Every flag is taken out by the code that understands it; what is left over at the end is an error, so a
//! misspelt flag never silently measures something else.

use std::str::FromStr;

use anyhow::{Context, bail};

pub(crate) struct Args {
    words: Vec<String>,
}

impl Args {
    pub(crate) fn new(words: Vec<String>) -> Self {
        Self { words }
    }

    /// Whether the bare flag was given.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        match self.words.iter().position(|word| word == name) {
            Some(at) => {
                self.words.remove(at);
                true
            }
            None => false,
        }
    }

    /// The value of a flag, or `None` when it was not given.
    pub(crate) fn value<T>(&mut self, name: &str) -> anyhow::Result<Option<T>>
    where
        T: FromStr,
        T::Err: std::error::Error + Send + Sync + 'static,
    {
        let Some(at) = self.words.iter().position(|word| word == name) else { return Ok(None) };
        self.words.remove(at);
        if at == self.words.len() {
            bail!("{name} needs a value");
        }
        let text = self.words.remove(at);
        let value = text.parse().with_context(|| format!("{name}: `{text}` does not fit"))?;
        Ok(Some(value))
    }

    /// Refuses arguments that no option has read.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        match self.words.first() {
            Some(word) => bail!("unknown argument `{word}`"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Args;

    fn args(words: &[&str]) -> Args {
        Args::new(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn flags_and_values_are_taken_in_any_order() {
        let mut args = args(&["--quick", "--port", "80", "--out", "x.md"]);

        assert_eq!(args.value::<String>("--out").unwrap().as_deref(), Some("x.md"));
        assert_eq!(args.value::<u16>("--port").unwrap(), Some(80));
        assert_eq!(args.value::<u16>("--rate").unwrap(), None);
        assert!(args.flag("--quick"));
        assert!(!args.flag("--quick"));
        args.finish().unwrap();
    }

    #[test]
    fn missing_value_wrong_value_and_unknown_flag_are_errors() {
        assert!(args(&["--port"]).value::<u16>("--port").is_err());
        assert!(args(&["--port", "many"]).value::<u16>("--port").is_err());
        assert!(args(&["--prot"]).finish().is_err());
    }
}
