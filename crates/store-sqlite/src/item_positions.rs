//! Where the items of responses are: each response has a position, which is the number of its row.
//!
//! A position is a run and an offset in it, in one number: a child takes the position after its parent's. A second
//! child, or a child of the last position of a run, is a fork: it begins a run of its own, after all others, that
//! refers to its parent's position.
use amalgam_core::{Scope, store::ChainPosition};
use amalgam_store::statements;

use super::{
    failure::SqliteFailure,
    query::{Database, int},
};

statements! {
    UserSql PARENT = "
        SELECT 1 FROM items
        WHERE tenant_id = ?1 AND user_id = ?2 AND place = ?3 AND response_id = ?4 AND forgotten = 0";
    UserSql TAKE_NEXT = "
        INSERT INTO items (tenant_id, user_id, place, response_id, input, output) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (place) DO NOTHING";
    UserSql BEGIN_RUN = "
        INSERT INTO items (tenant_id, user_id, place, response_id, input, output, parent)
        VALUES (?1, ?2, (COALESCE((SELECT MAX(place) FROM items) >> 20, 0) + 1) << 20, ?3, ?4, ?5, ?6)";
    UserSql GIVE_UP_PLACE = "DELETE FROM items WHERE tenant_id = ?1 AND user_id = ?2 AND place = ?3";
    UserSql IS_BUILT_ON = "
        SELECT 1 FROM items
        WHERE tenant_id = ?1 AND user_id = ?2 AND place = ?3 + 1 AND forgotten < 2
        UNION ALL
        SELECT 1 FROM items WHERE tenant_id = ?1 AND user_id = ?2 AND parent = ?3";
    UserSql RESPONSE_AT = "SELECT response_id FROM items WHERE tenant_id = ?1 AND user_id = ?2 AND place = ?3";
    UserSql MARK_FORGOTTEN = "
        UPDATE items SET forgotten = 1 WHERE tenant_id = ?1 AND user_id = ?2 AND place = ?3";
    /// The position stays taken: a request that is about to continue it must not find another response there.
    UserSql EMPTY_PLACE = "
        UPDATE items SET forgotten = 2, input = '[]', output = NULL
        WHERE tenant_id = ?1 AND user_id = ?2 AND place = ?3";
    UserSql REMOVE_RUN = "
        DELETE FROM items WHERE tenant_id = ?1 AND user_id = ?2 AND place BETWEEN ?3 AND ?4
        RETURNING parent";
    UserSql IS_FORGOTTEN = "
        SELECT 1 FROM items
        WHERE tenant_id = ?1 AND user_id = ?2 AND place = ?3 AND forgotten = 1";
}

/// The number of positions in a run. The statements in `sql.rs` shift by the same number of bits.
const POSITIONS: i64 = 1 << 20;

/// The number of a row of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ItemPosition(pub(super) i64);

impl ItemPosition {
    /// The next position of the same run.
    fn next(self) -> Option<Self> {
        (self.0 % POSITIONS < POSITIONS - 1).then_some(Self(self.0 + 1))
    }

    /// The previous position of the same run.
    pub(super) fn previous(self) -> Option<Self> {
        (self.0 % POSITIONS > 0).then_some(Self(self.0 - 1))
    }

    /// The position for the rest of the program. It includes the response there, since the number of a deleted run is
    /// used again.
    pub(super) fn in_chain(self, response_id: &str) -> Result<ChainPosition, SqliteFailure> {
        let position =
            self.0.try_into().map_err(|_| SqliteFailure::Broken(format!("{} is no position of items", self.0)))?;
        Ok(ChainPosition { chain: response_id.to_owned(), position })
    }
}

/// Stores the items of the response `id` after `parent`'s, or in a new run; `None` if the parent does not exist.
pub(super) fn take(
    database: Database<'_>,
    scope: &Scope,
    id: &str,
    parent: Option<&ChainPosition>,
    input: &str,
    output: Option<&str>,
) -> Result<Option<ItemPosition>, SqliteFailure> {
    let parent = match parent {
        None => None,
        Some(ChainPosition { chain, position }) => {
            let place = ItemPosition(int(*position)?);
            if !database.user(scope, PARENT, &[&place.0, chain])?.exists()? {
                return Ok(None);
            }
            if let Some(next) = place.next()
                && database.user(scope, TAKE_NEXT, &[&next.0, &id, &input, &output])?.run()? == 1
            {
                return Ok(Some(next));
            }
            Some(place.0)
        }
    };
    database.user(scope, BEGIN_RUN, &[&id, &input, &output, &parent])?.run()?;
    Ok(Some(ItemPosition(database.last_number())))
}

/// Gives up a position that was not acknowledged.
pub(super) fn give_up(database: Database<'_>, scope: &Scope, place: ItemPosition) -> Result<(), SqliteFailure> {
    database.user(scope, GIVE_UP_PLACE, &[&place.0])?.run()?;
    Ok(())
}

/// Deletes the items of a deleted response once no other response continues it, and with them those of deleted
/// responses that only this one continued. Returns the ids of the responses whose items were deleted.
pub(super) fn forget(database: Database<'_>, scope: &Scope, place: ItemPosition) -> Result<Vec<String>, SqliteFailure> {
    database.user(scope, MARK_FORGOTTEN, &[&place.0])?.run()?;
    let mut gone = Vec::new();
    let mut next = Some(place);
    while let Some(place) = next {
        let needed = !database.user(scope, IS_FORGOTTEN, &[&place.0])?.exists()?
            || database.user(scope, IS_BUILT_ON, &[&place.0])?.exists()?;
        if needed {
            break;
        }
        gone.extend(database.user(scope, RESPONSE_AT, &[&place.0])?.first(|row| Ok(row.get(0)?))?);
        next = match place.previous() {
            // No item of this run is needed any more.
            None => remove_run(database, scope, place)?,
            previous => {
                database.user(scope, EMPTY_PLACE, &[&place.0])?.run()?;
                previous
            }
        };
    }
    Ok(gone)
}

/// Deletes the run that begins at `first`. Returns the position that it forked from.
fn remove_run(
    database: Database<'_>,
    scope: &Scope,
    first: ItemPosition,
) -> Result<Option<ItemPosition>, SqliteFailure> {
    let last = first.0 + POSITIONS - 1;
    let parents = database.user(scope, REMOVE_RUN, &[&first.0, &last])?.all(|row| Ok(row.get::<_, Option<i64>>(0)?))?;
    Ok(parents.into_iter().flatten().next().map(ItemPosition))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_where_the_next_one_begins() {
        let (first, last) = (ItemPosition(7 * POSITIONS), ItemPosition(8 * POSITIONS - 1));
        assert_eq!((first.previous(), first.next()), (None, Some(ItemPosition(7 * POSITIONS + 1))));
        assert_eq!((last.previous(), last.next()), (Some(ItemPosition(8 * POSITIONS - 2)), None));
    }
}
