//! What a Claude model supports, its thinking budget, and how its thinking blocks are carried by the client.
//!
//! A thinking block is valid only together with its signature, and only for the upstream that signed it. The client
//! receives both sealed as `encrypted_content`; they are opened here and sent back unchanged.

use amalgam_core::Losses;
use amalgam_protocol::{CreateResponse, Raw, Writer};

use crate::reasoning_seal::Owner;

/// The smallest budget that the API accepts.
const SMALLEST_BUDGET: u64 = 1024;

/// How a model's thinking is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Not supported.
    None,
    /// With a budget of tokens.
    Budget,
    /// With an effort; the model decides the rest.
    Adaptive,
}

/// Which of temperature, top_p and top_k a model accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sampling {
    /// All of them.
    Free,
    /// Temperature or top_p, not both.
    OneOf,
    /// None of them.
    None,
}

/// What a model supports, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Abilities {
    pub(super) style: Style,
    pub(super) sampling: Sampling,
    /// Whether there is an effort between `high` and `max`, and thinking is returned only on request.
    pub(super) extra_high: bool,
    /// Whether the model has structured output.
    pub(super) structured: bool,
}

impl Abilities {
    /// Reads the generation from names such as `claude-3-7-sonnet-20250219`, `claude-opus-4-7` or
    /// `anthropic/claude-opus-4.6`. A model of another vendor with this API is treated as the oldest generation.
    pub(super) fn of(model: &str) -> Self {
        let model = model.to_ascii_lowercase();
        let Some((_, name)) = model.split_once("claude") else {
            return Self { style: Style::Budget, sampling: Sampling::Free, extra_high: false, structured: false };
        };
        let number = |word: &str| match word.len() {
            1 | 2 => word.parse::<u32>().ok(),
            _ => None,
        };
        let mut words = name.split(|c: char| !c.is_ascii_alphanumeric()).map(|word| word.trim_start_matches('v'));
        let version = words.find_map(number).map(|major| (major, words.next().and_then(number).unwrap_or(0)));
        let style = match version {
            Some(version) if version < (3, 7) => Style::None,
            Some(version) if version < (4, 6) => Style::Budget,
            // A name without a number is newer than the known numbers.
            _ => Style::Adaptive,
        };
        let sampling = match version {
            Some(version) if version < (4, 1) => Sampling::Free,
            Some(version) if version < (4, 7) => Sampling::OneOf,
            _ => Sampling::None,
        };
        let structured = version.is_none_or(|version| version >= (4, 5));
        Self { style, sampling, extra_high: sampling == Sampling::None, structured }
    }
}

/// The thinking of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    Off,
    Budget(u64),
    Adaptive { effort: &'static str, shown_on_request: bool },
}

impl Plan {
    /// The thinking for the caller's effort, and a `max_tokens` that leaves room for it.
    ///
    /// `max_output_tokens` includes thinking, so the budget is reduced to fit the caller's limit. Without a limit of
    /// the caller, the budget is added to the configured default.
    pub(super) fn new(
        settings: &CreateResponse<'_>,
        abilities: Abilities,
        default_max: u64,
        losses: &mut Losses,
    ) -> (Self, u64) {
        let allowed = settings.max_output_tokens;
        let off = (Self::Off, allowed.unwrap_or(default_max));
        let Some(effort) = settings.reasoning.as_ref().and_then(|reasoning| reasoning.effort.as_deref()) else {
            return off;
        };
        let (budget, effort) = match effort {
            "none" | "minimal" => return off,
            "low" => (SMALLEST_BUDGET, "low"),
            "medium" => (4096, "medium"),
            "high" => (16_384, "high"),
            "xhigh" => (24_576, if abilities.extra_high { "xhigh" } else { "high" }),
            "max" => (24_576, "max"),
            other => {
                losses.add("reasoning.effort", format!("`{other}` is not known; asked for `medium`"));
                (4096, "medium")
            }
        };
        let raised = allowed.unwrap_or(default_max + budget);
        match abilities.style {
            Style::None => {
                losses.add("reasoning.effort", "the model does not think");
                off
            }
            Style::Adaptive => (Self::Adaptive { effort, shown_on_request: abilities.extra_high }, raised),
            Style::Budget => match allowed.map_or(budget, |allowed| budget.min(allowed / 2)) {
                budget if budget >= SMALLEST_BUDGET => (Self::Budget(budget), raised),
                _ => {
                    losses.add("reasoning.effort", "max_output_tokens leaves no room for thinking");
                    off
                }
            },
        }
    }

    /// Whether thinking is requested.
    pub(super) fn is_on(self) -> bool {
        self != Self::Off
    }

    /// Writes `thinking` and `output_config`; `schema` is the schema that the API enforces.
    pub(super) fn write(self, schema: Option<Raw<'_>>, writer: &mut Writer) {
        match self {
            Self::Off => {}
            Self::Budget(budget) => writer.key("thinking").object(|writer| {
                writer.key("type").string("enabled");
                writer.key("budget_tokens").number(budget);
            }),
            Self::Adaptive { shown_on_request, .. } => {
                writer.key("thinking").object(|writer| {
                    writer.key("type").string("adaptive");
                    if shown_on_request {
                        writer.key("display").string("summarized");
                    }
                });
            }
        }
        let effort = match self {
            Self::Adaptive { effort, .. } => Some(effort),
            Self::Off | Self::Budget(_) => None,
        };
        if effort.is_none() && schema.is_none() {
            return;
        }
        writer.key("output_config").object(|writer| {
            if let Some(effort) = effort {
                writer.key("effort").string(effort);
            }
            if let Some(schema) = schema {
                writer.key("format").object(|writer| {
                    writer.key("type").string("json_schema");
                    writer.key("schema").raw(schema);
                });
            }
        });
    }
}

