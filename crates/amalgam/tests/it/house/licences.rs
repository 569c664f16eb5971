//! Every package of the dependency tree has a licence that `deny.toml` allows.

use std::collections::BTreeSet;

use toml::Value;

use super::{list, metadata, table};

#[test]
fn every_dependency_has_a_licence_that_is_allowed() {
    let deny = table("deny.toml");
    let allowed: BTreeSet<&str> = list(&deny["licenses"], "allow").filter_map(Value::as_str).collect();
    assert!(allowed.len() > 3, "deny.toml lists what is allowed");
    let metadata = metadata(&[]);
    let packages = metadata["packages"].as_array().expect("cargo lists packages");
    assert!(packages.len() > 100, "the whole tree is listed");
    let refused: Vec<String> = packages
        .iter()
        .map(|package| (&package["name"], package["license"].as_str().unwrap_or("none")))
        .filter(|(_, licence)| !is_allowed(licence, &allowed))
        .map(|(name, licence)| format!("{name}: {licence}"))
        .collect();
    assert_eq!(refused, [""; 0]);
}

#[test]
fn a_licence_expression_is_allowed_if_its_parts_are() {
    let allowed = BTreeSet::from(["MIT", "ISC", "Unicode-3.0"]);
    for good in ["MIT", "MIT/GPL-3.0", "GPL-3.0 OR MIT", "MIT AND ISC", "(MIT OR GPL-3.0) AND Unicode-3.0"] {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for wrong in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", "GPL-3.0 WITH MIT", "none"] {
        assert!(!is_allowed(wrong, &allowed), "{wrong}");
    }
}

/// Whether an SPDX expression allows a choice of licences from the list. Old manifests write `/` for `OR`.
fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let expression = expression.replace('/', " OR ");
    all_of(&expression, " AND ").iter().all(|part| {
        let part = part.trim();
        match part.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
            Some(inner) => is_allowed(inner, allowed),
            None => all_of(part, " OR ").iter().any(|one| match *one == part {
                true => allowed.contains(one.trim()),
                false => is_allowed(one, allowed),
            }),
        }
    })
}

/// The parts of an expression between operators outside of parentheses.
fn all_of<'a>(expression: &'a str, operator: &str) -> Vec<&'a str> {
    let (mut parts, mut from) = (Vec::new(), 0);
    for (at, _) in expression.match_indices(operator) {
        let before = &expression.as_bytes()[..at];
        let open = before.iter().filter(|byte| **byte == b'(').count();
        if open == before.iter().filter(|byte| **byte == b')').count() {
            parts.push(expression.get(from..at).unwrap_or_default());
            from = at + operator.len();
        }
    }
    parts.push(expression.get(from..).unwrap_or_default());
    parts
}
