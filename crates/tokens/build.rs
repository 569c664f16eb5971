//! Makes of the vocabulary in `data/` the tables from which `src/table.rs` makes all others.
//!
//! Tokens are numbered in the order of their bytes. Numbers are written with three bytes, lowest first.

use std::{collections::HashMap, env, fs, path::PathBuf};

const VOCABULARY: &str = "data/o200k_base.tokens";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={VOCABULARY}");
    let file = fs::read(VOCABULARY).expect("the vocabulary is in the crate's folder");
    let ranked = read(&file);
    let rank_of: HashMap<&[u8], u32> = (0..).zip(&ranked).map(|(rank, token)| (*token, rank)).collect();
    assert_eq!(rank_of.len(), ranked.len(), "every token is there once");

    let mut sorted = ranked.clone();
    sorted.sort_unstable();
    let number_of: HashMap<&[u8], u32> = (0..).zip(&sorted).map(|(number, token)| (*token, number)).collect();

    let rights = (0..).zip(&sorted).map(|(number, token)| match split(token, &rank_of) {
        Some(at) => number_of[&token[at..]],
        None => number,
    });

    write("bytes", sorted.concat());
    write("lengths", sorted.iter().map(|token| u8::try_from(token.len()).expect("tokens are short")).collect());
    write("ranks", numbers(sorted.iter().map(|token| rank_of[token])));
    write("rights", numbers(rights));
}

fn read(mut file: &[u8]) -> Vec<&[u8]> {
    let mut tokens = Vec::new();
    while let Some((length, rest)) = file.split_first() {
        let (token, rest) = rest.split_at(usize::from(*length));
        tokens.push(token);
        file = rest;
    }
    tokens
}

/// Where the last of the merges that make this token joins its two parts; none for a single byte.
fn split(token: &[u8], rank_of: &HashMap<&[u8], u32>) -> Option<usize> {
    let rank = |from: usize, to: usize| rank_of.get(&token[from..to]).copied().unwrap_or(u32::MAX);
    let mut ends: Vec<usize> = (0..=token.len()).collect();
    while ends.len() > 3 {
        let (_, at) = (1..ends.len() - 1).map(|at| (rank(ends[at - 1], ends[at + 1]), at)).min()?;
        ends.remove(at);
    }
    let own = rank_of[token];
    let made_of_lower = ends.windows(2).all(|part| rank(part[0], part[1]) < own);
    assert!(token.len() == 1 || made_of_lower, "no merges lead to {token:?}");
    (token.len() > 1).then(|| ends[1])
}

fn numbers(numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in numbers {
        let [low, middle, high, rest] = number.to_le_bytes();
        assert_eq!(rest, 0, "numbers have three bytes");
        bytes.extend([low, middle, high]);
    }
    bytes
}

#[expect(clippy::disallowed_methods, reason = "how cargo tells a build script where to write")]
fn write(name: &str, bytes: Vec<u8>) {
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("o200k_base");
    fs::create_dir_all(&folder).expect("cargo's folder can be written");
    fs::write(folder.join(name), bytes).expect("cargo's folder can be written");
}
