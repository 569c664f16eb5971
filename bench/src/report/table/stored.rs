//! The part of the report about turns that are stored.

use std::fmt::Write;

use super::super::chain::ChainRow;
use super::super::cpu::{CpuCell, CpuRow};
use super::super::stored::{ADDED_P99_TARGET_MS, Findings, StoredRows};
use super::{micros, ratio, verdict};

pub(super) fn tables(findings: &Findings) -> String {
    let mut text = String::from("\n## Stored turns\n\n");
    for rows in &findings.engines {
        let _ = writeln!(text, "- {}: {}", rows.engine, rows.durability);
    }
    let (p50, p99) = findings.flush_ms;
    let _ = writeln!(text, "- flushing 4 KiB to this disk: p50 {p50:.2} ms, p99 {p99:.2} ms");
    text.push_str(&costs(&findings.engines));
    text.push_str(&wires(&findings.engines));
    text.push_str(&latencies(&findings.engines));
    text.push_str(&chains(&findings.engines));
    text.push_str(&sizes(&findings.engines));
    text
}

fn costs(engines: &[StoredRows]) -> String {
    let mut text = String::from(
        "\n| CPU | relative to raw | target | met | the same unstored | µs a request | µs of the database server |\n| --- | --- | --- | --- | --- | --: | --: |\n",
    );
    for rows in engines {
        for row in &rows.cpu {
            cost(&mut text, rows.engine, row);
        }
    }
    text.push_str("\nOf the server's process; a database server beside it is not part of the ratio.\n");
    text
}

fn cost(text: &mut String, engine: &str, row: &CpuRow) {
    let (Some(unstored), Some(stored)) = (cell(row, "unstored"), cell(row, "stored")) else { return };
    let (target, met) = match row.target {
        Some(target) => (format!("≤ {target}×"), verdict(row.missed().next().is_none())),
        None => ("–".to_owned(), "–"),
    };
    let of = |cell: &CpuCell| cell.ratio.map_or("–".to_owned(), ratio);
    let database = stored.database_micros.map_or("–".to_owned(), micros);
    let _ = writeln!(
        text,
        "| {}, {engine} | {} | {target} | {met} | {} | {} | {database} |",
        row.scenario,
        of(stored),
        of(unstored),
        micros(stored.micros_per_request),
    );
}

fn wires(engines: &[StoredRows]) -> String {
    let mut text = String::from(
        "\n| CPU of a stored turn | µs on `/v1/responses` | µs on this wire | relative | target | met |\n| --- | --: | --: | --- | --- | --- |\n",
    );
    for rows in engines {
        let Some((reference, others)) = rows.wires.cells.split_first() else { continue };
        let missed: Vec<String> = rows.wires.missed().collect();
        for cell in others {
            let met = !missed.iter().any(|name| name.starts_with(cell.label));
            let _ = writeln!(
                text,
                "| {}, {} | {} | {} | {} | {} | {} |",
                cell.label,
                rows.engine,
                micros(reference.micros_per_request),
                micros(cell.micros_per_request),
                cell.ratio.map_or("–".to_owned(), ratio),
                rows.wires.target.map_or("–".to_owned(), |target| format!("≤ {target}×")),
                verdict(met),
            );
        }
    }
    text.push_str("\nEach turn of the assistant has a new user, each turn of the strict contract a new session.\n");
    text
}

fn cell<'a>(row: &'a CpuRow, label: &str) -> Option<&'a CpuCell> {
    row.cells.iter().find(|cell| cell.label == label)
}

fn latencies(engines: &[StoredRows]) -> String {
    let mut text = String::from(
        "\n| Latency in ms | | p50 | p99 | added p50 | added p99 |\n| --- | --- | --: | --: | --: | --: |\n",
    );
    for rows in engines {
        for row in &rows.latency {
            let (added_p50, added_p99) = match row.added_ms {
                Some((p50, p99)) => (format!("{p50:+.2}"), format!("{p99:+.2}")),
                None => ("–".to_owned(), "–".to_owned()),
            };
            let _ = writeln!(
                text,
                "| {}, {} | {} | {:.2} | {:.2} | {added_p50} | {added_p99} |",
                row.traffic, rows.engine, row.label, row.p50_ms, row.p99_ms
            );
        }
    }
    let _ = writeln!(
        text,
        "\nAdded to the same requests unstored. Aim on a quiet disk: p99 +{ADDED_P99_TARGET_MS} ms; not judged, because it is \
         the disk's and the neighbours' as much as ours."
    );
    text
}

fn chains(engines: &[StoredRows]) -> String {
    let mut text = String::from(
        "\n| Turn of a chain | CPU in µs | relative to the first | bytes sent upstream | added ns a byte added |\n| --- | --: | --: | --: | --: |\n",
    );
    for rows in engines {
        let Some(first) = rows.chain.first() else { continue };
        for row in &rows.chain {
            let _ = writeln!(
                text,
                "| {}, {} | {} | {:.2}× | {:.0} | {} |",
                row.turn,
                row.engine,
                micros(row.micros),
                row.micros / first.micros,
                row.bytes_upstream,
                growth(first, row).map_or("–".to_owned(), |growth| format!("{growth:.2}")),
            );
        }
    }
    text.push_str(
        "\nOne caller, one turn at a time. What a byte adds has to stay the same however long the chain is.\n",
    );
    text
}

/// Nanoseconds for each byte that a turn sends beyond the first one.
fn growth(first: &ChainRow, row: &ChainRow) -> Option<f64> {
    let bytes = row.bytes_upstream - first.bytes_upstream;
    (bytes > 0.0).then(|| (row.micros - first.micros) * 1e3 / bytes)
}

fn sizes(engines: &[StoredRows]) -> String {
    let mut text = String::from("\n| Database | bytes a response |\n| --- | --: |\n");
    for rows in engines {
        for row in &rows.sizes {
            let _ = writeln!(text, "| {}, {} | {:.0} |", row.scenario, rows.engine, row.bytes_per_response);
        }
    }
    text.push_str("\nWith indexes, the model's exact request and answer, and the frames of streams.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::super::super::cpu::Ratio;
    use super::*;

    #[test]
    fn a_stored_turn_stands_beside_the_same_unstored_and_only_it_is_judged() {
        let cell = |label, median: f64, database_micros| CpuCell {
            label,
            micros_per_request: median * 20.0,
            micros_per_token: None,
            database_micros,
            ratio: Some(Ratio { median, smallest: median, largest: median }),
        };
        let cells = vec![cell("unstored", 9.0, None), cell("stored", 2.5, Some(77.0))];
        let row = CpuRow { scenario: "plain", target: Some(3.0), judged: Some("stored"), cells };
        let mut text = String::new();

        cost(&mut text, "SQLite", &row);

        assert_eq!(text, "| plain, SQLite | 2.50× (2.50–2.50) | ≤ 3× | yes | 9.00× (9.00–9.00) | 50.0 | 77.0 |\n");
    }

    #[test]
    fn growth_is_what_a_further_byte_costs() {
        let row = |micros, bytes_upstream| ChainRow { engine: "SQLite", turn: 1, micros, bytes_upstream };

        assert_eq!(growth(&row(100.0, 500.0), &row(150.0, 10_500.0)), Some(5.0));
        assert_eq!(growth(&row(100.0, 500.0), &row(100.0, 500.0)), None);
    }
}
