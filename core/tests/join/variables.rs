//! `mergeVariables` on random branches, against the rule as SPEC section 4 states it.

use std::collections::{BTreeMap, BTreeSet};

use pirn_core::join::{BranchVariables, merge_variables};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Few names and few values, so that branches meet.
fn variables() -> impl Strategy<Value = BTreeMap<String, u8>> {
    prop::collection::btree_map("[xyz]", 0..3_u8, 0..4)
}

proptest! {
    #[test]
    fn a_variable_is_merged_if_its_writers_agree(branches in prop::collection::vec(variables(), 0..5)) {
        let values: Vec<Value> = (0..3_u8).map(|value| json!(value)).collect();
        let ids: Vec<String> = (0..branches.len()).map(|path| format!("p{path}")).collect();
        let handed: Vec<BranchVariables<'_>> = ids
            .iter()
            .zip(&branches)
            .map(|(path_id, branch)| BranchVariables {
                path_id,
                variables: branch.iter().map(|(name, value)| (name.as_str(), &values[usize::from(*value)])).collect(),
            })
            .collect();
        let merged = merge_variables(|_| None, &handed);

        let written = |name: &str| -> BTreeSet<u8> {
            branches.iter().filter_map(|branch| branch.get(name).copied()).collect()
        };
        let conflicts: Vec<&str> = ["x", "y", "z"].into_iter().filter(|name| written(name).len() > 1).collect();
        match merged {
            Ok(merged) => {
                prop_assert!(conflicts.is_empty());
                for name in ["x", "y", "z"] {
                    prop_assert_eq!(merged.variables.get(name), written(name).first().map(|value| &values[usize::from(*value)]));
                }
            }
            Err(conflict) => {
                let details = conflict.details.clone().unwrap_or_default();
                let names = details["conflicts"].as_object().expect("names");
                prop_assert_eq!(names.keys().map(String::as_str).collect::<Vec<_>>(), conflicts);
            }
        }
    }
}
