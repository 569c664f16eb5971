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
    // Addresses beyond the limit are checked as well.
    let hidden = [&addresses[..], &["127.0.0.1"]].concat();
    assert!(pinned("https://many.example/", &hidden, &[]).await.is_err());
}

/// A resolver that resolves no name.
struct Nothing;

impl Resolve for Nothing {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async { Err(io::ErrorKind::NotFound.into()) })
    }
}

async fn may_be_handed_on(resolver: Arc<dyn Resolve>, url: &str) -> bool {
    let allow_private = vec!["10.0.0.7:9000".parse().unwrap(), "wiki.internal".parse().unwrap()];
    let egress = Egress::with_resolver(EgressConfig { allow_private, ..EgressConfig::default() }, resolver);
    egress.check(url).await.is_ok()
}

// right E5
#[tokio::test]
async fn another_server_is_sent_to_public_addresses_and_allowed_private_ones() {
    for (url, address, expected) in [
        ("https://public.example/a.png", "93.184.216.34", true),
        ("http://public.example/a.png", "93.184.216.34", true),
        ("https://leads-home.example/a.png", "10.0.0.1", false),
        ("http://leads-home.example:9000/a.png", "10.0.0.7", true),
        ("http://leads-home.example:9001/a.png", "10.0.0.7", false),
        ("https://wiki.internal/a.png", "10.0.0.1", true),
        ("https://other.internal/a.png", "10.0.0.1", false),
        ("https://user:secret@public.example/", "93.184.216.34", false),
        ("ftp://public.example/a.png", "93.184.216.34", false),
    ] {
        let resolver = Arc::new(Fixed(vec![address.parse().unwrap()]));
        assert_eq!(may_be_handed_on(resolver, url).await, expected, "{url}");
    }
}

// right E5
#[tokio::test]
async fn a_name_that_cannot_be_resolved_is_handed_on_unless_it_is_of_a_private_network() {
    for (url, expected) in [
        ("https://images.example.com/a.png", true),
        ("https://wiki/a.png", false),
        ("https://db.internal/a.png", false),
        ("https://printer.local/a.png", false),
        ("https://router.home.arpa./a.png", false),
        ("https://localhost/a.png", false),
        ("https://wiki.internal/a.png", true),
        ("https://notlocal/a.png", false),
        ("https://my-internal.example/a.png", true),
    ] {
        assert_eq!(may_be_handed_on(Arc::new(Nothing), url).await, expected, "{url}");
    }
}
