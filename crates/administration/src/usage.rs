//! Usage: turns, tokens and cost by tenant, key, user, door, profile, upstream, model, day and hour.

use amalgam_core::{
    Fault, Scope,
    store::{UsageGroup, UsageQuery, UsageSums},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    Administration,
    request::wrong,
    turn_list::{time_ms, turns_of},
};

const MS_PER_HOUR: u64 = 3_600_000;

/// The range of a request that names none.
const DEFAULT_HOURS: u64 = 30 * 24;

/// Sums of usage.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "UsageReport")]
pub struct UsageReport {
    #[schemars(extend("const" = "usage"))]
    object: &'static str,
    /// The beginning of the range, RFC 3339.
    pub from: String,
    /// The end of the range, RFC 3339; not included.
    pub to: String,
    /// What the rows are grouped by.
    pub group_by: Vec<&'static str>,
    /// One entry for each group.
    pub data: Vec<UsageOfGroup>,
}

/// The usage of one group.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UsageOfGroup {
    /// The value of each name in `group_by`.
    #[serde(flatten)]
    pub group: Map<String, Value>,
    /// Turns that ended.
    pub turns: u64,
    /// Of those, turns that failed.
    pub failed_turns: u64,
    /// Model calls.
    pub calls: u64,
    /// Prompt tokens, including cached ones.
    pub input_tokens: u64,
    /// Of those, read from a cache.
    pub cached_input_tokens: u64,
    /// Of those, written to a cache.
    pub cache_write_tokens: u64,
    /// Tokens of answers, including reasoning.
    pub output_tokens: u64,
    /// Of those, reasoning tokens.
    pub reasoning_tokens: u64,
    /// The cost in US dollars of the calls whose price is known; null if no price is known.
    pub cost_usd: Option<f64>,
    /// Model calls with tokens whose price is unknown: the cost does not include them.
    pub unpriced_calls: u64,
}

/// A request for usage.
#[derive(Debug, Clone, Default)]
pub struct UsageRequest {
    tenant: Option<String>,
    query: UsageQuery,
}

/// The names of all parameters of [`UsageRequest`].
pub const USAGE_PARAMETERS: [&str; 7] = ["group_by", "from", "to", "tenant", "key", "user", "model"];

impl UsageRequest {
    /// Reads the parameters; `get` returns the value of one of [`USAGE_PARAMETERS`]. Ranges consist of whole hours.
    pub fn read<'a>(get: impl Fn(&'static str) -> Option<&'a str>, now_ms: u64) -> Result<Self, Fault> {
        let names = get("group_by").map_or_else(Vec::new, |names| names.split(',').map(str::trim).collect());
        let group_by = names.into_iter().map(group).collect::<Result<Vec<_>, _>>()?;
        if group_by.iter().enumerate().any(|(at, group)| group_by.iter().skip(at + 1).any(|other| other == group)) {
            return Err(wrong("group_by", "must name each group once"));
        }
        let to_ms = get("to").map(|text| time_ms("to", text)).transpose()?.unwrap_or(now_ms);
        let to_hour = to_ms.div_ceil(MS_PER_HOUR);
        let from_ms = get("from").map(|text| time_ms("from", text)).transpose()?;
        let from_hour = from_ms.map_or(to_hour.saturating_sub(DEFAULT_HOURS), |from_ms| from_ms / MS_PER_HOUR);
        if from_hour > to_hour {
            return Err(wrong("from", "must be before `to`"));
        }
        let text = |name| get(name).map(ToOwned::to_owned);
        let query =
            UsageQuery { from_hour, to_hour, group_by, key_id: text("key"), user: text("user"), model: text("model") };
        Ok(Self { tenant: text("tenant"), query })
    }
}

fn group(name: &str) -> Result<UsageGroup, Fault> {
    UsageGroup::named(name).ok_or_else(|| {
        let known: Vec<&str> = UsageGroup::ALL.into_iter().map(UsageGroup::name).collect();
        wrong("group_by", &format!("must be some of {}, separated by commas", known.join(", ")))
    })
}

impl Administration<'_> {
    /// The usage of the caller's tenant, of a named one, or of all.
    pub async fn usage(&self, scope: &Scope, request: &UsageRequest) -> Result<UsageReport, Fault> {
        let (_, of) = turns_of(scope, request.tenant.as_deref())?;
        let query = &request.query;
        let sums = self.store.usage(of, query.clone()).await?;
        Ok(UsageReport {
            object: "usage",
            from: shown_hour(query.from_hour),
            to: shown_hour(query.to_hour),
            group_by: query.group_by.iter().map(|group| group.name()).collect(),
            data: sums.into_iter().map(|sums| UsageOfGroup::new(&query.group_by, sums)).collect(),
        })
    }
}

/// The rows of a report, and their sum.
pub(super) fn usage_rows(group_by: &[UsageGroup], sums: Vec<UsageSums>) -> (Vec<UsageOfGroup>, UsageOfGroup) {
    let mut total = UsageSums::default();
    sums.iter().for_each(|sums| total.add(sums));
    let rows = sums.into_iter().map(|sums| UsageOfGroup::new(group_by, sums)).collect();
    (rows, UsageOfGroup::new(&[], total))
}

impl UsageOfGroup {
    fn new(group_by: &[UsageGroup], sums: UsageSums) -> Self {
        let values = group_by.iter().zip(&sums.group);
        let group = values.map(|(group, value)| (group.name().to_owned(), shown(*group, value))).collect();
        let priced = sums.calls > sums.unpriced_calls && sums.cost.nano_usd() > 0 || sums.unpriced_calls == 0;
        Self {
            group,
            turns: sums.turns,
            failed_turns: sums.failed_turns,
            calls: sums.calls,
            input_tokens: sums.tokens.input,
            cached_input_tokens: sums.tokens.cached_input,
            cache_write_tokens: sums.tokens.cache_write,
            output_tokens: sums.tokens.output,
            reasoning_tokens: sums.tokens.reasoning,
            cost_usd: priced.then(|| sums.cost.usd()),
            unpriced_calls: sums.unpriced_calls,
        }
    }

