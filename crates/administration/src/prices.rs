//! Imported prices of models: reads a price list in the format of LiteLLM, and lists what was imported.
//!
//! The format is one object with a model in each field: `"gpt-4o-mini": {"input_cost_per_token": 1.5e-07, …}`. The names are
//! those of the list, in lower case. A price of the configuration file wins over an imported one.

use std::collections::BTreeMap;

use amalgam_core::{AuditAction, Fault, FaultKind, INSTALLATION, Operator, Price, Scope, store::PriceRecord};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Administration, access::operator, audit::snapshot};

const IMPORT: AuditAction = AuditAction::new("price.import");

/// The kinds of models that turns call.
const MODES: [&str; 3] = ["chat", "completion", "responses"];

/// The longest name of a model.
const LONGEST_NAME: usize = 256;

/// The most changed prices that the audit names.
const AUDITED: usize = 50;

/// Parts of the names of rates that apply to requests above a size, or to another service tier than the usual one.
const TIERS: [&str; 4] = ["_above_", "_batches", "_flex", "_priority"];

/// Prices that are read at once.
const PAGE: usize = 1_000;

/// The price of a model, in US dollars per million tokens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PriceView {
    /// `model`, or `upstream/model`.
    pub model: String,
    /// Prompt tokens.
    pub input: f64,
    /// Prompt tokens that the upstream reads from its cache; null if they cost as much as others.
    pub cached_input: Option<f64>,
    /// Prompt tokens that the upstream writes to its cache; null if they cost as much as others.
    pub cache_write: Option<f64>,
    /// Tokens of the answer.
    pub output: f64,
    /// Reasoning tokens; null if they cost as much as others.
    pub reasoning: Option<f64>,
    /// Where it comes from: `import` or `configuration`.
    pub source: &'static str,
}

/// What an import has done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ImportReport {
    object: &'static str,
    /// The imported prices, by name.
    pub imported: Vec<PriceView>,
    /// The entries that were left out.
    pub skipped: Vec<SkippedPrice>,
    /// Imported prices whose entry has further rates, for example for long prompts, which are not applied: their calls may cost
    /// more than is booked.
    pub tiered: Vec<TieredPrice>,
}

/// A price with rates that are not applied.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TieredPrice {
    /// Its name.
    pub model: String,
    /// The names of these rates, as the list has them.
    pub rates: Vec<String>,
}

/// An entry of a price list that was left out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SkippedPrice {
    /// Its name.
    pub model: String,
    /// Why.
    pub reason: String,
}

impl PriceView {
    /// A price with its source.
    pub fn new(model: String, price: Price, source: &'static str) -> Self {
        let Price { input, cached_input, cache_write, output, reasoning } = price;
        Self { model, input, cached_input, cache_write, output, reasoning, source }
    }

    fn imported(record: &PriceRecord) -> Self {
        Self::new(record.model.clone(), record.price, "import")
    }
}

impl Administration<'_> {
    /// Imports a price list. Prices of other models stay.
    pub async fn import_prices(&self, scope: &Scope, text: &str) -> Result<ImportReport, Fault> {
        let operator = operator(scope)?;
        let PriceList { prices, skipped, tiered } = read(text, self.now_ms)?;
        let imported: Vec<PriceView> = prices.iter().map(PriceView::imported).collect();
        if !prices.is_empty() {
            let known: BTreeMap<String, PriceView> =
                self.imported_prices(scope).await?.into_iter().map(|price| (price.model.clone(), price)).collect();
            let changed: Vec<&PriceView> =
                imported.iter().filter(|price| known.get(&price.model) != Some(price)).collect();
            let shown = || changed.iter().take(AUDITED);
            let before: Vec<&PriceView> = shown().filter_map(|price| known.get(&price.model)).collect();
            let after: Vec<&&PriceView> = shown().collect();
            let before = json!({"prices": known.len(), "changed": before});
            let after = json!({
                "imported": prices.len(), "skipped": skipped.len(), "changes": changed.len(), "changed": after,
            });
            let audit = self.change(INSTALLATION, IMPORT, "prices");
            let audit = audit.before(snapshot(&before)).after(snapshot(&after));
            self.store.put_prices(operator, prices, audit).await?;
        }
        Ok(ImportReport { object: "price.import", imported, skipped, tiered })
    }

    /// All imported prices, by name.
    pub async fn imported_prices(&self, scope: &Scope) -> Result<Vec<PriceView>, Fault> {
        let operator: Operator = operator(scope)?;
        let mut all: Vec<PriceView> = Vec::new();
        loop {
            let after = all.last().map(|price| price.model.clone());
            let page = self.store.prices(operator, after.as_deref(), PAGE).await?;
            let is_last = page.len() < PAGE;
            all.extend(page.iter().map(PriceView::imported));
            if is_last {
                return Ok(all);
            }
        }
    }
}

/// What a list has.
#[derive(Default)]
struct PriceList {
    prices: Vec<PriceRecord>,
    skipped: Vec<SkippedPrice>,
    tiered: Vec<TieredPrice>,
}

