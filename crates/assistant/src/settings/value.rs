//! The types of settings: parsed from a variable or from JSON, checked, and written.

use std::time::Duration;

use amalgam_core::{SecretText, duration_from_text};
use amalgam_protocol::{Raw, Shape, Writer};

use super::SettingDomain;

/// A type of setting. Errors describe the valid values and never repeat the input.
pub(super) trait Value: Sized {
    /// The limits of its values.
    type Bounds;

    /// The limits for the OpenAPI document.
    fn domain(bounds: &Self::Bounds) -> SettingDomain;

    /// Parses the text of a variable, which is not blank.
    fn from_text(text: &str, bounds: &Self::Bounds) -> Result<Self, String>;

    /// Parses JSON that is neither null nor a blank text. Forms send text, so a text is parsed like a variable.
    fn from_json(value: Raw<'_>, bounds: &Self::Bounds) -> Result<Self, String> {
        match value.shape() {
            Shape::String | Shape::Number | Shape::Bool => Self::from_text(&plain(value), bounds),
            shape => Err(format!("must not be {}", shape.name())),
        }
    }

    /// Writes the value so that [`Value::from_json`] reads it.
    fn write(&self, writer: &mut Writer);

    /// Writes the value for display.
    fn show(&self, writer: &mut Writer) {
        self.write(writer);
    }
}

fn plain(value: Raw<'_>) -> String {
    value.as_str().map_or_else(|| value.text().to_owned(), |text| text.decode().into_owned())
}

/// Text with at most this many characters. It is not trimmed: prompts may begin and end with white space.
impl Value for String {
    type Bounds = usize;

    fn domain(max: &usize) -> SettingDomain {
        SettingDomain::Text(*max)
    }

    fn from_text(text: &str, max: &usize) -> Result<Self, String> {
        if text.contains('\0') {
            return Err("must not have null characters in it".to_owned());
        }
        match text.chars().nth(*max) {
            Some(_) => Err(format!("must have at most {max} characters")),
            None => Ok(text.to_owned()),
        }
    }

    fn from_json(value: Raw<'_>, max: &usize) -> Result<Self, String> {
        match value.as_str() {
            Some(text) => Self::from_text(&text.decode(), max),
            None => Err(format!("must be a string, not {}", value.shape().name())),
        }
    }

    fn write(&self, writer: &mut Writer) {
        writer.string(self);
    }
}

impl Value for SecretText {
    type Bounds = usize;

    fn domain(max: &usize) -> SettingDomain {
        SettingDomain::Text(*max)
    }

    fn from_text(text: &str, max: &usize) -> Result<Self, String> {
        String::from_text(text, max).map(Self)
    }

    fn from_json(value: Raw<'_>, max: &usize) -> Result<Self, String> {
        String::from_json(value, max).map(Self)
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

    fn domain((min, max): &(f64, f64)) -> SettingDomain {
        SettingDomain::Number(*min, *max)
    }

    fn from_text(text: &str, (min, max): &(f64, f64)) -> Result<Self, String> {
        let number = text.trim().parse().ok().filter(|number| (*min..=*max).contains(number));
        number.ok_or_else(|| format!("must be a number from {min} to {max}"))
    }

    fn write(&self, writer: &mut Writer) {
        writer.float(*self);
    }
}

impl Value for u64 {
    type Bounds = (u64, u64);

    fn domain((min, max): &(u64, u64)) -> SettingDomain {
        SettingDomain::Integer(*min, *max)
    }

    fn from_text(text: &str, (min, max): &(u64, u64)) -> Result<Self, String> {
        let number = text.trim().parse().ok().filter(|number| (*min..=*max).contains(number));
        number.ok_or_else(|| format!("must be a whole number from {min} to {max}"))
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

/// Seconds, or a text with units such as `1m30s`; the limits are seconds.
impl Value for Duration {
    type Bounds = (u64, u64);

    fn domain((min, max): &(u64, u64)) -> SettingDomain {
        SettingDomain::Number(*min as f64, *max as f64)
    }

    fn from_text(text: &str, (min, max): &(u64, u64)) -> Result<Self, String> {
        let seconds = text.trim().parse::<f64>().ok().and_then(|seconds| Self::try_from_secs_f64(seconds).ok());
        let bounds = Self::from_secs(*min)..=Self::from_secs(*max);
        // Rounded to milliseconds, which can be written and read again.
        let duration = seconds.map(|time| Self::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)));
        duration
            .or_else(|| duration_from_text(text))
            .filter(|duration| bounds.contains(duration))
            .ok_or_else(|| format!("must be {min} to {max} seconds, as a number or such as 90s"))
    }

    fn write(&self, writer: &mut Writer) {
        writer.float(self.as_millis() as f64 / 1000.0);
    }
}

/// How a history that is too long for the model is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Truncation {
    /// The oldest part is left out.
    Auto,
    /// The turn fails.
    Disabled,
}

impl Truncation {
    /// The name in the API.
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
