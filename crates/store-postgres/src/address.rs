//! The address of a database: its options for TLS, and its form without the password.
//!
//! An address contains a password. Only this file reads it; nothing that this file returns can print the password.
use std::{fmt, net::IpAddr, path::PathBuf, time::Duration};

use percent_encoding::percent_decode_str;
use tokio_postgres::config::{Config, Host, SslMode, TargetSessionAttrs};

use super::PostgresOpenError;

/// A server and a database on it.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) trust: Trust,
    pub(super) roots: Option<PathBuf>,
    shown: String,
}

/// Which certificates of the server are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// Any certificate: protects against eavesdropping, not against impersonation.
    Any,
    /// A certificate of a known authority.
    Authority,
    /// A certificate of a known authority for this very host.
    Host,
}

impl Address {
    /// Reads `postgres://user:password@host:port/database?options`, as `psql` does.
    pub(super) fn parse(url: &str) -> Result<Self, PostgresOpenError> {
        if !(url.starts_with("postgres://") || url.starts_with("postgresql://")) {
            return Err(PostgresOpenError::Address("it does not begin with `postgres://`"));
        }
        let Split { rest, mode, roots } = split(url)?;
        let mut config: Config = rest.parse().map_err(|_: tokio_postgres::Error| {
            // The parser's own message repeats parts of its input, which may be parts of the password.
            PostgresOpenError::Address(
                "its form or one of its options is not known; is a character of the password not encoded?",
            )
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(PostgresOpenError::Address("it names no host"));
        }
        let (ssl, trust) = match mode.as_deref() {
            Some("disable") => (SslMode::Disable, Trust::Any),
            None | Some("allow" | "prefer") => (SslMode::Prefer, Trust::Any),
            // As in other clients: with an authority to check against, `require` checks the certificate.
            Some("require") if roots.is_some() => (SslMode::Require, Trust::Authority),
            Some("require") => (SslMode::Require, Trust::Any),
            Some("verify-ca") => (SslMode::Require, Trust::Authority),
            Some("verify-full") => (SslMode::Require, Trust::Host),
            Some(_) => return Err(PostgresOpenError::Address("its `sslmode` is not known")),
        };
        let on_socket = |host: &Host| matches!(host, Host::Unix(_));
        if ssl == SslMode::Require && config.get_hosts().iter().any(on_socket) {
            return Err(PostgresOpenError::Address("its `sslmode` asks for TLS, which a Unix socket does not have"));
        }
        config.ssl_mode(ssl);
        // A standby accepts no writes: if several hosts are named, the driver looks for the one that does.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_application_name().is_none() {
            config.application_name("amalgam");
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(Duration::from_secs(10));
        }
        let shown = show(&config);
        Ok(Self { config, trust, roots, shown })
    }

    /// Whether the connection stays on this machine.
    pub(super) fn is_local(&self) -> bool {
        let hosts = self.config.get_hosts().iter().all(|host| match host {
            Host::Unix(_) => true,
            Host::Tcp(name) => name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()),
        });
        hosts && self.config.get_hostaddrs().iter().all(IpAddr::is_loopback)
    }
}

/// Without the password.
impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.shown)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.shown)
    }
}

struct Split {
    rest: String,
    mode: Option<String>,
    roots: Option<PathBuf>,
}

/// Removes the options that the driver does not support.
fn split(url: &str) -> Result<Split, PostgresOpenError> {
    // The password may contain a question mark; the driver reads everything before the first `@` as part of the
    // password.
    let behind = url.find('@').unwrap_or_default();
    let Some((base, query)) = url.split_at_checked(behind).and_then(|(credentials, rest)| {
        let (base, query) = rest.split_once('?')?;
        Some(([credentials, base].concat(), query))
    }) else {
        return Ok(Split { rest: url.to_owned(), mode: None, roots: None });
    };
    let (mut mode, mut roots, mut others) = (None, None, Vec::new());
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value.to_owned()),
            Some(("sslrootcert", "system")) => {}
            Some(("sslrootcert", value)) => roots = Some(PathBuf::from(decoded(value)?)),
            Some(("sslcert" | "sslkey" | "sslpassword", _)) => {
                return Err(PostgresOpenError::Address("it asks for a client's certificate, which is not supported"));
            }
            _ => others.push(pair),
        }
    }
    let rest = match others.is_empty() {
        true => base,
        false => [&base, "?", &others.join("&")].concat(),
    };
    Ok(Split { rest, mode, roots })
}

