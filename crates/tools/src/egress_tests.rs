//! Which addresses a URL is pinned to. Nothing here connects, so public addresses can be named.

use std::net::SocketAddr;

use super::*;

/// Answers every name with the same addresses.
struct Fixed(Vec<IpAddr>);

impl Resolve for Fixed {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async { Ok(self.0.clone()) })
    }
}

async fn pinned(url: &str, addresses: &[&str], allow_private: &[&str]) -> Result<Vec<SocketAddr>, EgressError> {
    let resolver = Fixed(addresses.iter().map(|address| address.parse().unwrap()).collect());
    let allow_private = allow_private.iter().map(|text| text.parse().unwrap()).collect();
    let egress = Egress::with_resolver(EgressConfig { allow_private, ..EgressConfig::default() }, Arc::new(resolver));
    Ok(egress.pin(&Target::parse(url)?).await?.addresses().to_vec())
}

fn sockets(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[tokio::test]
async fn a_public_name_is_pinned_to_the_addresses_it_resolved_to() {
    let addresses = ["93.184.216.34", "2606:4700::1111"];
    let found = pinned("https://public.example/", &addresses, &[]).await.unwrap();
    assert_eq!(found, sockets(&["93.184.216.34:443", "[2606:4700::1111]:443"]));
}

// S17
#[tokio::test]
async fn one_address_that_is_not_public_condemns_the_name_in_any_order() {
    for addresses in [["93.184.216.34", "10.0.0.1"], ["10.0.0.1", "93.184.216.34"]] {
        let error = pinned("https://mixed.example/", &addresses, &[]).await.unwrap_err();
        assert!(matches!(error, EgressError::NotPublic { address, .. } if address == IpAddr::from([10, 0, 0, 1])));
    }
}

// S17
#[tokio::test]
async fn public_addresses_are_reached_with_tls_and_on_harmless_ports_only() {
    for (url, reached) in [
        ("https://public.example/", true),
        ("https://public.example:8443/", true),
        ("https://93.184.216.34/", true),
        ("http://public.example/", false),
        ("http://public.example:8080/", false),
        ("http://93.184.216.34:8080/", false),
        ("https://public.example:22/", false),
        ("https://public.example:80/", false),
    ] {
        let result = pinned(url, &["93.184.216.34"], &[]).await;
        assert_eq!(result.is_ok(), reached, "{url}: {result:?}");
    }
}

#[tokio::test]
async fn an_exception_for_a_private_address_opens_nothing_on_a_public_one() {
    let result = pinned("http://name.example:9000/", &["10.0.0.1", "93.184.216.34"], &["10.0.0.1:9000"]).await;
    assert!(matches!(result, Err(EgressError::BadUrl(_))), "{result:?}");
}

#[tokio::test]
async fn a_name_with_many_addresses_is_tried_at_a_few() {
    let addresses: Vec<_> = (1..100).map(|last| format!("93.184.216.{last}")).collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    assert_eq!(pinned("https://many.example/", &addresses, &[]).await.unwrap().len(), 4);
    // Those beyond are checked all the same.
    let hidden = [&addresses[..], &["127.0.0.1"]].concat();
    assert!(pinned("https://many.example/", &hidden, &[]).await.is_err());
}
