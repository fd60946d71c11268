//! Errors of SQLite and of the store's rules, in one type.

use std::sync::Arc;

use rusqlite::ErrorCode;

use super::format::codec::Malformed;
use crate::error::StoreError;

#[derive(Debug)]
pub(super) enum Fault {
    /// The command was refused, or the data it reads is damaged.
    Refused(StoreError),
    Sql(rusqlite::Error),
}

impl Fault {
    /// Returns true if the state of the disk is unknown after this error.
    pub(super) fn is_fatal(&self) -> bool {
        let Self::Sql(error) = self else {
            // A refusal is a decision of the store's rules, so the disk is as it was.
            return false;
        };
        match error.sqlite_error_code() {
            Some(
                ErrorCode::SystemIoFailure
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::ReadOnly
                | ErrorCode::CannotOpen
                | ErrorCode::FileLockingProtocolFailed,
            ) => true,
            // For example a full disk: the transaction is rolled back, and a later commit may succeed.
            Some(_) | None => false,
        }
    }

    pub(super) fn told(self, file: &Arc<str>) -> StoreError {
        match self {
            Self::Refused(error) => error,
            Self::Sql(error) => from_sql(&error, file),
        }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

fn from_sql(error: &rusqlite::Error, file: &Arc<str>) -> StoreError {
    let (file, why) = (file.clone(), in_words(error));
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Held { file, pid: None },
        // No code: the type of a column differs from the type that was written.
        Some(ErrorCode::DatabaseCorrupt) | None => StoreError::Damaged { file, run: None, why },
        Some(ErrorCode::NotADatabase) => StoreError::Unreadable { file, why },
        Some(_) => StoreError::Failed { file, run: None, why },
    }
}

fn in_words(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(code, message) => {
            // The extended code distinguishes a failed sync from a failed write; the text often does not.
            let message = message.clone().unwrap_or_else(|| code.to_string());
            format!("{message} (SQLite {})", code.extended_code)
        }
        other => other.to_string(),
    }
}

pub(super) fn damaged(file: &Arc<str>, run: Option<&str>, what: &str, why: Malformed) -> StoreError {
    StoreError::Damaged {
        file: file.clone(),
        run: run.map(str::to_owned),
        why: format!("{what}: {why}"),
    }
}
