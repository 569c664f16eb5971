//! Lists the pages of `docs/`, so that `src/wires/site/pages.rs` embeds all of them.
//!
//! The list names the pages relative to the crate: a checkout may move together with its `target`.

use std::{env, fs, path::PathBuf};

/// Relative to the crate, in which cargo runs this.
const DOCS: &str = "../../docs";

fn main() {
    let mut pages = Vec::new();
    for folder in ["", "decisions/"] {
        let path = format!("{DOCS}/{folder}");
        println!("cargo::rerun-if-changed={path}");
        for file in fs::read_dir(path).expect("the project has a folder docs") {
            let name = file.expect("its entries can be read").file_name();
            let name = name.to_str().expect("names of pages are plain");
            if name.ends_with(".md") {
                pages.push(format!("{folder}{name}"));
            }
        }
    }
    pages.sort();
    let entry = |page: &String| {
        format!("(\"{page}\", include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/{DOCS}/{page}\"))),\n")
    };
    let list: String = pages.iter().map(entry).collect();
    #[expect(clippy::disallowed_methods, reason = "cargo names the folder for generated code in the environment")]
    let output = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join("pages.rs");
    fs::write(output, format!("&[\n{list}]\n")).expect("the folder of cargo can be written");
}