/// The thinking blocks of one reasoning item, to be sealed.
#[derive(Debug, Default)]
pub(super) struct ThinkingBlocks {
    blocks: Writer,
}

impl ThinkingBlocks {
    /// Adds a block with its signature, both escaped JSON text.
    pub(super) fn add(&mut self, thinking: &[u8], signature: &[u8]) {
        self.blocks.object(|writer| {
            writer.key("type").string("thinking");
            writer.key("thinking").escaped(&[thinking]);
            writer.key("signature").escaped(&[signature]);
        });
    }

    /// Adds a redacted block, as escaped JSON text.
    pub(super) fn add_redacted(&mut self, data: &[u8]) {
        self.blocks.object(|writer| {
            writer.key("type").string("redacted_thinking");
            writer.key("data").escaped(&[data]);
        });
    }

    /// Writes the field that is sealed.
    pub(super) fn write(&self, writer: &mut Writer) {
        writer.key("blocks").array(|writer| writer.valid(self.blocks.bytes()));
    }
}

/// Opens sealed blocks, as JSON values separated by commas; `None` if they have another owner.
pub(super) fn open(sealed: &str, owner: Owner<'_>) -> Option<Vec<u8>> {
    let plain = owner.open(sealed)?;
    let raw = Raw::parse(&plain).ok()?;
    let mut writer = Writer::with_capacity(plain.len());
    raw.get("blocks")?.elements().for_each(|block| writer.raw(block));
    (!writer.bytes().is_empty()).then(|| writer.into_bytes())
}

#[cfg(test)]
mod tests {
    use amalgam_core::Loss;

    use amalgam_protocol::ResponseParameters;

    use super::*;

    fn abilities(model: &str) -> (Style, Sampling) {
        let abilities = Abilities::of(model);
        (abilities.style, abilities.sampling)
    }

    #[test]
    fn the_generation_is_read_out_of_the_name() {
        let expected = [
            ("claude-2.1", Style::None, Sampling::Free),
            ("anthropic.claude-3-5-sonnet-20241022-v2:0", Style::None, Sampling::Free),
            ("claude-3-7-sonnet-20250219", Style::Budget, Sampling::Free),
            ("claude-sonnet-4-20250514", Style::Budget, Sampling::Free),
            ("claude-opus-4-1-20250805", Style::Budget, Sampling::OneOf),
            ("claude-haiku-4-5", Style::Budget, Sampling::OneOf),
            ("anthropic/claude-opus-4.6", Style::Adaptive, Sampling::OneOf),
            ("claude-opus-4-7", Style::Adaptive, Sampling::None),
            ("claude-opus-5", Style::Adaptive, Sampling::None),
            ("claude-mythos-preview", Style::Adaptive, Sampling::None),
            ("kimi-k2", Style::Budget, Sampling::Free),
        ];
        for (model, style, sampling) in expected {
            assert_eq!(abilities(model), (style, sampling), "{model}");
        }
    }

    fn plan(request: &str, model: &str) -> (Plan, u64, Vec<Loss>) {
        let parameters = request.parse::<ResponseParameters>().unwrap();
        let settings = parameters.view().unwrap();
        let mut losses = Losses::default();
        let (plan, max_tokens) = Plan::new(&settings, Abilities::of(model), 4096, &mut losses);
        (plan, max_tokens, losses.into_list())
    }

    #[test]
    fn a_budget_comes_on_top_of_the_default_and_fits_in_what_the_caller_allows() {
        let model = "claude-sonnet-4-5";
        assert_eq!(plan("{}", model), (Plan::Off, 4096, vec![]));
        assert_eq!(plan(r#"{"reasoning":{"effort":"minimal"}}"#, model), (Plan::Off, 4096, vec![]));
        assert_eq!(plan(r#"{"reasoning":{"effort":"low"}}"#, model), (Plan::Budget(1024), 5120, vec![]));
        assert_eq!(plan(r#"{"reasoning":{"effort":"high"}}"#, model), (Plan::Budget(16_384), 20_480, vec![]));
        assert_eq!(
            plan(r#"{"reasoning":{"effort":"high"},"max_output_tokens":8000}"#, model),
            (Plan::Budget(4000), 8000, vec![])
        );
    }

    #[test]
    fn no_room_for_thinking_is_a_loss_and_the_callers_limit_stands() {
        assert_eq!(
            plan(r#"{"reasoning":{"effort":"low"},"max_output_tokens":500}"#, "claude-sonnet-4-5"),
            (Plan::Off, 500, vec![Loss::new("reasoning.effort", "max_output_tokens leaves no room for thinking")])
        );
    }

    #[test]
    fn newer_models_are_asked_by_effort() {
        let request = r#"{"reasoning":{"effort":"xhigh"}}"#;
        let effort = |model| match plan(request, model).0 {
            Plan::Adaptive { effort, shown_on_request } => (effort, shown_on_request),
            other => panic!("{other:?}"),
        };
        assert_eq!(effort("claude-opus-4-6"), ("high", false));
        assert_eq!(effort("claude-opus-4-7"), ("xhigh", true));
        assert_eq!(
            plan(request, "claude-3-haiku-20240307"),
            (Plan::Off, 4096, vec![Loss::new("reasoning.effort", "the model does not think")])
        );
    }
}
