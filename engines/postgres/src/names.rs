//! Names with one value each, shared by all processes.

use crate::connection::connect::Connection;
use crate::connection::fault::Fault;
use crate::read::Answer;

pub(crate) async fn settle(on: &Connection, name: &str, value: &str, most: usize) -> Answer<String> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let rows = on
        .query("SELECT pirn.settle($1, $2, $3)", &[&name, &value, &most])
        .await?;
    // The function returns one row in every case.
    let row = rows.first().ok_or_else(|| Fault::Failed("no answer".to_owned()))?;
    Ok(Ok(row.try_get(0)?))
}

pub(crate) async fn unsettle(on: &Connection, name: &str, value: &str) -> Answer<()> {
    on.query(
        // The value is compared too: another process may have settled the name anew.
        "DELETE FROM pirn.names WHERE name = $1 AND value = $2",
        &[&name, &value],
    )
    .await?;
    Ok(Ok(()))
}
