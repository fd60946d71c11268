//! `pirn schema`.

use crate::command::pirn;

#[test]
fn the_schema_is_json_and_names_its_draft() {
    let ended = pirn(&["schema"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.json()["$schema"], "https://json-schema.org/draft/2020-12/schema");
}
