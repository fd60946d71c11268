//! Graders: comparisons of a run's outcome with the expected one.

use std::sync::Arc;
use std::time::Duration;

use pirn_core::run::RunReport;
use pirn_core::status::ThreadStatus;
use pirn_definition::error::RunError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::differences::{of_values, quoted};
use super::varying::Varying;
use crate::engine::{BuildError, Engine};

/// A comparison of a run's outcome with the expected one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "grader",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Grader {
    /// The run ends with this status, and with an error of this code.
    Outcome {
        /// Status of the run.
        status: ThreadStatus,
        /// Code of its error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The output equals this value, apart from times of the run and the numbers of its threads.
    Equal {
        /// The expected output.
        value: Value,
    },
    /// The main thread enters these nodes, in this order.
    Path {
        /// Ids of the nodes.
        nodes: Vec<Arc<str>>,
    },
    /// The run spends at most this number of tokens, and at most this amount in the currency of its profiles.
    Cost {
        /// Maximum number of tokens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_tokens: Option<u64>,
        /// Maximum amount.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_amount: Option<f64>,
    },
    /// The output fits a JSON Schema.
    Schema {
        /// The schema.
        schema: Value,
    },
    /// The output contains a text.
    Contains {
        /// The text.
        text: String,
    },
    /// An expression is true. It can use `output`, `status`, `error` (the code, or null), `tokens` and `path`.
    Function {
        /// The expression.
        expression: String,
    },
}

/// A grader that the outcome does not satisfy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GradeFailure {
    /// Name of the grader; `request` or `toolCall` for a call that the recording does not contain.
    pub grader: &'static str,
    /// Difference between the expectation and the outcome.
    pub message: String,
}

/// Error of a grader: the expression of [`Grader::Function`] cannot be evaluated.
#[derive(Debug, thiserror::Error)]
#[error("the function `{expression}`: {cause}")]
pub struct GradeError {
    /// The expression.
    pub expression: String,
    /// Reason of the failure.
    #[source]
    pub cause: GradeErrorCause,
}

