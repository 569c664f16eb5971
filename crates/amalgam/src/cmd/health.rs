//! `amalgam health`: asks a running server whether it accepts work.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use tokio::time::timeout;

use crate::cli::ConfigArgs;
use crate::server_client::{self, ServerAddress};
use crate::terminal::{print_json, print_stdout};
use amalgam_configuration::{Config, ListenAddress, Sources};
use amalgam_core::duration_from_text;

#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Server URL: http://…, https://… or unix:PATH [default: the configured listening address]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Accept exactly the certificate in this file from an https server, under any name
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// How long the server may take to answer
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = patience)]
    timeout: Duration,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A server's report about itself, or why there is none.
#[derive(Debug, Serialize)]
struct Health {
    healthy: bool,
    /// `ready`, `draining`, `store_unavailable`; `unreachable` without such a report.
    status: String,
    url: Option<String>,
    turns_in_flight: Option<u64>,
    turns_waiting: Option<u64>,
    error: Option<String>,
}

/// Exits with 0 if the server is ready, otherwise with 1: supervisors interpret other codes in their own way.
pub(crate) async fn run(args: HealthArgs) -> anyhow::Result<ExitCode> {
    let health = examine(&args).await;
    match args.json {
        true => print_json(&health)?,
        false => print_stdout(health.as_text())?,
    }
    Ok(if health.healthy { ExitCode::SUCCESS } else { ExitCode::from(crate::FAILURE) })
}

async fn examine(args: &HealthArgs) -> Health {
    let named = args.url.clone().map(|url| (url, None));
    let (url, configured) = match named.map_or_else(|| configured_url(args.config.clone()), Ok) {
        Ok(found) => found,
        Err(error) => return Health::unreachable(None, &error),
    };
    let certificate = args.certificate.as_deref().or(configured.as_deref());
    match timeout(args.timeout, readiness(&url, certificate)).await {
        Ok(Ok((status, report))) => Health {
            healthy: status == StatusCode::OK,
            status: report["status"].as_str().unwrap_or_default().to_owned(),
            url: Some(url),
            turns_in_flight: report["turns_in_flight"].as_u64(),
            turns_waiting: report["turns_waiting"].as_u64(),
            error: None,
        },
        Ok(Err(error)) => Health::unreachable(Some(url), &error),
        Err(_) => Health::unreachable(Some(url), &anyhow::anyhow!("no answer within {:?}", args.timeout)),
    }
}

/// The server's response at `/readyz`.
async fn readiness(url: &str, certificate: Option<&Path>) -> anyhow::Result<(StatusCode, Value)> {
    let address = ServerAddress::read(url)?;
    let address = match certificate {
        Some(certificate) => address.with_certificate(certificate),
        None => address,
    };
    let (status, report) = server_client::get(&address, None, None, "/readyz").await?;
    if !report["status"].is_string() {
        bail!("the answer is not one of an Amalgam server ({status})");
    }
    Ok((status, report))
}

/// The address at which a server with this configuration is reached from this machine, and the certificate that it has.
fn configured_url(args: ConfigArgs) -> anyhow::Result<(String, Option<PathBuf>)> {
    let config = Config::load(&Sources::gather(args.into())?).context("reading the configuration")?.config;
    Ok(match (config.server.listen, config.server.tls) {
        (ListenAddress::Unix(path), _) => (format!("unix:{}", path.display()), None),
        (ListenAddress::Tcp(listen), Some(tls)) => (format!("https://{}", reached(listen)?), Some(tls.certificate)),
        (ListenAddress::Tcp(listen), None) => (format!("http://{}", reached(listen)?), None),
    })
}

fn reached(mut listen: SocketAddr) -> anyhow::Result<SocketAddr> {
    if listen.port() == 0 {
        bail!("the configured server listens on any free port; name it with --url");
    }
    if listen.ip().is_unspecified() {
        listen.set_ip(if listen.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    Ok(listen)
}

fn patience(text: &str) -> Result<Duration, String> {
    duration_from_text(text).ok_or_else(|| "a duration is a number with a unit, such as 5s or 200ms".to_owned())
}

impl Health {
    fn unreachable(url: Option<String>, error: &anyhow::Error) -> Self {
        Self {
            healthy: false,
            status: "unreachable".to_owned(),
            url,
            turns_in_flight: None,
            turns_waiting: None,
            error: Some(format!("{error:#}")),
        }
    }

    fn as_text(&self) -> String {
        let url = self.url.as_deref().unwrap_or("the configured server");
        match (&self.error, self.turns_in_flight, self.turns_waiting) {
            (Some(error), ..) => format!("{}: {url}: {error}", self.status),
            (None, Some(running), Some(waiting)) => {
                format!("{}: {url} ({running} turns running, {waiting} waiting)", self.status)
            }
            (None, ..) => format!("{}: {url}", self.status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_every_interface_is_reached_on_loopback() {
        for (listen, address) in
            [("0.0.0.0:80", "127.0.0.1:80"), ("[::]:8080", "[::1]:8080"), ("192.0.2.7:1", "192.0.2.7:1")]
        {
            assert_eq!(reached(listen.parse().unwrap()).unwrap().to_string(), address);
        }
        assert!(reached("127.0.0.1:0".parse().unwrap()).is_err());
    }
}