/// The prices of a list, by name, and what was left out.
fn read(text: &str, now_ms: u64) -> Result<PriceList, Fault> {
    let list: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
        Fault::new(FaultKind::Invalid, format!("The price list is not an object of JSON: {error}."))
            .code("invalid_json")
    })?;
    let PriceList { mut prices, mut skipped, mut tiered } = PriceList::default();
    for (name, entry) in &list {
        let model = name.to_lowercase();
        let read = match prices.iter().any(|known| known.model == model) {
            true => Err("another entry has the same name".to_owned()),
            false => price(name, entry),
        };
        match read {
            Ok(price) => {
                let rates = unapplied_rates(entry);
                if !rates.is_empty() {
                    tiered.push(TieredPrice { model: model.clone(), rates });
                }
                prices.push(PriceRecord { model, price, imported_at_ms: now_ms });
            }
            Err(reason) => skipped.push(SkippedPrice { model: name.clone(), reason }),
        }
    }
    prices.sort_by(|one, other| one.model.cmp(&other.model));
    Ok(PriceList { prices, skipped, tiered })
}

/// The rates of an entry that depend on more than the kind of a token.
fn unapplied_rates(entry: &Value) -> Vec<String> {
    let fields = entry.as_object().into_iter().flatten();
    let is_tier = |(name, rate): &(&String, &Value)| {
        name.contains("cost_per_token") && rate.is_number() && TIERS.iter().any(|tier| name.contains(tier))
    };
    fields.filter(is_tier).map(|(name, _)| name.clone()).collect()
}

fn price(name: &str, entry: &Value) -> Result<Price, String> {
    if name.trim().is_empty() || name.chars().count() > LONGEST_NAME || name.chars().any(char::is_control) {
        return Err(format!("the name must have 1 to {LONGEST_NAME} characters"));
    }
    let entry = entry.as_object().ok_or("not an object")?;
    if let Some(mode) = entry.get("mode").and_then(Value::as_str).filter(|mode| !MODES.contains(mode)) {
        return Err(format!("not a model for turns, but of the mode `{mode}`"));
    }
    let rate = |field: &str| match entry.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64().filter(|rate| (0.0..=1.0).contains(rate)) {
            // Rounded, so that 1.5e-07 a token is 0.15 a million tokens.
            Some(rate) => Ok(Some((rate * 1e15).round() / 1e9)),
            None => Err(format!("`{field}` is not a price of one token in US dollars")),
        },
    };
    let needed = |field: &str| rate(field)?.ok_or_else(|| format!("no `{field}`"));
    Ok(Price {
        input: needed("input_cost_per_token")?,
        cached_input: rate("cache_read_input_token_cost")?,
        cache_write: rate("cache_creation_input_token_cost")?,
        output: needed("output_cost_per_token")?,
        reasoning: rate("output_cost_per_reasoning_token")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_for_a_million_tokens_and_the_rest_is_skipped_with_a_reason() {
        let list = json!({
            "sample_spec": {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0, "mode": "one of: chat, embedding"},
            "gpt-4o-mini": {"input_cost_per_token": 1.5e-07, "output_cost_per_token": 6e-07,
                "cache_read_input_token_cost": 7.5e-08, "litellm_provider": "openai", "mode": "chat", "max_tokens": 16384},
            "Anthropic/Claude": {"input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05,
                "cache_creation_input_token_cost": 3.75e-06, "output_cost_per_reasoning_token": 2e-05,
                "input_cost_per_token_above_200k_tokens": 6e-06, "output_cost_per_token_batches": 7.5e-06},
            "text-embedding-3-small": {"input_cost_per_token": 2e-08, "output_cost_per_token": 0.0, "mode": "embedding"},
            "free": {"input_cost_per_token": 0, "output_cost_per_token": 0},
            "by-second": {"input_cost_per_second": 0.001, "mode": "chat"},
            "negative": {"input_cost_per_token": -1e-6, "output_cost_per_token": 1e-6},
            "text": {"input_cost_per_token": "1e-6", "output_cost_per_token": 1e-6},
            "GPT-4O-MINI": {"input_cost_per_token": 9e-07, "output_cost_per_token": 9e-07},
            "number": 5,
        });
        let PriceList { prices, skipped, tiered } = read(&list.to_string(), 7).unwrap();
        let rates = ["input_cost_per_token_above_200k_tokens", "output_cost_per_token_batches"];
        let expected = TieredPrice { model: "anthropic/claude".to_owned(), rates: rates.map(str::to_owned).to_vec() };
        assert_eq!(tiered, [expected]);
        let record = |model: &str, price| PriceRecord { model: model.to_owned(), price, imported_at_ms: 7 };
        // `serde_json` sorts fields by name, so capital letters come first.
        let expected = [
            record(
                "anthropic/claude",
                Price { input: 3.0, output: 15.0, cache_write: Some(3.75), reasoning: Some(20.0), ..Price::default() },
            ),
            record("free", Price::default()),
            record("gpt-4o-mini", Price { input: 0.9, output: 0.9, ..Price::default() }),
        ];
        assert_eq!(prices, expected);
        let reasons: Vec<(&str, &str)> =
            skipped.iter().map(|skipped| (skipped.model.as_str(), skipped.reason.as_str())).collect();
        assert_eq!(
            reasons,
            [
                ("by-second", "no `input_cost_per_token`"),
                ("gpt-4o-mini", "another entry has the same name"),
                ("negative", "`input_cost_per_token` is not a price of one token in US dollars"),
                ("number", "not an object"),
                ("sample_spec", "not a model for turns, but of the mode `one of: chat, embedding`"),
                ("text", "`input_cost_per_token` is not a price of one token in US dollars"),
                ("text-embedding-3-small", "not a model for turns, but of the mode `embedding`"),
            ]
        );
        assert!(read("[]", 0).is_err() && read("{", 0).is_err());
    }
}
