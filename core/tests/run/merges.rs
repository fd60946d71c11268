//! Merges of variables in new runs, and in runs that an earlier version started.

use pirn_definition::error::RunErrorCode;
use serde_json::json;

use super::harness::Harness;

#[test]
fn a_run_of_an_earlier_version_merges_changed_values_only_and_raises_no_event() {
    let set = |id: &str| json!({"id": id, "type": "VARIABLE", "config": {"variableName": "x", "expression": "output"}});
    let paths = json!(["a", "b"]);
    let bundle = json!({"workflows": [{"id": "main", "variables": [{"name": "x", "value": "old"}],
        "nodes": [{"id": "s", "type": "START"},
            {"id": "fork", "type": "FORK", "config": {"forkPathIds": paths, "childNodeIds": paths}},
            {"id": "a", "type": "CODE", "config": {"function": "old"}}, set("set-a"),
            {"id": "b", "type": "CODE", "config": {"function": "new"}}, set("set-b"),
            {"id": "join", "type": "JOIN",
                "config": {"forkPathIds": paths, "joinStrategy": "ALL_COMPLETED", "mergeVariables": "all"}},
            {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "fork"}, {"from": "fork", "to": "a"}, {"from": "fork", "to": "b"},
            {"from": "a", "to": "set-a"}, {"from": "b", "to": "set-b"},
            {"from": "set-a", "to": "join"}, {"from": "set-b", "to": "join"}, {"from": "join", "to": "e"}]}]});
    let conflict = Some(RunErrorCode::VariableMergeConflict);
    for (merges_assignments, code, x) in [(true, conflict, "old"), (false, None, "new")] {
        let played = Harness::with(&bundle, merges_assignments);
        let report = played.report.as_ref().expect("the run has ended");
        assert_eq!(report.error.as_ref().map(|error| error.code), code, "{report:?}");
        assert_eq!(report.variables["x"], json!(x));
        // Those of the two branches.
        assert_eq!(played.effect_log.matches("event_type: VariableChanged").count(), 2);
    }
}
