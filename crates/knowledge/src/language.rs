//! The languages of files, by file name.

/// The language of a file by its extension, or by its whole name.
pub fn language_of(path: &str) -> &'static str {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path).to_ascii_lowercase();
    let extension = name.rsplit_once('.').map(|(_, extension)| extension).unwrap_or_default();
    match extension {
        // O-06
        "cs" => "csharp",
        "ts" => "typescript",
        "tsx" => "tsx",
        "js" => "javascript",
        "json" => "json",
        "scss" | "css" => "scss",
        "xml" => "xml",
        "md" => "markdown",

        "mts" | "cts" => "typescript",
        "mjs" | "cjs" => "javascript",
        "jsx" => "jsx",
        "json5" | "jsonc" => "json",
        "less" | "sass" => "scss",
        "xsd" | "xsl" | "xslt" | "csproj" | "props" | "targets" | "xaml" | "resx" => "xml",
        "markdown" | "mdx" | "mkd" => "markdown",
        "rs" => "rust",
        "py" | "pyi" | "pyw" => "python",
        "go" => "go",
        "java" => "java",
        "kt" | "kts" => "kotlin",
        "scala" | "sc" => "scala",
        "groovy" | "gradle" => "groovy",
        "c" | "h" => "c",
        "cc" | "cpp" | "cxx" | "hh" | "hpp" | "hxx" | "ipp" => "cpp",
        "m" | "mm" => "objectivec",
        "swift" => "swift",
        "dart" => "dart",
        "fs" | "fsi" | "fsx" => "fsharp",
        "vb" => "vb",
        "rb" | "rake" => "ruby",
        "php" => "php",
        "pl" | "pm" => "perl",
        "lua" => "lua",
        "r" => "r",
        "jl" => "julia",
        "ex" | "exs" => "elixir",
        "erl" | "hrl" => "erlang",
        "hs" => "haskell",
        "ml" | "mli" => "ocaml",
        "clj" | "cljs" | "cljc" => "clojure",
        "zig" => "zig",
        "sh" | "bash" | "zsh" => "bash",
        "ps1" | "psm1" => "powershell",
        "sql" => "sql",
        "graphql" | "gql" => "graphql",
        "proto" => "protobuf",
        "html" | "htm" | "cshtml" | "razor" => "html",
        "vue" => "vue",
        "svelte" => "svelte",
        "yaml" | "yml" => "yaml",
        "toml" => "toml",
        "ini" | "cfg" | "conf" | "properties" | "editorconfig" => "ini",
        "tf" | "tfvars" | "hcl" => "hcl",
        "rst" => "rst",
        "tex" => "latex",
        "mk" => "makefile",
        "cmake" => "cmake",
        _ => match name.as_str() {
            "dockerfile" | "containerfile" => "dockerfile",
            "cmakelists.txt" => "cmake",
            "gemfile" | "rakefile" => "ruby",
            _ => "plaintext",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_is_known_by_the_end_of_a_name_or_by_all_of_it() {
        for (path, expected) in [
            ("src/lib.rs", "rust"),
            ("a/b.PY", "python"),
            (r"src\Program.cs", "csharp"),
            ("x.h", "c"),
            ("x.cpp", "cpp"),
            ("Main.java", "java"),
            ("deploy/Dockerfile", "dockerfile"),
            ("CMakeLists.txt", "cmake"),
            ("notes.txt", "plaintext"),
            ("x.rs/README", "plaintext"),
            (".rs", "rust"),
            ("", "plaintext"),
        ] {
            assert_eq!(language_of(path), expected, "{path}");
        }
    }
}
