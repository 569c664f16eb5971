//! Lists the pages of `docs/`, so that `src/wires/site/pages.rs` embeds all of them.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

fn main() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let docs = docs.canonicalize().expect("the project has a folder docs");
    let mut pages = Vec::new();
    for folder in [docs.clone(), docs.join("decisions")] {
        println!("cargo::rerun-if-changed={}", folder.display());
        let files = fs::read_dir(&folder).expect("the folder can be read");
        let files = files.map(|file| file.expect("its entries can be read").path());
        pages.extend(files.filter(|file| file.extension().is_some_and(|extension| extension == "md")));
    }
    pages.sort();
    let entry = |page: &PathBuf| {
        let name = page.strip_prefix(&docs).expect("the page is in the folder").display();
        format!("({:?}, include_str!({:?})),\n", name.to_string(), page.display().to_string())
    };
    let list: String = pages.iter().map(entry).collect();
    #[expect(clippy::disallowed_methods, reason = "cargo names the folder for generated code in the environment")]
    let output = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join("pages.rs");
    fs::write(output, format!("&[\n{list}]\n")).expect("the folder of cargo can be written");
}
