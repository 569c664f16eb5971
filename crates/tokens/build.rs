//! Makes of the vocabulary in `data/` the tables that `src/table.rs` searches in place.
//!
//! Tokens are numbered in the order of their bytes. Numbers are written with three bytes, lowest first.

use std::{collections::HashMap, env, fs, path::PathBuf};

const VOCABULARY: &str = "data/o200k_base.tokens";

/// Slots of the table of pairs, a power of two. Two and a half for each token keep the chains short.
const SLOTS: usize = 1 << 19;

/// Stands for "no token".
const NONE: u32 = 0xff_ffff;

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

    let splits: Vec<Option<usize>> = sorted.iter().map(|token| split(token, &rank_of)).collect();
    let part = |token: &[u8]| number_of[token];
    let parts: Vec<(u32, u32)> = (0..)
        .zip(sorted.iter().zip(&splits))
        .map(|(number, (token, split))| match split {
            Some(at) => (part(&token[..*at]), part(&token[*at..])),
            None => (number, number),
        })
        .collect();

    write("bytes", sorted.concat());
    write("starts", numbers(starts(&sorted)));
    write("ranks", numbers(sorted.iter().map(|token| rank_of[token])));
    write("prefixes", numbers(prefixes(&sorted)));
    write("parts", numbers(parts.iter().flat_map(|(left, right)| [*left, *right])));
    write("pairs", numbers(pairs(&parts)));
    write("beginnings", numbers(beginnings(&sorted)));
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

/// Where each token begins among the bytes of all, and where the last one ends.
fn starts(sorted: &[&[u8]]) -> Vec<u32> {
    let mut starts = vec![0];
    let mut end = 0;
    for token in sorted {
        end += token.len() as u32;
        starts.push(end);
    }
    starts
}

/// The longest other token with which each token begins.
fn prefixes(sorted: &[&[u8]]) -> Vec<u32> {
    let mut open: Vec<u32> = Vec::new();
    let mut prefixes = Vec::new();
    for (number, token) in (0..).zip(sorted) {
        while open.last().is_some_and(|last| !token.starts_with(sorted[*last as usize])) {
            open.pop();
        }
        prefixes.push(open.last().copied().unwrap_or(NONE));
        open.push(number);
    }
    prefixes
}

/// A hash table with open addressing: the token that is made of two, at the hash of their numbers.
fn pairs(parts: &[(u32, u32)]) -> Vec<u32> {
    let mut slots = vec![NONE; SLOTS];
    for (number, (left, right)) in (0..).zip(parts) {
        if *left == number {
            continue;
        }
        let mut slot = pair_slot(*left, *right);
        while slots[slot] != NONE {
            slot = (slot + 1) % SLOTS;
        }
        slots[slot] = number;
    }
    slots
}

/// The same function as in `src/table.rs`.
fn pair_slot(left: u32, right: u32) -> usize {
    let hash = (u64::from(left) << 32 | u64::from(right)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 45) as usize % SLOTS
}

/// For every two bytes the number of the first token that does not come before them, and one more for the end.
fn beginnings(sorted: &[&[u8]]) -> Vec<u32> {
    let mut beginnings: Vec<u32> = (0..=u16::MAX)
        .map(|two| sorted.partition_point(|token| *token < two.to_be_bytes().as_slice()) as u32)
        .collect();
    beginnings.push(sorted.len() as u32);
    beginnings
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
