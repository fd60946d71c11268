//! Why something that was asked of the server has no answer.

use tokio_postgres::error::SqlState;

/// Why a command was not carried out.
pub(crate) enum Fault {
    /// The connection is gone, and with it whether the command took effect: it is asked again on the next.
    Lost(String),
    /// It was in another's way, and took no effect: it is asked again.
    Again(String),
    /// The schema's own refusal, by its code and the name it is about.
    Refused(String, String),
    /// The server's refusal.
    Failed(String),
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(refused) = error.as_db_error() else {
            return Self::Lost(error.to_string());
        };
        let why = || format!("{} ({})", refused.message(), refused.code().code());
        let class = &refused.code().code()[..2];
        match refused.code() {
            &SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED => Self::Again(why()),
            &SqlState::ADMIN_SHUTDOWN | &SqlState::CRASH_SHUTDOWN | &SqlState::CANNOT_CONNECT_NOW => Self::Lost(why()),
            code if code.code() == "PN001" => Self::Refused(
                refused.message().to_owned(),
                refused.detail().unwrap_or_default().to_owned(),
            ),
            _ if class == "08" => Self::Lost(why()),
            _ => Self::Failed(why()),
        }
    }
}