    /// The values as texts, in the order of [`USAGE_COLUMNS`].
    fn cells(&self) -> [String; 10] {
        [
            self.turns.to_string(),
            self.failed_turns.to_string(),
            self.calls.to_string(),
            self.input_tokens.to_string(),
            self.cached_input_tokens.to_string(),
            self.cache_write_tokens.to_string(),
            self.output_tokens.to_string(),
            self.reasoning_tokens.to_string(),
            self.cost_usd.map(|cost| format!("{cost:.9}")).unwrap_or_default(),
            self.unpriced_calls.to_string(),
        ]
    }
}

/// The columns of a table of usage, after those of the groups.
pub const USAGE_COLUMNS: [&str; 10] = [
    "turns",
    "failed_turns",
    "calls",
    "input_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cost_usd",
    "unpriced_calls",
];

impl UsageReport {
    /// The headings and rows of a table.
    pub fn table(&self) -> (Vec<&str>, Vec<Vec<String>>) {
        let headings = self.group_by.iter().copied().chain(USAGE_COLUMNS).collect();
        let row = |usage: &UsageOfGroup| {
            let groups = self.group_by.iter().map(|name| match usage.group.get(*name) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Null) | None => String::new(),
                Some(other) => other.to_string(),
            });
            groups.chain(usage.cells()).collect()
        };
        (headings, self.data.iter().map(row).collect())
    }

    /// The usage as CSV with a line of headings.
    pub fn csv(&self) -> Vec<u8> {
        let (headings, rows) = self.table();
        let mut writer = csv::Writer::from_writer(Vec::new());
        // Writing to memory does not fail.
        let _ = writer.write_record(headings);
        for row in rows {
            let _ = writer.write_record(row);
        }
        writer.into_inner().unwrap_or_default()
    }
}

/// The value of a group: a time as text, a missing key or profile as null.
fn shown(group: UsageGroup, value: &str) -> Value {
    let number = || value.parse::<u64>().unwrap_or_default();
    match group {
        UsageGroup::Tenant => json!(number()),
        UsageGroup::Hour => json!(shown_hour(number())),
        UsageGroup::Day => json!(shown_hour(number() * 24).chars().take(10).collect::<String>()),
        _ if value.is_empty() => Value::Null,
        _ => json!(value),
    }
}

fn shown_hour(hour: u64) -> String {
    let seconds = i64::try_from(hour * 3600).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use amalgam_core::{Cost, TokenSums};

    use super::*;

    const NOW: u64 = 480_000 * MS_PER_HOUR + 5;

    fn read(name: &'static str, value: &'static str) -> Result<UsageRequest, Fault> {
        UsageRequest::read(|asked| (asked == name).then_some(value), NOW)
    }

    #[test]
    fn a_range_consists_of_whole_hours_and_ends_now() {
        let query = read("from", "2024-10-03T10:59:59Z").unwrap().query;
        assert_eq!((query.from_hour, query.to_hour), (479_986, 480_001));
        assert_eq!(read("key", "k").unwrap().query.from_hour, 480_001 - DEFAULT_HOURS);
        assert_eq!(read("from", "2124-10-03T10:59:59Z").unwrap_err().param.as_deref(), Some("from"));
    }

    #[test]
    fn groups_are_known_and_named_once() {
        assert_eq!(read("group_by", "tenant, day").unwrap().query.group_by, [UsageGroup::Tenant, UsageGroup::Day]);
        for wrong in ["colour", "tenant,tenant", ","] {
            assert_eq!(read("group_by", wrong).unwrap_err().param.as_deref(), Some("group_by"), "{wrong}");
        }
    }

    #[test]
    fn unknown_prices_are_no_cost_of_zero() {
        let sums = |calls, unpriced_calls, cost| UsageSums {
            calls,
            unpriced_calls,
            cost: Cost::from_nano_usd(cost),
            tokens: TokenSums::default(),
            ..UsageSums::default()
        };
        let cost = |sums| UsageOfGroup::new(&[], sums).cost_usd;
        assert_eq!(cost(sums(2, 2, 0)), None);
        assert_eq!(cost(sums(2, 1, 500_000_000)), Some(0.5));
        assert_eq!(cost(sums(2, 0, 0)), Some(0.0), "models that cost nothing");
        assert_eq!(cost(sums(0, 0, 0)), Some(0.0));
    }

    #[test]
    fn the_table_and_the_csv_have_the_groups_first() {
        let group_by = vec![UsageGroup::Day, UsageGroup::Key];
        let sums = UsageSums { group: vec!["20000".into(), String::new()], turns: 3, ..UsageSums::default() };
        let usage = UsageReport {
            object: "usage",
            from: shown_hour(1),
            to: shown_hour(2),
            group_by: group_by.iter().map(|group| group.name()).collect(),
            data: vec![UsageOfGroup::new(&group_by, sums)],
        };
        let csv = String::from_utf8(usage.csv()).unwrap();
        assert_eq!(
            csv,
            "day,key,turns,failed_turns,calls,input_tokens,cached_input_tokens,cache_write_tokens,output_tokens,\
             reasoning_tokens,cost_usd,unpriced_calls\n2024-10-04,,3,0,0,0,0,0,0,0,0.000000000,0\n"
        );
    }
}
