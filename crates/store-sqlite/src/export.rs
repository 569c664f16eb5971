//! Reads a database in the form of another engine's tables, for `amalgam copy`.
//!
//! The target determines the tables and columns. A column with the same name is read unchanged; the differences have
//! rules here. A table or a column of either side that has neither a counterpart nor a rule is refused, so that none is
//! left out by accident.
use std::{fs::File, path::Path};

use amalgam_store::{
    migrate,
    transfer::{LinePurpose, TableDigest, TransferTable, TransferValue, push_value},
};
use rusqlite::{Connection, OptionalExtension as _, types::ValueRef};

use super::{
    Sqlite, SqliteCopyError, SqliteOpenError,
    backup::{identifier, open_source, tables},
    schema::{self, MIGRATIONS},
};

/// Columns of the target that this engine has in another form: table, column, expression.
const EXPRESSIONS: &[(&str, &str, &str)] = &[
    // A chain is named after its first response. A position is the number of the run and the offset in it.
    (
        "responses",
        "chain",
        "(SELECT head.response_id FROM items AS head WHERE head.place = responses.place >> 20 << 20)",
    ),
    ("responses", "position", "place & 1048575"),
    ("responses", "mark", "0"),
    ("items", "chain", "(SELECT head.response_id FROM items AS head WHERE head.place = items.place >> 20 << 20)"),
    ("items", "position", "place & 1048575"),
    (
        "items",
        "parent_chain",
        "(SELECT head.response_id FROM items AS head WHERE head.place = items.parent >> 20 << 20)",
    ),
    ("items", "parent_position", "parent & 1048575"),
    ("items", "gone", "forgotten > 0"),
    (
        "conversations",
        "next_position",
        "COALESCE((SELECT MAX(i.position) + 1 FROM conversation_items AS i
            WHERE i.tenant_id = conversations.tenant_id AND i.conversation_id = conversations.id), 0)",
    ),
    ("idempotency", "status", "answer_status"),
    ("idempotency", "content_type", "answer_type"),
    ("idempotency", "body", "answer_body"),
    ("courses", "words", "'''#' || tenant_id || '''' || COALESCE(' ' || found.terms, '')"),
];

/// Tables of the target that are read from a source other than the table with their name: table, source, order.
const SOURCES: &[(&str, &str, &str)] = &[
    (
        "courses",
        "courses LEFT JOIN (
            SELECT doc, group_concat('''' || term || ''':' || MIN(offset + 1, 16383) || iif(col = 'strong', 'A', ''), ' ')
                AS terms
            FROM temp.course_terms WHERE col <> 'tenant_id' GROUP BY doc
        ) AS found ON found.doc = courses.number",
        "courses.number",
    ),
    (
        "knowledge_words",
        "(SELECT c.number AS chunk, c.tenant_id, found.words FROM (
            SELECT doc, group_concat('''' || term || '''', ' ') AS words FROM temp.chunk_terms GROUP BY doc
        ) AS found JOIN knowledge_chunks AS c ON c.number = found.doc)",
        "chunk",
    ),
];

/// The terms of the full-text indexes.
const TERMS: &str = "
    CREATE VIRTUAL TABLE temp.course_terms USING fts5vocab ('main', 'course_words', 'instance');
    CREATE VIRTUAL TABLE temp.chunk_terms USING fts5vocab ('main', 'knowledge_words', 'instance');
    BEGIN";

/// Tables and columns that only this engine has: its row numbers, and what the expressions above read. `*` is a whole
/// table.
const NOT_COPIED: &[(&str, &str)] = &[
    ("migrations", "*"),
    ("redo", "*"),
    ("responses", "place"),
    ("items", "place"),
    ("items", "parent"),
    ("items", "forgotten"),
    ("idempotency", "answer_status"),
    ("idempotency", "answer_type"),
    ("idempotency", "answer_body"),
    ("transcripts", "id"),
    ("tool_runs", "id"),
    ("courses", "number"),
    ("file_contents", "number"),
];

const COLUMNS: &str = "SELECT name, pk FROM pragma_table_info(?1) ORDER BY cid";
const LAST_NUMBER: &str = "SELECT seq FROM sqlite_sequence WHERE name = ?1";
const SELECT: &str = "SELECT ";
const FROM: &str = " FROM ";
const ORDER: &str = " ORDER BY ";

/// A database that is read while no server changes it.
pub struct SqliteExport {
    connection: Connection,
    path: std::path::PathBuf,
    _locked: File,
}

impl Sqlite {
    /// Opens the database at `path` to read all of it. Its schema must be that of this binary.
    pub fn export(path: &Path) -> Result<SqliteExport, SqliteCopyError> {
        let path = path.canonicalize().map_err(SqliteCopyError::file(path))?;
        let locked = Self::lock_against_servers(&path)?;
        let connection = open_source(&path)?;
        let database = || SqliteCopyError::database(&path);
        let applied = schema::applied(&connection).map_err(database())?;
        let schema = |source| SqliteOpenError::Schema { path: path.clone(), source };
        migrate::require_all(MIGRATIONS, &applied).map_err(schema)?;
        connection.execute_batch(TERMS).map_err(database())?;
        Ok(SqliteExport { connection, path, _locked: locked })
    }
}

