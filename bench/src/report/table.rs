//! The report as Markdown, readable in a terminal too.

mod stored;

use std::fmt::Write;
use std::fs;
use std::process::Command;
use std::time::Duration;

use super::cpu::{CpuCell, CpuRow, Ratio};
use super::latency::LatencyRow;
use super::memory::{IDLE_TARGET_MIB, MemoryRow, STREAM_TARGET_KIB};
use super::{Findings, Options, Subject};
use crate::answers::TOKENS;

pub(super) fn markdown(options: &Options, findings: &Findings, took: Duration) -> String {
    let mut text = String::new();
    let title = match options.subject {
        Subject::Amalgam => "# Benchmark report",
        Subject::Itself => "# Benchmark report: the pass-through against itself",
    };
    let _ = writeln!(text, "{title}\n");
    text.push_str(&circumstances(options, took));
    text.push_str(&ratios(&findings.cpu));
    text.push_str(&costs(&findings.cpu));
    text.push_str(&latencies(&findings.latency));
    text.push_str(&memory(&findings.memory));
    if let Some(findings) = &findings.stored {
        text.push_str(&stored::tables(findings));
    }
    text
}

fn circumstances(options: &Options, took: Duration) -> String {
    let plan = &options.plan;
    let server = match options.subject {
        Subject::Amalgam => format!("- server: {}\n", options.amalgam.display()),
        Subject::Itself => String::new(),
    };
    format!(
        "- date: {}\n- commit: {}\n{server}- machine: {}\n- run: {} ({} rounds, {:.0} s in all), {} connections, {TOKENS}-token answers\n",
        output_of("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_else(|| "unknown".to_owned()),
        commit(),
        machine(),
        plan.name,
        plan.rounds,
        took.as_secs_f64(),
        plan.connections,
    )
}

fn ratios(rows: &[CpuRow]) -> String {
    let mut text = String::from("\n## CPU relative to the bare pass-through, nothing stored\n\n");
    let labels: Vec<&str> = rows.iter().take(1).flat_map(|row| &row.cells).skip(1).map(|cell| cell.label).collect();
    let _ = writeln!(text, "| | {} | target | met |", labels.join(" | "));
    let _ = writeln!(text, "| --- |{} --- | --- |", " --- |".repeat(labels.len()));
    for row in rows {
        let cells: Vec<String> = row.cells.iter().filter_map(|cell| cell.ratio).map(ratio).collect();
        let (target, met) = match row.target {
            Some(target) => (format!("≤ {target}×"), verdict(row.missed().next().is_none())),
            None => ("–".to_owned(), "–"),
        };
        let _ = writeln!(text, "| {} | {} | {target} | {met} |", row.scenario, cells.join(" | "));
    }
    text.push_str("\nMedian of the rounds' ratios; in brackets the smallest and the largest.\n");
    text
}

fn ratio(ratio: Ratio) -> String {
    format!("{:.2}× ({:.2}–{:.2})", ratio.median, ratio.smallest, ratio.largest)
}

fn costs(rows: &[CpuRow]) -> String {
    let mut text = String::from("\n## CPU time of the server in µs\n\n");
    let labels: Vec<&str> = rows.iter().take(1).flat_map(|row| &row.cells).map(|cell| cell.label).collect();
    let _ = writeln!(text, "| | {} |", labels.join(" | "));
    let _ = writeln!(text, "| --- |{}", " --: |".repeat(labels.len()));
    for row in rows {
        cost_line(&mut text, &format!("{}, a request", row.scenario), row, |cell| Some(cell.micros_per_request));
        if row.cells.iter().any(|cell| cell.micros_per_token.is_some()) {
            cost_line(&mut text, &format!("{}, a token", row.scenario), row, |cell| cell.micros_per_token);
        }
    }
    text
}

fn cost_line(text: &mut String, name: &str, row: &CpuRow, value: impl Fn(&CpuCell) -> Option<f64>) {
    let cells: Vec<String> = row.cells.iter().map(|cell| value(cell).map_or("–".to_owned(), micros)).collect();
    let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
}

/// Three digits are more than the measurement is worth.
fn micros(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.2}")
    } else if value < 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

fn latencies(rows: &[LatencyRow]) -> String {
    let mut text = String::from(
        "\n## Latency at fixed rates in ms\n\n| | by way of | p50 | p99 | added p50 | added p99 |\n| --- | --- | --: | --: | --: | --: |\n",
    );
    for row in rows {
        let (added_p50, added_p99) = match row.added_ms {
            Some((p50, p99)) => (format!("{p50:+.2}"), format!("{p99:+.2}")),
            None => ("–".to_owned(), "–".to_owned()),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {:.2} | {:.2} | {added_p50} | {added_p99} |",
            row.traffic, row.label, row.p50_ms, row.p99_ms
        );
    }
    text.push_str(
        "\nAdded to the same requests sent straight to the mock. Clients, mock and server share the processors.\n",
    );
    text
}

fn memory(rows: &[MemoryRow]) -> String {
    let mut text = String::from(
        "\n## Memory of a fresh process\n\n| | idle MiB | open streams | MiB with them | KiB a stream | met |\n| --- | --: | --: | --: | --: | --- |\n",
    );
    for row in rows {
        let met = if row.judged { verdict(row.missed().next().is_none()) } else { "–" };
        let _ = writeln!(
            text,
            "| {} | {:.1} | {} | {:.1} | {:.1} | {met} |",
            row.label, row.idle_mib, row.streams, row.loaded_mib, row.kib_per_stream
        );
    }
    let _ = writeln!(
        text,
        "\nTargets: idle ≤ {IDLE_TARGET_MIB} MiB, ≤ {STREAM_TARGET_KIB} KiB a stream. Resident memory; the streams carry two tokens a second."
    );
    text
}

fn verdict(met: bool) -> &'static str {
    if met { "yes" } else { "**no**" }
}

fn commit() -> String {
    let Some(commit) = output_of("git", &["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    match output_of("git", &["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit} with uncommitted changes"),
    }
}

fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // Figures that were taken beside another process's load are worth less; the report shows the load.
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_ascii_whitespace().next().unwrap_or("unknown");
    format!("{cores} × {processor}, Linux {}, load average {load} at the end", kernel.trim())
}

fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_ratio_is_marked_and_the_pass_through_has_none() {
        let cell = |label, micros_per_request, ratio| CpuCell {
            label,
            micros_per_request,
            micros_per_token: None,
            database_micros: None,
            ratio,
        };
        let high = Ratio { median: 1.6, smallest: 1.5, largest: 1.7 };
        let row = CpuRow {
            scenario: "plain",
            target: Some(1.5),
            judged: None,
            cells: vec![cell("raw", 60.0, None), cell("own", 96.0, Some(high))],
        };

        let text = ratios(&[row]);

        assert!(text.contains("| | own | target | met |\n| --- | --- | --- | --- |\n"));
        assert!(text.contains("| plain | 1.60× (1.50–1.70) | ≤ 1.5× | **no** |"));
    }

    #[test]
    fn costs_show_tokens_only_for_streams() {
        let cell = |micros_per_token| CpuCell {
            label: "raw",
            micros_per_request: 812.4,
            micros_per_token,
            database_micros: None,
            ratio: None,
        };
        let row = |scenario, tokens| CpuRow { scenario, target: None, judged: None, cells: vec![cell(tokens)] };

        let text = costs(&[row("plain", None), row("burst", Some(8.124))]);

        assert!(text.contains("| plain, a request | 812 |\n| burst, a request | 812 |\n| burst, a token | 8.12 |\n"));
    }
}
