//! The list of models in the format of the Messages API.

use amalgam_core::ModelCard;
use amalgam_protocol::Writer;

/// A part of the list.
#[derive(Debug, Default)]
pub struct ModelPage {
    /// The maximum number of models.
    pub limit: Option<u64>,
    /// The model before the page.
    pub after_id: Option<String>,
    /// The model after the page.
    pub before_id: Option<String>,
}

/// The number of models of a page whose request names no limit.
const DEFAULT_LIMIT: u64 = 20;
/// The largest page.
const MAX_LIMIT: u64 = 1000;

/// The list as a body; an unknown model before or after the page gives an empty one.
pub fn write_models(cards: &[ModelCard], page: &ModelPage) -> Vec<u8> {
    let limit = usize::try_from(page.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT)).unwrap_or(usize::MAX);
    let place = |id: &str| cards.iter().position(|card| card.id == id);
    let (from, to) = match (&page.after_id, &page.before_id) {
        (Some(after), _) => {
            let from = place(after).map_or(cards.len(), |place| place + 1);
            (from, from.saturating_add(limit).min(cards.len()))
        }
        (None, Some(before)) => {
            let to = place(before).unwrap_or(0);
            (to.saturating_sub(limit), to)
        }
        (None, None) => (0, limit.min(cards.len())),
    };
    let shown = cards.get(from..to).unwrap_or_default();
    let has_more = match page.before_id.is_some() && page.after_id.is_none() {
        true => from > 0,
        false => to < cards.len(),
    };
    let mut writer = Writer::with_capacity(128 * shown.len() + 96);
    writer.object(|writer| {
        writer.key("data").array(|writer| shown.iter().for_each(|card| write_model(writer, card)));
        for (name, card) in [("first_id", shown.first()), ("last_id", shown.last())] {
            match card {
                Some(card) => writer.key(name).string(&card.id),
                None => writer.key(name).null(),
            }
        }
        writer.key("has_more").bool(has_more);
    });
    writer.into_bytes()
}

/// Writes one model.
pub fn write_model(writer: &mut Writer, card: &ModelCard) {
    writer.object(|writer| {
        writer.key("type").string("model");
        writer.key("id").string(&card.id);
        writer.key("display_name").string(&card.id);
        writer.key("created_at").string(&time(card.created));
        for (name, tokens) in [("max_input_tokens", card.context_window), ("max_tokens", card.max_output_tokens)] {
            if let Some(tokens) = tokens {
                writer.key(name).number(tokens);
            }
        }
    });
}

/// Seconds since 1970 in the format of RFC 3339, in UTC. The algorithm is Howard Hinnant's `civil_from_days`.
fn time(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_in_utc() {
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(time(1_794_960_000), "2026-11-18T00:00:00Z");
    }

    #[test]
    fn pages_go_forward_and_backward() {
        let cards: Vec<ModelCard> =
            ["a", "b", "c"].into_iter().map(|id| ModelCard { id: id.to_owned(), ..ModelCard::default() }).collect();
        let page = |limit: u64, after: Option<&str>, before: Option<&str>| {
            let page = ModelPage {
                limit: Some(limit),
                after_id: after.map(str::to_owned),
                before_id: before.map(str::to_owned),
            };
            let list: serde_json::Value = serde_json::from_slice(&write_models(&cards, &page)).unwrap();
            let ids = list["data"].as_array().unwrap().iter().map(|card| card["id"].as_str().unwrap().to_owned());
            (ids.collect::<Vec<_>>().concat(), list["has_more"].as_bool().unwrap())
        };
        assert_eq!(page(2, None, None), ("ab".to_owned(), true));
        assert_eq!(page(2, Some("b"), None), ("c".to_owned(), false));
        assert_eq!(page(1, None, Some("c")), ("b".to_owned(), true));
        assert_eq!(page(2, None, Some("c")), ("ab".to_owned(), false));
        assert_eq!(page(2, Some("x"), None), (String::new(), false));
    }
}
