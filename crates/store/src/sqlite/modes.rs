//! Modes that tenants have defined.

use amalgam_core::{
    Scope,
    store::{Mode, ModeStore, Stored, Within},
};

use super::Sqlite;

impl ModeStore for Sqlite {
    fn modes<'a>(&'a self, _scope: &'a Scope) -> Stored<'a, Vec<Mode>> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn modes_within<'a>(&'a self, _within: Within<'a>) -> Stored<'a, Vec<Mode>> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn put_mode<'a>(&'a self, _within: Within<'a>, _mode: Mode) -> Stored<'a, bool> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }

    fn delete_mode<'a>(&'a self, _scope: Within<'a>, _x: &'a str) -> Stored<'a, bool> {
        Box::pin(async { Err(amalgam_core::StoreError::Broken("not built yet".to_owned())) })
    }
}
