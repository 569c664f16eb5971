//! Failures of SQLite: whether they concern one job, the connection, or the caller.
use amalgam_core::StoreError;
use rusqlite::{Error, ErrorCode};

/// Why a piece of work did not succeed.
#[derive(Debug)]
pub enum SqliteFailure {
    /// An error of SQLite.
    Sqlite(Error),
    /// A stored value, or a value to be stored, is invalid.
    Broken(String),
    /// An error of the shared code.
    Shared(StoreError),
    /// The store refuses the work because of its load.
    QueueError(&'static str),
}

impl SqliteFailure {
    /// Whether the cause may be a single job, so that the other jobs of its group are tried again. A full disk counts:
    /// a smaller job may still fit.
    pub(super) fn may_be_one_jobs(&self) -> bool {
        match self {
            Self::Sqlite(error) => match error.sqlite_error_code() {
                Some(code) => matches!(
                    code,
                    ErrorCode::ConstraintViolation
                        | ErrorCode::TooBig
                        | ErrorCode::TypeMismatch
                        | ErrorCode::DiskFull
                        | ErrorCode::OutOfMemory
                ),
                None => true,
            },
            Self::Broken(_) | Self::Shared(_) => true,
            Self::QueueError(_) => false,
        }
    }

    /// Whether the connection must not be used again: files may have been moved, or its cached state of them is wrong.
    pub(super) fn spoils_the_connection(&self) -> bool {
        matches!(
            self,
            Self::Sqlite(error) if matches!(
                error.sqlite_error_code(),
                Some(
                    ErrorCode::SystemIoFailure
                        | ErrorCode::CannotOpen
                        | ErrorCode::ReadOnly
                        | ErrorCode::DatabaseCorrupt
                        | ErrorCode::NotADatabase
                        | ErrorCode::FileLockingProtocolFailed
                        | ErrorCode::InternalMalfunction
                        | ErrorCode::ApiMisuse
                )
            )
        )
    }

    /// The error for the caller. SQLite's messages name tables and files, never values.
    pub(super) fn to_error(&self) -> StoreError {
        match self {
            Self::Sqlite(error) => match error.sqlite_error_code() {
                Some(
                    ErrorCode::ConstraintViolation
                    | ErrorCode::TooBig
                    | ErrorCode::TypeMismatch
                    | ErrorCode::DatabaseCorrupt
                    | ErrorCode::NotADatabase
                    | ErrorCode::ApiMisuse
                    | ErrorCode::ParameterOutOfRange
                    | ErrorCode::Unknown,
                )
                | None => StoreError::Broken(error.to_string()),
                Some(_) => StoreError::Unavailable(error.to_string()),
            },
            Self::Broken(what) => StoreError::Broken(what.clone()),
            Self::Shared(error) => error.clone(),
            Self::QueueError(why) => StoreError::Unavailable((*why).to_owned()),
        }
    }
}

impl From<Error> for SqliteFailure {
    fn from(error: Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for SqliteFailure {
    fn from(error: StoreError) -> Self {
        Self::Shared(error)
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn a_full_disk_and_a_lock_pass_while_a_broken_rule_does_not() {
        let error = |code| SqliteFailure::from(Error::SqliteFailure(ffi::Error::new(code), None)).to_error();
        for passing in
            [ffi::SQLITE_FULL, ffi::SQLITE_BUSY, ffi::SQLITE_IOERR, ffi::SQLITE_CANTOPEN, ffi::SQLITE_READONLY]
        {
            assert!(matches!(error(passing), StoreError::Unavailable(_)), "{passing}");
        }
        for lasting in [ffi::SQLITE_CONSTRAINT, ffi::SQLITE_CORRUPT, ffi::SQLITE_ERROR] {
            assert!(matches!(error(lasting), StoreError::Broken(_)), "{lasting}");
        }
    }
}
