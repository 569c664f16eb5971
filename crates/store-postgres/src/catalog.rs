//! The tables of this program in a database: their columns, and the order in which rows can be written.
//!
//! The migrations determine which tables belong to this program. Their columns are read from the database.
use std::collections::{BTreeMap, BTreeSet};

use amalgam_store::migrate::Migration;
use tokio_postgres::GenericClient;

use super::{PostgresOpenError, schema::failed};

/// Columns in their order, without those that PostgreSQL computes.
const COLUMNS: &str = "
    SELECT c.relname::text, a.attname::text, format_type(a.atttypid, NULL)
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
        AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
    ORDER BY c.relname, a.attnum";
/// References between tables: rows of the referenced table must be written first.
const REFERENCES: &str = "
    SELECT c.conrelid::regclass::text, c.confrelid::regclass::text FROM pg_constraint c
    WHERE c.contype = 'f' AND c.connamespace = current_schema()::regnamespace";
/// Columns with a sequence of their own, which supplies their values.
const SEQUENCES: &str = "
    SELECT t.relname::text, a.attname::text, format('%I.%I', n.nspname, s.relname)
    FROM pg_depend d
    JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
    JOIN pg_namespace n ON n.oid = s.relnamespace
    JOIN pg_class t ON t.oid = d.refobjid
    JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid
    WHERE d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
        AND t.relnamespace = current_schema()::regnamespace
    ORDER BY t.relname, a.attname";

/// A table as copies see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableColumns {
    pub(super) table: String,
    /// The columns with their types, as PostgreSQL writes them.
    pub(super) columns: Vec<(String, String)>,
}

/// A column with a sequence of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnedSequence {
    pub(super) table: String,
    pub(super) column: String,
    /// Quoted, with its schema.
    pub(super) name: String,
}

/// The tables of this program in the database, each after those that it refers to.
pub(super) async fn tables(
    client: &impl GenericClient,
    migrations: &[Migration],
) -> Result<Vec<TableColumns>, PostgresOpenError> {
    let ours = created_tables(migrations);
    let mut found: BTreeMap<String, TableColumns> = BTreeMap::new();
    for row in client.query(COLUMNS, &[]).await.map_err(failed)? {
        let table: String = row.try_get(0).map_err(failed)?;
        let column = (row.try_get(1).map_err(failed)?, row.try_get(2).map_err(failed)?);
        if ours.contains(&table) {
            let entry = found.entry(table.clone()).or_insert(TableColumns { table, columns: Vec::new() });
            entry.columns.push(column);
        }
    }
    let mut references = Vec::new();
    for row in client.query(REFERENCES, &[]).await.map_err(failed)? {
        references.push((row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?));
    }
    Ok(in_order(found, &references))
}

/// The sequences of these tables.
pub(super) async fn sequences(
    client: &impl GenericClient,
    tables: &[TableColumns],
) -> Result<Vec<OwnedSequence>, PostgresOpenError> {
    let mut found = Vec::new();
    for row in client.query(SEQUENCES, &[]).await.map_err(failed)? {
        let table: String = row.try_get(0).map_err(failed)?;
        if tables.iter().any(|known| known.table == table) {
            let (column, name) = (row.try_get(1).map_err(failed)?, row.try_get(2).map_err(failed)?);
            found.push(OwnedSequence { table, column, name });
        }
    }
    Ok(found)
}

/// Sorts tables so that each comes after those that it refers to.
fn in_order(mut found: BTreeMap<String, TableColumns>, references: &[(String, String)]) -> Vec<TableColumns> {
    let mut ordered: Vec<TableColumns> = Vec::with_capacity(found.len());
    while !found.is_empty() {
        let waits = |table: &String| {
            references.iter().any(|(from, to)| from == table && to != table && found.contains_key(to.as_str()))
        };
        // Circular references have no order; PostgreSQL then reports an error.
        let next = found.keys().find(|table| !waits(table)).or(found.keys().next()).cloned();
        ordered.extend(next.and_then(|table| found.remove(&table)));
    }
    ordered
}

/// The tables that exist after these migrations.
fn created_tables(migrations: &[Migration]) -> BTreeSet<String> {
    let mut tables = BTreeSet::new();
    for migration in migrations {
        for line in migration.sql.lines() {
            let statement = line.split("--").next().unwrap_or_default();
            let words: Vec<&str> = statement.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
            let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
            match words.as_slice() {
                ["CREATE", "TABLE", "IF", "NOT", "EXISTS", table, ..] | ["CREATE", "TABLE", table, ..] => {
                    tables.insert((*table).to_owned());
                }
                ["ALTER", "TABLE", table, "RENAME", "TO", new, ..] => {
                    tables.remove(*table);
                    tables.insert((*new).to_owned());
                }
                ["DROP", "TABLE", "IF", "EXISTS", table, ..] | ["DROP", "TABLE", table, ..] => {
                    tables.remove(*table);
                }
                _ => {}
            }
        }
    }
    tables
}

/// Quotes a name of the schema for a statement.
pub(super) fn identifier(name: &str) -> String {
    ["\"", &name.replace('"', "\"\""), "\""].concat()
}

/// Quoted names, separated by commas.
pub(super) fn identifiers<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(identifier).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::MIGRATIONS;

    #[test]
    fn the_migrations_say_which_tables_are_ours() {
        let sql = "CREATE TABLE a (\n    b text);\n-- CREATE TABLE no (x)\nCREATE TABLE IF NOT EXISTS c (d text);
CREATE INDEX e ON c (d);\nALTER TABLE a RENAME TO f;\nDROP TABLE c;\nCREATE TABLE g (h text);\nALTER TABLE g RENAME COLUMN h TO i;";
        let tables = created_tables(&[Migration::embedded("V001__a", sql)]);
        assert_eq!(tables.into_iter().collect::<Vec<_>>(), ["f", "g"]);
        assert!(created_tables(MIGRATIONS).len() > 25);
    }

    #[test]
    fn a_table_comes_after_those_that_it_refers_to() {
        let table = |name: &str| (name.to_owned(), TableColumns { table: name.to_owned(), columns: Vec::new() });
        let found = BTreeMap::from(["api_keys", "files", "tenants"].map(table));
        let ordered = in_order(found, &[("api_keys".to_owned(), "tenants".to_owned())]);
        let names: Vec<&str> = ordered.iter().map(|one| one.table.as_str()).collect();
        assert_eq!(names, ["files", "tenants", "api_keys"]);
    }
}
