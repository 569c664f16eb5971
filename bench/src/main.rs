//! `amalgam-bench`: what Amalgam costs, measured against a bare pass-through in the same run.
//!
//! Several roles in one binary, so that a measurement needs nothing else: `mock` is the model provider, `raw` the
//! cheapest proxy that hyper allows, `load` the clients, and `report` starts the first two and the real server,
//! plays the clients itself and prints the table; `train` does the same for a build that counts. Nothing here is linked
//! into the product.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "reports on stdout and progress on stderr are the purpose"
)]
#![allow(
    clippy::disallowed_types,
    reason = "the pass-through is measured with hyper-util's client, it serves no caller"
)]
#![allow(clippy::disallowed_methods, reason = "tasks live as long as this short process")]

mod answers;
mod args;
mod children;
mod client;
mod load;
mod mock;
mod postgres;
mod process;
mod raw;
mod report;
mod requests;
mod serve;
mod sse;
mod stats;
mod train;

use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::args::Args;

const USAGE: &str = "\
amalgam-bench mock   [--port N] [--with-parent]
amalgam-bench raw    --upstream HOST:PORT [--port N] [--with-parent]
amalgam-bench load   --target HOST:PORT [--scenario plain|large|burst|paced|slow] [--prefix UPSTREAM/]
                     [--connections 16] [--seconds 5] [--rate PER_SECOND] [--key KEY] [--stored]
amalgam-bench train  --amalgam FILE
amalgam-bench report [--amalgam target/release/amalgam] [--out FILE] [--quick] [--gate] [--self-check]

mock    answers /v1/chat/completions, /v1/responses and /v1/models; the model name chooses the pace
raw     passes every request on to the upstream, frame by frame
load    closed loop on N connections, or open loop when --rate is given
train   gives a server that counts what it does something of everything to do (scripts/release.sh)
report  measures the server against raw; --self-check measures raw against raw (the noise of this machine),
        --gate fails when a target is missed; stored turns are measured on PostgreSQL too where AMALGAM_BENCH_POSTGRES
        names a server (bench/run.sh starts one)
--with-parent ends the process when its standard input closes
";

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("amalgam-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<ExitCode> {
    let mut words = std::env::args().skip(1);
    let Some(command) = words.next() else { bail!("no command given\n\n{USAGE}") };
    let args = Args::new(words.collect());
    let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
    runtime.block_on(async {
        match command.as_str() {
            "mock" => mock::run(args).await.map(|()| ExitCode::SUCCESS),
            "raw" => raw::run(args).await.map(|()| ExitCode::SUCCESS),
            "load" => load::run(args).await,
            "train" => train::run(args).await.map(|()| ExitCode::SUCCESS),
            "report" => report::run(args).await,
            "help" | "--help" | "-h" => {
                print!("{USAGE}");
                Ok(ExitCode::SUCCESS)
            }
            other => bail!("unknown command `{other}`\n\n{USAGE}"),
        }
    })
}