/// Decodes a path of an address: `%2F` is a slash. A percent sign that begins no escape is refused.
fn decoded(value: &str) -> Result<String, PostgresOpenError> {
    let wrong = || PostgresOpenError::Address("its `sslrootcert` is not encoded as it should be");
    let decoded = percent_decode_str(value).decode_utf8().map_err(|_| wrong())?;
    let escapes = value.len() - value.replace('%', "").len();
    match decoded.len() + 2 * escapes == value.len() {
        true => Ok(decoded.into_owned()),
        false => Err(wrong()),
    }
}

/// `postgres://user@host:port/database`, with every host.
fn show(config: &Config) -> String {
    let hosts: Vec<String> = match config.get_hosts() {
        [] => config.get_hostaddrs().iter().map(IpAddr::to_string).collect(),
        hosts => hosts
            .iter()
            .map(|host| match host {
                Host::Tcp(name) => name.clone(),
                Host::Unix(path) => path.display().to_string(),
            })
            .collect(),
    };
    let ports: Vec<u16> = config.get_ports().to_vec();
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
    let hosts: Vec<String> =
        hosts.iter().enumerate().map(|(at, host)| [host, ":", &port(at).to_string()].concat()).collect();
    let user = config.get_user().map(|user| [user, "@"].concat()).unwrap_or_default();
    ["postgres://", &user, &hosts.join(","), "/", config.get_dbname().unwrap_or_default()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Address {
        Address::parse(url).unwrap()
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        // P12
        for url in [
            "postgres://ann:s3cret@db.example:5433/amalgam?sslmode=verify-full",
            "postgresql://ann@db.example:5433/amalgam?password=s3cret",
        ] {
            let address = parsed(url);
            assert_eq!(format!("{address} {address:?}"), ["postgres://ann@db.example:5433/amalgam"; 2].join(" "));
        }
        assert_eq!(parsed("postgres://ann:s3cret@%2Ftmp%2Fpg/x").to_string(), "postgres://ann@/tmp/pg:5432/x");
        let odd = parsed("postgres://ann:s3?sslmode=cret@db/x?sslmode=disable");
        assert_eq!(
            (odd.config.get_password(), odd.to_string().as_str()),
            (Some(&b"s3?sslmode=cret"[..]), "postgres://ann@db:5432/x")
        );
    }

    #[test]
    fn an_address_that_cannot_be_read_is_refused_without_repeating_it() {
        // P12
        for url in [
            "mysql://ann:s3cret@db/amalgam",
            "postgres://ann:s3cret@db/amalgam?s3cret=1",
            "postgres://ann:s3cret@db:port/amalgam",
            "postgres://ann:s3cret@db/amalgam?sslmode=s3cret",
            "postgres://ann:s3cret@db/amalgam?sslkey=s3cret",
            "postgres://ann:s3cret@db/amalgam?sslrootcert=%s3cret",
            "postgres:///amalgam?password=s3cret",
        ] {
            let error = Address::parse(url).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(!text.contains("s3cret") && text.contains("address"), "{text}");
        }
    }

    #[test]
    fn tls_is_asked_for_as_the_address_says_and_never_less() {
        let plain = parsed("postgres://db/x?sslmode=disable");
        assert_eq!((plain.config.get_ssl_mode(), plain.trust), (SslMode::Disable, Trust::Any));
        for (mode, trust) in [("require", Trust::Any), ("verify-ca", Trust::Authority), ("verify-full", Trust::Host)] {
            let address = parsed(&["postgres://db/x?connect_timeout=3&sslmode=", mode].concat());
            assert_eq!((address.config.get_ssl_mode(), address.trust), (SslMode::Require, trust));
        }
        let address = parsed("postgres://db/x?sslmode=require&sslrootcert=%2Fetc%2Fca.pem");
        assert_eq!((address.trust, address.roots), (Trust::Authority, Some(PathBuf::from("/etc/ca.pem"))));
        let error = Address::parse("postgres://%2Ftmp/x?sslmode=require").unwrap_err();
        assert!(error.to_string().contains("Unix socket"), "{error}");
    }

    #[test]
    fn only_loopback_and_sockets_are_local() {
        for local in ["postgres://localhost/x", "postgres://127.0.0.1/x", "postgres://[::1]/x", "postgres://%2Ftmp/x"] {
            assert!(parsed(local).is_local(), "{local}");
        }
        for remote in ["postgres://db/x", "postgres://10.0.0.1/x", "postgres://localhost,db/x"] {
            assert!(!parsed(remote).is_local(), "{remote}");
        }
    }
}
