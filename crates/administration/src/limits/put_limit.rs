//! The body of `PUT /admin/limits/{kind}/{id}`.

use amalgam_core::{Budget, BudgetPeriod, BudgetUnit, Fault, LimitRules};
use amalgam_protocol::{Json, Shape};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error as _};

use crate::{
    fields::{Ignored, Texts, Verbatim, Word},
    request::{self, mistyped, wrong},
};

/// The maximum number of names in a list, and the length of a name.
const NAMES: usize = 500;
const NAME: usize = 256;

/// The maximum of all numbers of a limit.
const MOST: u64 = 1_000_000_000_000_000;

/// A limit to store. Null is the same as absent: not limited.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "what is shown of a limit can be sent back: some fields are accepted and not used")]
pub(crate) struct PutLimit {
    /// Turns that may begin in a minute; 0 refuses all.
    requests_per_minute: Option<Whole>,
    /// Tokens that model calls of a minute may use.
    tokens_per_minute: Option<Whole>,
    /// Turns that may run at once.
    in_flight: Option<Whole>,
    /// What model calls may use in a period.
    #[schemars(with = "Option<PutBudget>")]
    budget: Option<Verbatim>,
    /// The only models that may be used, by the names that callers use.
    models: Option<Names>,
    /// The only server-run tools that may be used: `name`, or `label/name` for tools of an MCP server.
    tools: Option<Names>,
    object: Option<Ignored>,
    kind: Option<Ignored>,
    id: Option<Ignored>,
    tenant_id: Option<Ignored>,
    usage: Option<Ignored>,
    updated_at: Option<Ignored>,
}

// An amount for a period.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct PutBudget {
    /// US dollars or tokens.
    #[schemars(with = "f64")]
    amount: Verbatim,
    unit: Word<BudgetUnit>,
    /// When it begins anew: each day or month (UTC), or never.
    period: Word<BudgetPeriod>,
}

// A whole number from 0.
#[derive(JsonSchema)]
#[schemars(inline, transparent)]
struct Whole(#[schemars(range(min = 0))] u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Verbatim(value) = Verbatim::deserialize(deserializer)?;
        match (value.raw().shape(), value.raw().text().parse()) {
            (Shape::Number, Ok(number @ 0..=MOST)) => Ok(Self(number)),
            (Shape::Number, _) => Err(D::Error::custom(format_args!("must be a whole number from 0 to {MOST}"))),
            _ => Err(crate::fields::mistyped("an integer")),
        }
    }
}

// Names without repetitions.
#[derive(JsonSchema)]
#[schemars(inline, transparent, extend("maxItems" = NAMES))]
struct Names(Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Texts(names) = Texts::deserialize(deserializer)?;
        let is_name = |name: &String| {
            !name.trim().is_empty() && name.chars().count() <= NAME && !name.chars().any(char::is_control)
        };
        if names.len() > NAMES || !names.iter().all(is_name) {
            return Err(D::Error::custom(format_args!("must have at most {NAMES} names of 1 to {NAME} characters")));
        }
        let mut known: Vec<String> = Vec::with_capacity(names.len());
        for name in names {
            if !known.contains(&name) {
                known.push(name);
            }
        }
        Ok(Self(known))
    }
}

/// Reads a limit.
pub(super) fn read(body: &Bytes) -> Result<LimitRules, Fault> {
    let put: PutLimit = request::parse(body)?;
    let rules = LimitRules {
        requests_per_minute: put.requests_per_minute.map(|limit| limit.0),
        tokens_per_minute: put.tokens_per_minute.map(|limit| limit.0),
        in_flight: put.in_flight.map(|limit| limit.0),
        budget: put.budget.map(|Verbatim(text)| budget(&text)).transpose()?,
        models: put.models.map(|names| names.0),
        tools: put.tools.map(|names| names.0),
    };
    match rules == LimitRules::default() {
        true => Err(wrong("body", "must limit something; DELETE removes a limit")),
        false => Ok(rules),
    }
}

fn budget(json: &Json) -> Result<Budget, Fault> {
    if json.raw().shape() != Shape::Object {
        return Err(mistyped("budget", "an object"));
    }
    let put: PutBudget = request::parse(json.bytes()).map_err(within_budget)?;
    let (text, unit) = (put.amount.0.raw().text(), put.unit.0);
    let amount = match unit {
        BudgetUnit::Tokens => text.parse().ok(),
        BudgetUnit::Usd => text.parse::<f64>().ok().filter(|usd| *usd >= 0.0).map(|usd| (usd * 1e9).round() as u64),
    };
    let amount = amount.filter(|amount| put.amount.0.raw().shape() == Shape::Number && *amount <= MOST);
    let why = match unit {
        BudgetUnit::Tokens => "must be a whole number of tokens",
        BudgetUnit::Usd => "must be an amount in US dollars of at most 1000000",
    };
    let amount = amount.ok_or_else(|| wrong("budget.amount", why))?;
    Ok(Budget { amount, unit, period: put.period.0 })
}

/// A fault of a field of the budget, under its path.
fn within_budget(fault: Fault) -> Fault {
    let Some(field) = fault.param.clone() else { return fault };
    let path = format!("budget.{field}");
    let mut fault = fault;
    fault.message = fault.message.replace(&format!("'{field}'"), &format!("'{path}'")).into();
    fault.param(path)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rules(body: &Value) -> Result<LimitRules, Fault> {
        read(&body.to_string().into())
    }

    #[test]
    fn a_limit_is_read_from_its_fields_and_what_is_shown_can_be_sent_back() {
        let body = json!({
            "requests_per_minute": 60, "tokens_per_minute": 0, "in_flight": null,
            "budget": {"amount": 12.5, "unit": "usd", "period": "month"},
            "models": ["gpt-4o", "gpt-4o"], "tools": [],
            "object": "limit", "kind": "keys", "id": "key_1", "tenant_id": 1, "usage": {}, "updated_at": 1,
        });
        let expected = LimitRules {
            requests_per_minute: Some(60),
            tokens_per_minute: Some(0),
            in_flight: None,
            budget: Some(Budget { amount: 12_500_000_000, unit: BudgetUnit::Usd, period: BudgetPeriod::Month }),
            models: Some(vec!["gpt-4o".to_owned()]),
            tools: Some(Vec::new()),
        };
        assert_eq!(rules(&body).unwrap(), expected);
    }

    #[test]
    fn faults_name_the_field() {
        for (body, param) in [
            (json!({}), "body"),
            (json!({"requests_per_minute": -1}), "requests_per_minute"),
            (json!({"requests_per_minute": 1.5}), "requests_per_minute"),
            (json!({"in_flight": "2"}), "in_flight"),
            (json!({"models": "gpt"}), "models"),
            (json!({"models": [""]}), "models"),
            (json!({"budget": {"amount": 5, "unit": "eur", "period": "day"}}), "budget.unit"),
            (json!({"budget": {"amount": 1.5, "unit": "tokens", "period": "day"}}), "budget.amount"),
            (json!({"budget": {"amount": "5", "unit": "usd", "period": "day"}}), "budget.amount"),
            (json!({"budget": {"amount": -5, "unit": "usd", "period": "day"}}), "budget.amount"),
            (json!({"budget": {"amount": 5, "unit": "usd"}}), "budget.period"),
            (json!({"rpm": 5}), "rpm"),
        ] {
            let fault = rules(&body).unwrap_err();
            assert_eq!(fault.param.as_deref(), Some(param), "{body}: {}", fault.message);
        }
    }
}
