//! Imported prices. A rate is stored as the text of its number, which is exact in both engines.

use amalgam_core::{Operator, Price, StoreError, store::PriceRecord};

use crate::{
    engine::SqlConnection,
    sql::shared_statements,
    values::{SqlRow, values},
};

shared_statements! {
    OperatorSql PUT_PRICE = "
        INSERT INTO model_prices (model, input, cached_input, cache_write, output, reasoning, imported_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT (model) DO UPDATE SET input = excluded.input, cached_input = excluded.cached_input,
            cache_write = excluded.cache_write, output = excluded.output, reasoning = excluded.reasoning,
            imported_at = excluded.imported_at";
    pub(super) OperatorSql PRICES = "
        SELECT model, input, cached_input, cache_write, output, reasoning, imported_at FROM model_prices
        WHERE model > $1 ORDER BY model LIMIT $2";
}

pub(super) async fn put<C: SqlConnection>(
    connection: &C,
    operator: Operator,
    record: &PriceRecord,
) -> Result<(), C::Failure> {
    let Price { input, cached_input, cache_write, output, reasoning } = record.price;
    let text = |rate: f64| rate.to_string();
    let values = values![
        &record.model,
        text(input),
        cached_input.map(text),
        cache_write.map(text),
        text(output),
        reasoning.map(text),
        record.imported_at_ms,
    ];
    connection.operator(operator, PUT_PRICE, values).run().await.map(drop)
}

pub(super) fn price(row: &dyn SqlRow) -> Result<PriceRecord, StoreError> {
    let rate =
        |text: &str| text.parse().map_err(|_| StoreError::Broken(format!("a stored price is no number: {text}")));
    let optional = |column| row.optional::<&str>(column)?.map(rate).transpose();
    let price = Price {
        input: rate(row.get(1)?)?,
        cached_input: optional(2)?,
        cache_write: optional(3)?,
        output: rate(row.get(4)?)?,
        reasoning: optional(5)?,
    };
    Ok(PriceRecord { model: row.get(0)?, price, imported_at_ms: row.get(6)? })
}
