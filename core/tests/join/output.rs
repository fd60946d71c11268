//! The output of a JOIN for its parent, against the outputs of the individual paths.

use std::sync::Arc;

use pirn_core::join::{JoinedPath, PathStatus, join_output};
use pirn_core::thread::Output;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::Graph;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::fork::graph_of;

fn status() -> impl Strategy<Value = PathStatus> {
    prop_oneof![
        Just(PathStatus::Completed),
        Just(PathStatus::Failed),
        Just(PathStatus::Timeout),
        Just(PathStatus::Cancelled),
        Just(PathStatus::Stopped),
        Just(PathStatus::Skipped),
        Just(PathStatus::Detached),
    ]
}

/// Returns the paths as a join reads them.
fn joined(statuses: &[PathStatus]) -> Vec<JoinedPath> {
    let path = |(n, status): (usize, &PathStatus)| JoinedPath {
        status: *status,
        thread: Some(n as u32),
        output: (*status == PathStatus::Completed).then(|| Output::from(json!({ "of": n }))),
        error: (*status == PathStatus::Failed).then(|| RunError::new(RunErrorCode::NodeFailed, format!("no {n}"))),
    };
    statuses.iter().enumerate().map(path).collect()
}

fn names(value: &Value) -> Vec<String> {
    let one = |value: &Value| {
        value
            .as_str()
            .or(value["pathId"].as_str())
            .unwrap_or_default()
            .to_owned()
    };
    value.as_array().into_iter().flatten().map(one).collect()
}

proptest! {
    #[test]
    fn each_path_is_in_the_list_of_its_status_in_path_order(statuses in prop::collection::vec(status(), 1..12)) {
        let graph: Arc<Graph> = graph_of(statuses.len());
        let output = join_output(graph, 0, "r".into(), joined(&statuses)).unwrap();
        let output = output.value();
        let of = |wanted: &[PathStatus]| -> Vec<String> {
            let paths = statuses.iter().enumerate();
            paths.filter(|(_, status)| wanted.contains(status)).map(|(n, _)| format!("p{n}")).collect()
        };
        prop_assert_eq!(names(&output["completed"]), of(&[PathStatus::Completed]));
        prop_assert_eq!(names(&output["failed"]), of(&[PathStatus::Failed, PathStatus::Timeout, PathStatus::Cancelled]));
        prop_assert_eq!(names(&output["cancelled"]), of(&[PathStatus::Stopped, PathStatus::Skipped]));
        prop_assert_eq!(output["outputs"].as_object().map_or(0, serde_json::Map::len), of(&[PathStatus::Completed]).len());
        for n in 0..statuses.len() {
            prop_assert_eq!(&output["childThreadIds"][format!("p{n}")], &json!(format!("r.{n}")));
        }
    }
}
