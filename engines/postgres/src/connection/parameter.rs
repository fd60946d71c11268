//! Parameters of queries, with their PostgreSQL types.

use tokio_postgres::types::{ToSql, Type};

/// Parameter whose PostgreSQL type follows from its Rust type, so that a query needs no prepared statement.
pub(crate) trait Parameter: ToSql + Sync {
    fn sql_type(&self) -> Type;
}

macro_rules! types {
    ($($sql:ident: $($rust:ty),+;)+) => {
        $($(
            impl Parameter for $rust {
                fn sql_type(&self) -> Type {
                    Type::$sql
                }
            }
        )+)+
    };
}

types! {
    BOOL: bool;
    FLOAT8: f64;
    INT4: i32;
    INT8: i64, Option<i64>;
    TEXT: &str, String, Option<&str>, Option<String>;
    BYTEA: &[u8];
    INT2_ARRAY: Vec<i16>;
    INT8_ARRAY: Vec<i64>;
    TEXT_ARRAY: Vec<&str>, Vec<String>, &[String], Vec<Option<&str>>;
    BYTEA_ARRAY: Vec<&[u8]>, Vec<Option<&[u8]>>, Option<Vec<&[u8]>>;
}
