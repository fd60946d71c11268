//! Reasons why a command has no answer.

use tokio_postgres::error::SqlState;

/// Reason why a command failed.
pub(crate) enum Fault {
    /// The connection was lost; whether the command took effect is unknown. It is sent again on the next connection.
    Lost(String),
    /// Serialization conflict: the command had no effect and is retried.
    Again(String),
    /// Refusal by the schema `pirn`: a code, and the name of the object.
    Refused(String, String),
    /// Other error of the server.
    Failed(String),
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(refused) = error.as_db_error() else {
            // No answer of the server, so the connection failed or closed.
            return Self::Lost(error.to_string());
        };
        let why = || format!("{} ({})", refused.message(), refused.code().code());
        // A code always has five characters.
        let class = &refused.code().code()[..2];
        match refused.code() {
            &SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED => Self::Again(why()),
            // A server that restarts answers with these, and the command is sent again as after a lost connection.
            &SqlState::ADMIN_SHUTDOWN | &SqlState::CRASH_SHUTDOWN | &SqlState::CANNOT_CONNECT_NOW => Self::Lost(why()),
            // The server has become a standby: the next connection goes to the server that accepts writes.
            &SqlState::READ_ONLY_SQL_TRANSACTION => Self::Lost(format!("the server is read-only now: {}", why())),
            // Raised by the functions in `sql/pirn.sql` only.
            code if code.code() == "PN001" => Self::Refused(
                refused.message().to_owned(),
                refused.detail().unwrap_or_default().to_owned(),
            ),
            // Class 08 is "connection exception".
            _ if class == "08" => Self::Lost(why()),
            _ => Self::Failed(why()),
        }
    }
}
