//! Lists the pages of `docs/` and the files of the console, and compresses the widget, so that `src/documentation.rs`,
//! `src/console.rs` and `src/widget.rs` embed all of them.
//!
//! The lists name the files relative to the crate: a checkout may move together with its `target`.

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};

/// Relative to the crate, in which cargo runs this.
const DOCS: &str = "../../docs";

/// The committed build of the console, relative to the crate.
const CONSOLE: &str = "../../console/dist";

fn main() {
    list_pages();
    list_console();
    compress_widget();
}

fn list_pages() {
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
    write("pages.rs", format!("&[\n{list}]\n").as_bytes());
}

/// The committed build of the widget, relative to the crate.
const WIDGET: &str = "../../widget/dist/widget.js";

/// The gzip bytes of the widget; `src/widget.rs` embeds them beside the file.
fn compress_widget() {
    println!("cargo::rerun-if-changed={WIDGET}");
    let bytes = fs::read(WIDGET).expect("the widget is committed with its build");
    write("widget.js.gz", &compressed(&bytes));
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory can be written")
}

/// Path, bytes and gzip bytes of each file of the console. Without the feature `console` there are none.
fn list_console() {
    println!("cargo::rerun-if-changed={CONSOLE}");
    let mut files = Vec::new();
    if variable("CARGO_FEATURE_CONSOLE").is_some() {
        collect(Path::new(CONSOLE), "", &mut files);
    }
    files.sort();
    let entry = |(number, file): (usize, &String)| {
        let bytes = fs::read(format!("{CONSOLE}/{file}")).expect("the file was listed");
        write(&format!("console-{number}.gz"), &compressed(&bytes));
        format!(
            "(\"{file}\", include_bytes!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/{CONSOLE}/{file}\")), \
             include_bytes!(concat!(env!(\"OUT_DIR\"), \"/console-{number}.gz\"))),\n"
        )
    };
    let list: String = files.iter().enumerate().map(entry).collect();
    write("console_files.rs", format!("&[\n{list}]\n").as_bytes());
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<String>) {
    println!("cargo::rerun-if-changed={}", folder.display());
    for file in fs::read_dir(folder).expect("the console is committed with its build") {
        let file = file.expect("its entries can be read");
        let name = file.file_name();
        let name = format!("{prefix}{}", name.to_str().expect("names of files are plain"));
        match file.path().is_dir() {
            true => collect(&file.path(), &format!("{name}/"), files),
            false => files.push(name),
        }
    }
}

/// Writes a file to the folder for generated code.
fn write(name: &str, bytes: &[u8]) {
    let folder = PathBuf::from(variable("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(folder.join(name), bytes).expect("the folder of cargo can be written");
}

#[expect(clippy::disallowed_methods, reason = "cargo passes folders and features in the environment")]
fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}
