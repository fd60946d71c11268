//! Examples, JSON output and exit codes in the help of the subcommands of `runs`, `sessions`, `context`, `models` and `tools`.
//!
//! A test runs every example, in a folder with a store of an ended run `RUN` and a run that waits.

use clap::Command;

/// Help of one subcommand.
struct Help {
    /// The command and its subcommand.
    of: [&'static str; 2],
    examples: &'static [&'static str],
    /// Shape of `--output json`; empty without such an output.
    json: &'static str,
    exit: &'static str,
}

/// Exit codes of commands that read a store.
const READS: &str = "0, 2 wrong usage, no such run, a store that is unreadable or held";

/// Exit codes of commands that send an input to a run.
const SENDS: &str = "0 the input is stored, 1 it is refused, 2 wrong usage, no such run, a store that is unreadable";

/// Exit codes of commands that execute a run.
const EXECUTES: &str = "0 completed, 1 failed or refused, 2 wrong usage, no such run, a store that is unreadable or held, 124 time limit, 130 interrupted";

/// Exit codes of commands that read JSON.
const CONVERTS: &str = "0, 1 wrong input, 2 wrong usage or an unreadable file";

const HELP: &[Help] = &[
    Help {
        of: ["runs", "list"],
        examples: &[
            "pirn runs list --store runs.db",
            "pirn runs list --status WAITING --store runs.db --output json",
            "pirn runs list --ids --limit 5 --store runs.db",
        ],
        json: "{runs[{runId, workflowId, status, steps, startedAt, updatedAt, session?, waitingFor?, forkedFrom?}]}",
        exit: READS,
    },
    Help {
        of: ["runs", "show"],
        examples: &[
            "pirn runs show RUN --store runs.db",
            "pirn runs show RUN --history --store runs.db",
            "pirn runs show RUN --at 7 --store runs.db --output json",
        ],
        json: "the report of `pirn run` so far, with {steps, waitingFor?, forkedFrom?, interactions[]?}; {steps[]} with --history",
        exit: READS,
    },
    Help {
        of: ["runs", "explain"],
        examples: &["pirn runs explain RUN --store runs.db"],
        json: "{text}",
        exit: READS,
    },
    Help {
        of: ["runs", "events"],
        examples: &["pirn runs events RUN --after 7 --store runs.db"],
        json: "{events[]}",
        exit: READS,
    },
    Help {
        of: ["runs", "diff"],
        examples: &["pirn runs diff RUN RUN --store runs.db"],
        json: "{commonSteps, a?, b?, outcome{equal, ...}}",
        exit: READS,
    },
    Help {
        of: ["runs", "migrate"],
        examples: &["pirn runs migrate RUN --to workflow.json --check --store runs.db"],
        json: "{fits, firstDifference?} for one run, otherwise {runs[{runId, fits, firstDifference?, error?}]}",
        exit: "0 every run fits, 1 one does not, 2 wrong usage, no such run, a store that is unreadable or held",
    },
    Help {
        of: ["runs", "resume"],
        examples: &["pirn runs resume RUN --answer approve=yes --store runs.db"],
        json: "the report of `pirn run`; {runs[]} with --all",
        exit: EXECUTES,
    },
    Help {
        of: ["runs", "cancel"],
        examples: &["pirn runs cancel RUN --reason 'no longer needed' --store runs.db"],
        json: "{ok}",
        exit: SENDS,
    },
    Help {
        of: ["runs", "answer"],
        examples: &["pirn runs answer RUN approve yes --by ann --store runs.db"],
        json: "{ok}",
        exit: SENDS,
    },
    Help {
        of: ["runs", "emit"],
        examples: &["pirn runs emit RUN paid '{\"amount\": 12}' --store runs.db"],
        json: "{ok}",
        exit: SENDS,
    },
    Help {
        of: ["runs", "say"],
        examples: &["pirn runs say RUN 'Write shorter sentences.' --store runs.db"],
        json: "{ok}",
        exit: SENDS,
    },
    Help {
        of: ["runs", "pause"],
        examples: &[
            "pirn runs pause RUN --store runs.db",
            "pirn runs pause RUN --end --store runs.db",
        ],
        json: "{ok}",
        exit: SENDS,
    },
    Help {
        of: ["runs", "pin"],
        examples: &["pirn runs pin RUN role 'You are a careful editor.' --store runs.db"],
        json: "{ok}",
        exit: SENDS,
    },
    Help {
        of: ["runs", "fork"],
        examples: &["pirn runs fork RUN --at 7 --set name='\"Ada\"' --store runs.db"],
        json: "the report of `pirn run`, with {forkedFrom}",
        exit: EXECUTES,
    },
    Help {
        of: ["runs", "record"],
        examples: &[
            "pirn runs record RUN --to case.json --store runs.db",
            "pirn runs record RUN --to case.json --definition workflow.json --store runs.db",
        ],
        json: "{file, requests, toolCalls, answers, inputs}",
        exit: "0 the case is written, with a warning if `pirn test` fails for it, 1 a case cannot repeat the run, 2 wrong usage, no such run, a store or a file that is unreadable",
    },
    Help {
        of: ["runs", "export"],
        examples: &["pirn runs export RUN run.jsonl --store runs.db"],
        json: "{ok}",
        exit: READS,
    },
    Help {
        of: ["runs", "import"],
        examples: &[
            "pirn runs export RUN run.jsonl --store runs.db && pirn runs import run.jsonl --run-id copy --store other.db",
        ],
        json: "{ok, runId}",
        exit: "0, 1 the run exists, 2 wrong usage, a file or a store that is unreadable or held",
    },
    Help {
        of: ["runs", "rekey"],
        examples: &["pirn runs rekey --store runs.db --key-file store.keys"],
        json: "{encrypted}",
        exit: "0, 1 the encryption failed, 2 wrong usage, a missing key, a store that is unreadable or held",
    },
    Help {
        of: ["runs", "backup"],
        examples: &["pirn runs backup monday.db --store runs.db"],
        json: "{ok}",
        exit: "0, 1 the copy failed, 2 wrong usage, a store that is unreadable",
    },
    Help {
        of: ["runs", "prune"],
        examples: &["pirn runs prune --older-than 7d --dry-run --store runs.db"],
        json: "{removed, bytesFreed}",
        exit: "0, 1 refused, 2 wrong usage, a store that is unreadable or held",
    },
    Help {
        of: ["runs", "erase"],
        examples: &["pirn runs erase --session desk-7 --dry-run --store runs.db"],
        json: "{runs, sessions, bytesFreed}",
        exit: "0, 1 a run has not ended, 2 wrong usage, a store that is unreadable or held",
    },
    Help {
        of: ["sessions", "list"],
        examples: &[
            "pirn run workflow.json --store runs.db --session desk-7 --quiet && pirn sessions list --store runs.db",
        ],
        json: "{sessions[{id, version, lastRunId, updatedAt}]}",
        exit: "0, 2 wrong usage, a store that is unreadable or held",
    },
    Help {
        of: ["sessions", "show"],
        examples: &[
            "pirn run workflow.json --store runs.db --session desk-7 --quiet && pirn sessions show desk-7 --store runs.db",
        ],
        json: "{id, version, lastRunId, updatedAt, conversation{messages, markMap}, variables}",
        exit: "0, 2 wrong usage, no such session, a store that is unreadable or held",
    },
    Help {
        of: ["sessions", "remove"],
        examples: &[
            "pirn run workflow.json --store runs.db --session desk-7 --quiet && pirn sessions remove desk-7 --store runs.db",
        ],
        json: "{removed}",
        exit: "0, 1 a run of the session is unfinished, 2 wrong usage, a store that is unreadable or held",
    },
    Help {
        of: ["context", "select"],
        examples: &[
            "echo '{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"options\": {\"lastN\": 2}}' | pirn context select",
        ],
        json: "{messages[]}",
        exit: CONVERTS,
    },
    Help {
        of: ["context", "layout"],
        examples: &[
            "echo '{\"history\": [{\"role\": \"user\", \"content\": \"hi\"}], \"pinned\": {}}' | pirn context layout",
        ],
        json: "{messages[], insertedAt}",
        exit: CONVERTS,
    },
    Help {
        of: ["context", "blocks"],
        examples: &["echo '{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}' | pirn context blocks"],
        json: "{blocks[[first, last]]}",
        exit: CONVERTS,
    },
    Help {
        of: ["context", "compact"],
        examples: &[
            "echo '{\"messages\": [], \"compressionConfig\": {\"strategy\": \"keep_recent\"}}' | pirn context compact",
        ],
        json: "{messages[], markMap, stats}",
        exit: CONVERTS,
    },
    Help {
        of: ["context", "marks"],
        examples: &[
            "echo '{\"length\": 3, \"operations\": [{\"startNewBatch\": 1}, {\"append\": 2}]}' | pirn context marks",
        ],
        json: "{markMap, visible[first, last]}",
        exit: CONVERTS,
    },
    Help {
        of: ["context", "count"],
        examples: &["echo '{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}' | pirn context count"],
        json: "{tokens, perMessage[]}",
        exit: CONVERTS,
    },
    Help {
        of: ["context", "show"],
        examples: &["pirn run workflow.json --output json | pirn context show -"],
        json: "",
        exit: CONVERTS,
    },
    Help {
        of: ["context", "convert"],
        examples: &["echo '[{\"role\": \"user\", \"content\": \"hi\"}]' | pirn context convert - --to anthropic"],
        json: "a conversation in the format of --to",
        exit: CONVERTS,
    },
    Help {
        of: ["context", "judge"],
        examples: &["pirn run workflow.json --output json | pirn context judge - --output json"],
        json: "{total, kept, share, kinds, lost[]}",
        exit: CONVERTS,
    },
    Help {
        of: ["models", "check"],
        examples: &["pirn models check assistant --profiles models.toml --output json"],
        json: "{profiles[]}",
        exit: "0 every checked profile answers, 1 one does not, 2 wrong usage or an unreadable file",
    },
    Help {
        of: ["tools", "list"],
        examples: &["pirn tools list --config support-desk/pirn.toml --output json"],
        json: "{tools[], resources[], prompts[]}",
        exit: "0, 1 a server does not start, 2 wrong usage or an unreadable file",
    },
    Help {
        of: ["tools", "call"],
        examples: &["pirn tools call get_order '{\"order\": \"HB-20977\"}' --config support-desk/pirn.toml"],
        json: "{result}",
        exit: "0, 1 the call failed, 2 wrong usage, no such tool or an unreadable file",
    },
];

/// Adds the help to its subcommands.
pub(crate) fn added(command: Command) -> Command {
    HELP.iter().fold(command, |command, help| {
        let [parent, name] = help.of;
        command.mut_subcommand(parent, |parent| {
            parent.mut_subcommand(name, |own| own.after_help(help.text()))
        })
    })
}

impl Help {
    fn text(&self) -> String {
        let examples = self
            .examples
            .iter()
            .fold(String::new(), |text, example| text + "  " + example + "\n");
        let json = if self.json.is_empty() {
            String::new()
        } else {
            format!("JSON: {}.\n\n", self.json)
        };
        format!("Examples:\n{examples}\n{json}Exit codes: {}.", self.exit)
    }
}
