//! Consent to tool calls, asked for on the terminal.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::sync::mpsc::{Receiver, Sender, channel};

use clap::ValueEnum;
use futures::FutureExt;
use futures::channel::oneshot;
use pirn::tools::{Approval, ApprovalRequest, ToolInfo, ToolRegistry, Verdict};

use super::elicitation;
use super::prompt_gate::{self, PromptGate};
use crate::visible::visible_line;

/// Which calls are asked about.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(super) enum Approve {
    /// Those of tools that say approval = "ask"
    Ask,
    /// All of them
    Each,
    /// None: every call runs
    None,
}

/// A call, and where the answer goes.
type Pending = (ApprovalRequest, oneshot::Sender<Verdict>);

/// Has the tools ask. Whether questions may come on the terminal.
pub(super) fn set(tools: &mut ToolRegistry, which: Approve, gate: &PromptGate) -> bool {
    // An MCP server may have questions of its own.
    let may_ask = |tool: &ToolInfo| tool.options.approval == Approval::Ask || tool.options.source.starts_with("mcp ");
    let any_marked = tools.list().any(|tool| may_ask(&tool));
    let asks = match which {
        Approve::None => {
            tools.approve(|_| Verdict::Allow);
            false
        }
        Approve::Ask => any_marked,
        Approve::Each => tools.names().next().is_some(),
    };
    if !asks {
        return false;
    }
    if !stdin().is_terminal() {
        // Nobody can answer.
        if which == Approve::Each {
            tools.approve(|_| Verdict::Refuse("it needs consent, and there is no terminal to ask on".to_owned()));
        }
        return false;
    }
    let (ask, questions) = channel();
    let asking = std::thread::Builder::new().name("pirn-consent".to_owned()).spawn({
        let gate = gate.clone();
        move || answer(&questions, &gate)
    });
    if asking.is_ok() {
        tools.approve_async(move |request| question(which, request, &ask).boxed());
    }
    true
}

fn question(
    which: Approve,
    request: ApprovalRequest,
    ask: &Sender<Pending>,
) -> impl Future<Output = Verdict> + Send + 'static {
    let is_asked = request.is_marked || which == Approve::Each;
    let (sender, receiver) = oneshot::channel();
    let sent = is_asked.then(|| ask.send((request, sender)).is_ok());
    async move {
        match sent {
            None => Verdict::Allow,
            Some(false) => refused(),
            Some(true) => receiver.await.unwrap_or_else(|_| refused()),
        }
    }
}

fn refused() -> Verdict {
    Verdict::Refuse("nobody answered on the terminal".to_owned())
}

/// One question after the other.
fn answer(questions: &Receiver<Pending>, gate: &PromptGate) {
    for (request, sender) in questions {
        // Its run was stopped while it waited.
        if sender.is_canceled() {
            continue;
        }
        let verdict = gate.ask(|| asked(&request));
        // As above: then the answer is nobody's.
        sender.send(verdict).unwrap_or(());
    }
}

fn asked(request: &ApprovalRequest) -> Verdict {
    if let Some(question) = &request.question {
        return elicitation::answered(&request.tool, question);
    }
    let mut line = String::new();
    let arguments = visible_line(&request.arguments.to_string());
    let by = request.caller.as_ref().map_or_else(String::new, |caller| {
        format!(
            "  for node {}, thread {}\n",
            visible_line(caller.node_id.as_deref().unwrap_or_default()),
            visible_line(&caller.thread_id)
        )
    });
    let wrote = write!(
        stderr().lock(),
        "? {} {arguments}\n{by}  run it? [y]es, or say why not: ",
        visible_line(&request.tool)
    );
    if wrote.is_err() || stderr().flush().is_err() {
        return refused();
    }
    match stdin().read_line(&mut line) {
        // The end of the input is no answer, and ends no line.
        Ok(0) | Err(_) => {
            prompt_gate::put(&[String::new()]);
            return refused();
        }
        Ok(_) => {}
    }
    match line.trim() {
        "y" | "Y" | "yes" => Verdict::Allow,
        "" | "n" | "N" | "no" => Verdict::Refuse("the user said no".to_owned()),
        reason => Verdict::Refuse(format!("the user said: {reason}")),
    }
}