impl SqliteExport {
    /// The tables and columns of either side that have neither a counterpart nor a rule; empty if everything is copied.
    pub fn forgotten(&self, wanted: &[TransferTable]) -> Result<Vec<String>, SqliteCopyError> {
        let database = || SqliteCopyError::database(&self.path);
        let skipped = |table: &str, column: &str| {
            NOT_COPIED.iter().any(|(known, what)| *known == table && (*what == column || *what == "*"))
        };
        let mut forgotten = Vec::new();
        for table in tables(&self.connection).map_err(database())? {
            let Some(target) = wanted.iter().find(|target| target.name == table) else {
                if !skipped(&table, "*") {
                    forgotten.push(format!("the table {table} of SQLite"));
                }
                continue;
            };
            for (column, _) in columns(&self.connection, &table).map_err(database())? {
                if !skipped(&table, &column) && !target.columns.iter().any(|wanted| wanted.name == column) {
                    forgotten.push(format!("the column {table}.{column} of SQLite"));
                }
            }
        }
        for target in wanted {
            let has = columns(&self.connection, &target.name).map_err(database())?;
            for column in &target.columns {
                let same = has.iter().any(|(name, _)| *name == column.name);
                let is_made = SOURCES.iter().any(|(table, ..)| *table == target.name && has.len() <= 1);
                if !same && !is_made && expression(&target.name, &column.name).is_none() {
                    forgotten.push(format!("the column {}.{} of PostgreSQL", target.name, column.name));
                }
            }
        }
        Ok(forgotten)
    }

    /// Reads a table in the order of its key. Calls `visit` with each row as a line to load, with its line break. The
    /// digest is that of all rows.
    pub fn rows<E: From<SqliteCopyError>>(
        &self,
        table: &TransferTable,
        visit: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<TableDigest, E> {
        let database = |error| E::from(SqliteCopyError::database(&self.path)(error));
        let statement = self.statement(table).map_err(database)?;
        let mut statement = self.connection.prepare(&statement).map_err(database)?;
        let mut rows = statement.query([]).map_err(database)?;
        let mut digest = TableDigest::default();
        let (mut line, mut compared) = (Vec::new(), Vec::new());
        while let Some(row) = rows.next().map_err(database)? {
            line.clear();
            compared.clear();
            for (at, column) in table.columns.iter().enumerate() {
                let value = match row.get_ref(at).map_err(database)? {
                    ValueRef::Null => TransferValue::Null,
                    ValueRef::Integer(number) => TransferValue::Integer(number),
                    ValueRef::Real(number) => TransferValue::Real(number),
                    ValueRef::Text(bytes) | ValueRef::Blob(bytes) => TransferValue::Bytes(bytes),
                };
                push_value(&mut line, column.form, value, LinePurpose::Load);
                push_value(&mut compared, column.form, value, LinePurpose::Compare);
            }
            digest.add(&compared);
            line.push(b'\n');
            visit(&line)?;
        }
        Ok(digest)
    }

    /// The last number that the table's sequence has drawn; `None` for a table without one.
    pub fn last_number(&self, table: &str) -> Result<Option<i64>, SqliteCopyError> {
        let number = self.connection.query_row(LAST_NUMBER, [table], |row| row.get(0)).optional();
        number.map_err(SqliteCopyError::database(&self.path))
    }

    fn statement(&self, table: &TransferTable) -> rusqlite::Result<String> {
        let read = |column: &str| match expression(&table.name, column) {
            Some(expression) => expression.to_owned(),
            None => identifier(column),
        };
        let wanted: Vec<String> = table.columns.iter().map(|column| read(&column.name)).collect();
        let (source, order) = match SOURCES.iter().find(|(name, ..)| *name == table.name) {
            Some((_, source, order)) => ((*source).to_owned(), (*order).to_owned()),
            None => {
                let mut key = columns(&self.connection, &table.name)?;
                key.retain(|(_, place)| *place > 0);
                key.sort_by_key(|(_, place)| *place);
                let key: Vec<String> = key.iter().map(|(name, _)| identifier(name)).collect();
                (identifier(&table.name), if key.is_empty() { "rowid".to_owned() } else { key.join(", ") })
            }
        };
        Ok([SELECT, &wanted.join(", "), FROM, &source, ORDER, &order].concat())
    }
}

fn expression(table: &str, column: &str) -> Option<&'static str> {
    let rule = EXPRESSIONS.iter().find(|(of, name, _)| *of == table && *name == column);
    rule.map(|(_, _, expression)| *expression)
}

/// The columns of a table, and their positions in its key; 0 for columns outside the key.
fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<(String, i64)>> {
    connection.prepare(COLUMNS)?.query_map([table], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}
