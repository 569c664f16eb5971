//! One setting: read from a variable or from JSON, within its bounds, and written again.

use std::time::Duration;

use amalgam_protocol::{Raw, Shape, Writer};

use super::SettingDomain;
use crate::{tool::SecretText, units::duration_from_text};

/// A type of setting. Errors say what is valid and never repeat the input.
pub(super) trait Value: Sized {
    /// What its values have to keep to.
    type Bounds;

    /// The same for a published description.
    fn domain(bounds: &Self::Bounds) -> SettingDomain;

    /// From the text of a variable, which is not blank.
    fn from_text(text: &str, bounds: &Self::Bounds) -> Result<Self, String>;

    /// From JSON, neither null nor a blank text. What comes from forms is text, so a text is read like a variable.
    fn from_json(value: Raw<'_>, bounds: &Self::Bounds) -> Result<Self, String> {
        match value.shape() {
            Shape::String | Shape::Number | Shape::Bool => Self::from_text(&plain(value), bounds),
            shape => Err(format!("must not be {}", shape.name())),
        }
    }

    /// As [`Value::from_json`] reads it.
    fn write(&self, writer: &mut Writer);

    /// As it is shown to people.
    fn show(&self, writer: &mut Writer) {
        self.write(writer);
    }
}

fn plain(value: Raw<'_>) -> String {
    value.as_str().map_or_else(|| value.text().to_owned(), |text| text.decode().into_owned())
}

/// Text of so many characters at most. It stays as it is: prompts may begin and end as they like.
impl Value for String {
    type Bounds = usize;

    fn domain(most: &usize) -> SettingDomain {
        SettingDomain::Text(*most)
    }

    fn from_text(text: &str, most: &usize) -> Result<Self, String> {
        if text.contains('\0') {
            return Err("must not have null characters in it".to_owned());
        }
        match text.chars().nth(*most) {
            Some(_) => Err(format!("must have at most {most} characters")),
            None => Ok(text.to_owned()),
        }
    }

    fn from_json(value: Raw<'_>, most: &usize) -> Result<Self, String> {
        match value.as_str() {
            Some(text) => Self::from_text(&text.decode(), most),
            None => Err(format!("must be a string, not {}", value.shape().name())),
        }
    }

    fn write(&self, writer: &mut Writer) {
        writer.string(self);
    }
}

impl Value for SecretText {
    type Bounds = usize;

    fn domain(most: &usize) -> SettingDomain {
        SettingDomain::Text(*most)
    }

    fn from_text(text: &str, most: &usize) -> Result<Self, String> {
        String::from_text(text, most).map(Self)
    }

    fn from_json(value: Raw<'_>, most: &usize) -> Result<Self, String> {
        String::from_json(value, most).map(Self)
    }

    fn write(&self, writer: &mut Writer) {
        writer.string(&self.0);
    }

    fn show(&self, writer: &mut Writer) {
        writer.string("***");
    }
}

impl Value for f64 {
    type Bounds = (f64, f64);

    fn domain((least, most): &(f64, f64)) -> SettingDomain {
        SettingDomain::Number(*least, *most)
    }

    fn from_text(text: &str, (least, most): &(f64, f64)) -> Result<Self, String> {
        let number = text.trim().parse().ok().filter(|number| (*least..=*most).contains(number));
        number.ok_or_else(|| format!("must be a number from {least} to {most}"))
    }

    fn write(&self, writer: &mut Writer) {
        writer.float(*self);
    }
}

impl Value for u64 {
    type Bounds = (u64, u64);

    fn domain((least, most): &(u64, u64)) -> SettingDomain {
        SettingDomain::Integer(*least, *most)
    }

    fn from_text(text: &str, (least, most): &(u64, u64)) -> Result<Self, String> {
        let number = text.trim().parse().ok().filter(|number| (*least..=*most).contains(number));
        number.ok_or_else(|| format!("must be a whole number from {least} to {most}"))
    }

    fn write(&self, writer: &mut Writer) {
        writer.number(*self);
    }
}

impl Value for bool {
    type Bounds = ();

    fn domain((): &()) -> SettingDomain {
        SettingDomain::Boolean
    }

    fn from_text(text: &str, (): &()) -> Result<Self, String> {
        match text.trim().to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(true),
            "false" | "0" | "no" | "off" => Ok(false),
            _ => Err("must be true or false".to_owned()),
        }
    }

    fn write(&self, writer: &mut Writer) {
        writer.bool(*self);
    }
}

/// Seconds, or a text with units such as `1m30s`; the bounds are seconds.
impl Value for Duration {
    type Bounds = (u64, u64);

    fn domain((least, most): &(u64, u64)) -> SettingDomain {
        SettingDomain::Number(*least as f64, *most as f64)
    }

    fn from_text(text: &str, (least, most): &(u64, u64)) -> Result<Self, String> {
        let seconds = text.trim().parse::<f64>().ok().and_then(|seconds| Self::try_from_secs_f64(seconds).ok());
        let bounds = Self::from_secs(*least)..=Self::from_secs(*most);
        // A millisecond is as fine as it gets: that can be written and read again.
        let duration = seconds.map(|time| Self::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)));
        duration
            .or_else(|| duration_from_text(text))
            .filter(|duration| bounds.contains(duration))
            .ok_or_else(|| format!("must be {least} to {most} seconds, as a number or such as 90s"))
    }

    fn write(&self, writer: &mut Writer) {
        writer.float(self.as_millis() as f64 / 1000.0);
    }
}

/// What happens to a history that is too long for the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Truncation {
    /// Its oldest part is left out.
    Auto,
    /// The turn fails.
    Disabled,
}

impl Truncation {
    /// The name that it has on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Disabled => "disabled",
        }
    }
}

impl Value for Truncation {
    type Bounds = ();

    fn domain((): &()) -> SettingDomain {
        SettingDomain::Words(&["auto", "disabled"])
    }

    fn from_text(text: &str, (): &()) -> Result<Self, String> {
        [Self::Auto, Self::Disabled]
            .into_iter()
            .find(|known| known.name().eq_ignore_ascii_case(text.trim()))
            .ok_or_else(|| "must be auto or disabled".to_owned())
    }

    fn write(&self, writer: &mut Writer) {
        writer.string(self.name());
    }
}
