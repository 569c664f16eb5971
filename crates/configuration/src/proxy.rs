//! The proxies for upstreams: `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`, in upper or lower case.

use amalgam_models::{Proxies, Proxy};

use super::fault::ValueOrigin;
use super::reader::{DisplayedValue, Reader, Setting};
use super::sources::Environment;

/// Reads the variables. The upper-case name wins; an empty variable counts as unset.
pub(crate) fn read(environment: &Environment, reader: &mut Reader<'_>) -> Proxies {
    let http = address("HTTP_PROXY", environment, reader);
    let https = address("HTTPS_PROXY", environment, reader);
    let direct = match variable("NO_PROXY", environment, reader) {
        Some((origin, hosts)) => {
            show("no_proxy", hosts, origin, reader);
            hosts
        }
        None => "",
    };
    Proxies::new(http, https, direct)
}

/// The URL in a variable, if it is a valid proxy.
fn address<'a>(name: &str, environment: &'a Environment, reader: &mut Reader<'_>) -> &'a str {
    let Some((origin, text)) = variable(name, environment, reader) else { return "" };
    match Proxy::read(text) {
        Ok(proxy) => {
            show(&name.to_ascii_lowercase(), &proxy.to_string(), origin, reader);
            text
        }
        Err(problem) => {
            reader.fault(origin, problem);
            ""
        }
    }
}

fn variable<'a>(name: &str, environment: &'a Environment, reader: &mut Reader<'_>) -> Option<(ValueOrigin, &'a str)> {
    for name in [name.to_owned(), name.to_ascii_lowercase()] {
        match environment.get(&name) {
            Ok(Some(text)) if !text.is_empty() => return Some((ValueOrigin::Variable(name), text)),
            Ok(_) => {}
            Err(_) => reader.fault(ValueOrigin::Variable(name), "the value is not readable text"),
        }
    }
    None
}

fn show(key: &str, value: &str, origin: ValueOrigin, reader: &mut Reader<'_>) {
    reader.settings.push(Setting {
        key: key.to_owned(),
        value: DisplayedValue::Value(value.into()),
        origin,
        section: None,
        entry: None,
        fingerprint: 0,
    });
}

#[cfg(test)]
mod tests {
    use crate::{Config, ConfigFaults, LoadedConfig, Sources};

    fn load(variables: &[(&str, &str)]) -> Result<LoadedConfig, ConfigFaults> {
        Config::load(&Sources { env: variables.iter().copied().collect(), ..Sources::default() })
    }

    fn proxy(loaded: &LoadedConfig, base_url: &str) -> Option<String> {
        loaded.config.proxies.for_upstream(base_url).map(|proxy| proxy.to_string())
    }

    #[test]
    fn variables_name_proxies_in_capitals_or_in_small_letters_and_capitals_win() {
        let loaded = load(&[
            ("HTTPS_PROXY", "http://user:secret@capital:1"),
            ("https_proxy", "http://small:2"),
            ("HTTP_PROXY", ""),
            ("http_proxy", "small:3"),
            ("no_proxy", "localhost"),
        ])
        .unwrap();
        assert_eq!(proxy(&loaded, "https://host/v1").as_deref(), Some("http://capital:1"));
        assert_eq!(proxy(&loaded, "http://host/v1").as_deref(), Some("http://small:3"));
        assert_eq!(proxy(&loaded, "https://localhost/v1"), None);
        let shown = format!("{:?} {:?}", loaded.settings, loaded.config);
        assert!(shown.contains("http://capital:1") && !shown.contains("secret@"), "{shown}");
    }

    #[test]
    fn a_variable_that_names_no_http_proxy_is_a_fault() {
        for value in ["socks5://proxy:1080", "https://proxy:3129", "http://"] {
            let faults = load(&[("https_proxy", value)]).unwrap_err();
            assert!(faults.iter().any(|fault| fault.to_string().contains("https_proxy")), "{value}");
        }
    }
}