/// Reason that the expression of a grader cannot be evaluated.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum GradeErrorCause {
    /// The expression cannot be compiled.
    Build(#[from] BuildError),
    /// The evaluation failed.
    Run(#[from] RunError),
}

impl Grader {
    /// Returns the graders that a recorded outcome satisfies: outcome, output, path and cost.
    pub fn of(report: &RunReport) -> Vec<Self> {
        let spent = &report.tokens.spent;
        let mut graders = vec![
            Self::Outcome {
                status: report.status,
                error: code(report),
            },
            Self::Path { nodes: path(report) },
        ];
        if report.status == ThreadStatus::Completed {
            let value = report.output.clone();
            graders.push(Self::Equal { value });
        }
        if !spent.is_nothing() {
            graders.push(Self::Cost {
                max_tokens: Some(spent.total),
                max_amount: amount(report),
            });
        }
        graders
    }

    /// Returns whether [`Grader::of`] writes graders of this kind.
    pub(super) fn is_recorded(&self) -> bool {
        match self {
            Self::Outcome { .. } | Self::Equal { .. } | Self::Path { .. } | Self::Cost { .. } => true,
            Self::Schema { .. } | Self::Contains { .. } | Self::Function { .. } => false,
        }
    }

    /// Returns the difference between the expectation and the outcome, if there is one.
    ///
    /// # Errors
    /// The expression of [`Grader::Function`] cannot be evaluated.
    pub fn grade(&self, report: &RunReport) -> Result<Option<GradeFailure>, GradeError> {
        self.compare(report, &Varying::of_threads(&report.run_id))
    }

    /// Like [`Self::grade`]; [`Grader::Equal`] ignores what varies.
    pub(super) fn compare(&self, report: &RunReport, varying: &Varying) -> Result<Option<GradeFailure>, GradeError> {
        let (grader, message) = match self {
            Self::Outcome { status, error } => {
                let expected = outcome(*status, error.as_deref());
                let is_equal = expected == outcome(report.status, code(report).as_deref());
                let differs = || format!("expected {expected}, got {}", described(report));
                ("outcome", (!is_equal).then(differs))
            }
            Self::Equal { value } => {
                let (value, output) = (varying.in_value(value), varying.in_value(&report.output));
                let differences = of_values("output", &value, &output);
                ("equal", (!differences.is_empty()).then(|| differences.join("\n")))
            }
            Self::Path { nodes } => ("path", other_path(nodes, &path(report))),
            Self::Cost { max_tokens, max_amount } => ("cost", too_expensive(*max_tokens, *max_amount, report)),
            Self::Schema { schema } => {
                let fits = pirn_models::json_schema::fits(schema, &report.output);
                ("schema", fits.err().map(|mismatch| mismatch.reason))
            }
            Self::Contains { text } => {
                let whole = report
                    .output
                    .as_str()
                    .map_or_else(|| report.output.to_string(), str::to_owned);
                let differs = || format!("{text:?} is not in {}", quoted(&report.output));
                ("contains", (!whole.contains(&**text)).then(differs))
            }
            Self::Function { expression } => {
                let result = evaluated(expression, report)?;
                let differs = || format!("`{expression}` is {}", quoted(&result));
                ("function", (result != Value::Bool(true)).then(differs))
            }
        };
        Ok(message.map(|message| GradeFailure { grader, message }))
    }
}

fn outcome(status: ThreadStatus, error: Option<&str>) -> String {
    let error = error.map(|code| format!(" ({code})"));
    format!("{}{}", status.as_str(), error.unwrap_or_default())
}

/// Describes the outcome of a run with the message of its error.
pub(super) fn described(report: &RunReport) -> String {
    let why = report.error.as_ref().map(|error| format!(": {}", error.message));
    outcome(report.status, code(report).as_deref()) + &why.unwrap_or_default()
}

fn code(report: &RunReport) -> Option<String> {
    report.error.as_ref().map(|error| error.code.as_str().to_owned())
}

/// Returns the nodes that the main thread entered.
fn path(report: &RunReport) -> Vec<Arc<str>> {
    let own = report.nodes.iter().filter(|node| node.firing.is_none());
    own.map(|node| Arc::clone(&node.node_id)).collect()
}

fn amount(report: &RunReport) -> Option<f64> {
    let cost = report.tokens.spent.cost?;
    json!(cost)["amount"].as_f64()
}

fn other_path(expected: &[Arc<str>], got: &[Arc<str>]) -> Option<String> {
    if expected == got {
        return None;
    }
    let equal = expected.iter().zip(got).take_while(|(one, other)| one == other).count();
    let shown = |nodes: &[Arc<str>]| {
        nodes
            .get(equal)
            .map_or_else(|| "the end".to_owned(), |node| format!("`{node}`"))
    };
    let after = match equal.checked_sub(1) {
        Some(last) => format!(" after `{}`", expected[last]),
        None => String::new(),
    };
    Some(format!(
        "node {}{after}: expected {}, got {}",
        equal + 1,
        shown(expected),
        shown(got)
    ))
}

fn too_expensive(max_tokens: Option<u64>, max_amount: Option<f64>, report: &RunReport) -> Option<String> {
    let spent = report.tokens.spent.total;
    if let Some(most) = max_tokens.filter(|most| spent > *most) {
        return Some(format!("expected at most {most} tokens, got {spent}"));
    }
    let (most, got) = (max_amount?, amount(report).unwrap_or_default());
    (got > most).then(|| format!("expected a cost of at most {most}, got {got}"))
}

/// Evaluates an expression of a case in a workflow that only evaluates it.
fn evaluated(expression: &str, report: &RunReport) -> Result<Value, GradeError> {
    let failed = |cause: GradeErrorCause| GradeError {
        expression: expression.to_owned(),
        cause,
    };
    let variable = |name: &str, value: Value| json!({"name": name, "value": value});
    let flow = json!({
        "id": "grade",
        "variables": [
            variable("status", json!(report.status)), variable("error", json!(code(report))),
            variable("tokens", json!(report.tokens.spent.total)), variable("path", json!(path(report))),
        ],
        "nodes": [{"id": "start", "type": "START"}, {"id": "end", "type": "END", "config": {"output": expression}}],
        "edges": [{"from": "start", "to": "end"}],
    });
    let engine = Engine::builder().workflows(flow.to_string()).virtual_time(None).build();
    let engine = engine.map_err(|error| failed(error.into()))?;
    let graded = engine.start("grade", &report.output);
    let graded = graded.map_err(|error| failed(error.into()))?;
    let graded = graded.outcome_blocking();
    engine.shutdown_blocking(Duration::from_secs(1));
    match &graded.error {
        Some(error) => Err(failed(error.clone().into())),
        None => Ok(graded.output.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_path_is_described_by_its_first_other_node() {
        let path = |nodes: &[&str]| -> Vec<Arc<str>> { nodes.iter().map(|node| Arc::from(*node)).collect() };
        let of = |one: &[&str], other: &[&str]| other_path(&path(one), &path(other));
        assert_eq!(of(&["a", "b"], &["a", "b"]), None);
        assert_eq!(
            of(&["a", "b"], &["a", "c"]).as_deref(),
            Some("node 2 after `a`: expected `b`, got `c`")
        );
        assert_eq!(of(&[], &["a"]).as_deref(), Some("node 1: expected the end, got `a`"));
    }
}
