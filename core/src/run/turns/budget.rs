//! Budgets: a model call that does not fit is not started.
//!
//! A thread that walks a workflow with a budget has an account. If the budget has `perPath`, each path of its forks has one too. A
//! call draws on the accounts of its thread and of all ancestors.

use std::sync::Arc;

use pirn_conversation::conversation::TokenUsage;
use pirn_conversation::model_call::{CallBound, ModelFailure};
use pirn_definition::definition::Budget;
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::{Graph, NodeKind};
use pirn_events::event::RaisedEvent;
use serde_json::{Map, Value, json};

use super::thread::ThreadTurn;
use crate::run::ThreadNo;
use crate::run::data::effect::Effect;
use crate::run::data::message::{Message, ToThread};
use crate::run::data::report::{BudgetFigure, BudgetReport};
use crate::run::environment::Setting;
use crate::run::parts::amount::{Amount, FigureKind, Limits, MaximumUsage};
use crate::run::parts::ledger::{
    Account, AccountNo, CallDecision, CallMaximum, CallRefusal, CallSettlement, Figure, Ledger, ReleasedCalls,
};
use crate::run::parts::mailbox::{Mailbox, answer};
use crate::run::parts::tree::{Origin, ThreadLookup};
use crate::run::state::RunMachine;
use crate::run::step::Step;
use crate::thread::{self, EffectId, Input, ModelChoice, Outcome};

/// Default share of a limit above which models are warned.
const WARN_AT: f64 = 0.8;

/// Tokens of the fixed text that asks a model to correct its reply, without the response format.
const COMPLAINT: u64 = 500;

/// Number of 1e-12 units in one unit of the currency.
const ONE: f64 = 1e12;

impl<'a> ThreadLookup<'a> {
    fn graph(self, thread: ThreadNo) -> Option<&'a Arc<Graph>> {
        Some(self.graphs.get(self.tree.get(thread)?.graph))
    }

    fn budget(self, thread: ThreadNo) -> Option<&'a Budget> {
        self.graph(thread)?.config.budget.as_deref()
    }

    /// Returns the limits of a thread as a path of its fork, and of the workflow that it walks.
    fn limits(self, thread: ThreadNo) -> [Option<Limits>; 2] {
        let Some(at) = self.tree.get(thread) else {
            return [None, None];
        };
        let of = |limits: &Budget, warn_at: Option<f64>| {
            let is_limit = limits.is_limit();
            is_limit.then(|| Limits::of(limits, warn_at.unwrap_or(WARN_AT)))
        };
        let path = |budget: &Budget| {
            let path = budget.per_path.as_deref()?;
            of(path, path.warn_at.or(budget.warn_at))
        };
        let whole = || self.budget(thread).and_then(|budget| of(budget, budget.warn_at));
        match at.origin {
            // A branch walks its parent's workflow: the parent's account already has the limits of the whole workflow.
            Origin::Branch { .. } => [self.budget(thread).and_then(path), None],
            // An item walks another workflow: the limits of a path are in the MAP's workflow, those of the whole in its own.
            Origin::Item { .. } => {
                let forked = at.parent.and_then(|parent| self.budget(parent));
                [forked.and_then(path), whole()]
            }
            Origin::Main | Origin::Called { .. } | Origin::Triggered { .. } => [None, whole()],
        }
    }

    /// Returns the first account on which the thread's calls draw. Opens the accounts of its ancestors first, so that parents have
    /// lower numbers.
    fn account(self, ledger: &mut Ledger, thread: ThreadNo) -> Option<AccountNo> {
        let mut above = Vec::new();
        let mut next = Some(thread);
        let mut account = None;
        while let Some(thread) = next {
            // Each thread is looked up once. Without this, every call of a deep thread would visit all its ancestors.
            if ledger.knows(thread) {
                account = ledger.first_account(thread);
                break;
            }
            above.push(thread);
            next = self.tree.get(thread).and_then(|at| at.parent);
        }
        for thread in above.into_iter().rev() {
            let [path, whole] = self.limits(thread);
            // The path is the parent of the whole: a call of an item draws on both.
            for (limits, is_path) in [(path, true), (whole, false)] {
                if let Some(limits) = limits {
                    account = Some(ledger.open_account(thread, is_path, account, limits));
                }
            }
            // Recorded even without an account, so that the ancestors are not visited again.
            ledger.draws_on(thread, account);
        }
        account
    }

    /// Returns the fields that identify an account in events and errors.
    fn fields(self, account: &Account) -> Vec<(&'static str, Value)> {
        let workflow = |thread| self.graph(thread).map(|graph| Arc::clone(&graph.workflow_id));
        let at = self.tree.get(account.thread).filter(|_| account.is_path);
        match at {
            Some(at) => {
                let of = at.parent.and_then(workflow);
                let path = self.graph(account.thread).and_then(|graph| at.origin.path_id(graph));
                vec![("budgetOf", json!(of)), ("budgetOfPath", json!(path))]
            }
            None => vec![("budgetOf", json!(workflow(account.thread)))],
        }
    }

    fn error(self, ledger: &Ledger, refusal: CallRefusal) -> RunError {
        let (CallRefusal::Unbounded { account, .. } | CallRefusal::Short { account, .. }) = refusal;
        let fields = ledger
            .account(account)
            .map(|account| self.fields(account))
            .unwrap_or_default();
        let mut names: Vec<&str> = fields.iter().filter_map(|(_, name)| name.as_str()).collect();
        // The fields have the workflow first, and the sentence names the path first.
        names.reverse();
        let scope = match names[..] {
            [path, workflow] => format!("path `{path}` of workflow `{workflow}`"),
            [workflow] => format!("workflow `{workflow}`"),
            // Not reached: accounts and threads are never removed, so that each account has the name of its workflow.
            _ => "the run".to_owned(),
        };
        let mut details: Map<String, Value> = fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        let message = match refusal {
            CallRefusal::Unbounded { kind, .. } => {
                details.insert("kind".to_owned(), json!(kind.as_str()));
                match kind {
                    FigureKind::Cost => format!(
                        "the budget of {scope} limits the cost, and the highest cost of this call is unknown: set \
                         `maxTokens` in its parameters and `prices` in its profile"
                    ),
                    FigureKind::Tokens | FigureKind::ModelCalls => format!(
                        "the budget of {scope} limits the tokens, and the longest reply to this call is unknown: set \
                         `maxTokens` in its parameters"
                    ),
                }
            }
            CallRefusal::Short { figure, needs, .. } => {
                let Figure { kind, used, limit } = figure;
                details.insert("kind".to_owned(), json!(kind.as_str()));
                let [used, limit, needs] = [used, limit, needs].map(|figure| shown(kind, figure));
                let message = format!(
                    "the budget of {scope} allows {limit} {}: {used} are used, and this call may use {needs}",
                    words(kind)
                );
                for (name, figure) in [("used", used), ("limit", limit), ("needs", needs)] {
                    details.insert(name.to_owned(), figure);
                }
                message
            }
        };
        RunError::new(RunErrorCode::TokenBudgetExceeded, message).with_details(Value::Object(details))
    }

    fn events(self, ledger: &Ledger, node_id: Option<&Arc<str>>, settled: CallSettlement) -> Vec<RaisedEvent> {
        let mut events = Vec::new();
        if let Some((reserved, used)) = settled.overrun {
            let figures =
                |amount: Amount| json!({"tokens": amount.tokens, "cost": shown(FigureKind::Cost, amount.pico)});
            let fields = [
                ("nodeId", json!(node_id)),
                ("reserved", figures(reserved)),
                ("used", figures(used)),
            ];
            events.push(RaisedEvent::new(EventType::BudgetOverrun, fields));
        }
        for (account, Figure { kind, used, limit }) in settled.warnings {
            let named = ledger.account(account).map(|account| self.fields(account));
            let figures = [
                ("kind", json!(kind.as_str())),
                ("used", shown(kind, used)),
                ("limit", shown(kind, limit)),
            ];
            let fields = named.into_iter().flatten().chain(figures);
            events.push(RaisedEvent::of(EventType::BudgetWarning, fields));
        }
        events
    }

    /// Starts or refuses waiting calls after budget was released.
    fn release(self, ledger: &mut Ledger, mailbox: &mut Mailbox, out: &mut Vec<Effect>) {
        for released in ledger.release() {
            match released {
                ReleasedCalls::Begins(thread, effect) => out.push(Effect::Thread {
                    thread,
                    effect: *effect,
                }),
                ReleasedCalls::Refused(thread, effect, refusal) => {
                    let error = self.error(ledger, refusal);
                    // Through the mailbox: the call may belong to another thread than the one whose turn this is.
                    answer(mailbox, thread, effect, Outcome::Failed(error));
                }
            }
        }
    }
}

/// Converts a figure for users: a cost becomes an amount of the currency.
fn shown(kind: FigureKind, figure: u64) -> Value {
    match kind {
        FigureKind::Cost => json!(figure as f64 / ONE),
        FigureKind::Tokens | FigureKind::ModelCalls => json!(figure),
    }
}

fn words(kind: FigureKind) -> &'static str {
    match kind {
        FigureKind::Tokens => "tokens",
        FigureKind::Cost => "of cost",
        FigureKind::ModelCalls => "model calls",
    }
}

fn amount(spent: &TokenUsage) -> Amount {
    Amount {
        tokens: spent.total,
        pico: spent.cost.map_or(0, |cost| cost.pico),
        // `Ledger::begin` has counted the call.
        calls: 0,
    }
}

/// Returns the maximum usage of one request.
fn most_of(bound: &CallBound, sent: u64) -> MaximumUsage {
    MaximumUsage {
        tokens: bound.output.map(|output| sent.saturating_add(output)),
        pico: bound.cost(sent).map(|cost| cost.pico),
    }
}

/// Returns the usage of a model call; `None` if unknown.
fn used(outcome: &Outcome) -> Option<Amount> {
    match outcome {
        Outcome::Reply(reply) => Some(amount(&reply.usage)),
        Outcome::Failed(error) => {
            let failure = ModelFailure::of(error);
            // A failure after the provider started work may be billed without reported usage: then the whole reservation counts.
            let is_known = !failure.spent.is_nothing() || failure.kind.costs_nothing();
            is_known.then(|| amount(&failure.spent))
        }
        _ => None,
    }
}

impl ThreadTurn<'_, '_> {
    /// Starts a model call, queues it, or returns its refusal.
    pub(in crate::run) fn model(&mut self, effect: thread::Effect) -> Option<(EffectId, Outcome)> {
        let (
            Some(ledger),
            thread::Effect::Model {
                id,
                node,
                request,
                choice,
                goes_on,
                ..
            },
        ) = (self.budget.as_deref_mut(), &effect)
        else {
            self.outside(effect);
            return None;
        };
        let id = *id;
        // Another workflow of the run has a budget, but neither this thread nor an ancestor walks it.
        let Some(account) = self.places.account(ledger, self.no) else {
            self.outside(effect);
            return None;
        };
        let graph = self.live.machine.graph();
        let chosen = ModelChoice::of(graph, *node, choice.as_deref(), goes_on.as_deref());
        let env = &*self.step.env;
        // Not called in a replay: the journaled maximum applies, because the profiles may have changed since.
        let most = ledger.most_of(self.no, id, || {
            let bound = env.call_bound(request.built(), &chosen);
            let most = most_of(&bound, request.tokens());
            let NodeKind::Llm(llm) = &graph.node(*node).kind else {
                return most;
            };
            let Some(format) = &llm.response_format else {
                return most;
            };
            // A reply that violates the format may be sent back with its errors: reserve budget for two requests.
            let tokenizer = env.tokenizer(graph);
            let complaint = tokenizer.count(&format.to_string()).saturating_add(COMPLAINT);
            // Without a known output both maxima are `None` already, and the value of `sent` is unused.
            let sent = request.tokens().saturating_add(bound.output.unwrap_or_default());
            most.and(most_of(&bound, sent.saturating_add(complaint)))
        });
        match ledger.ask(self.no, id, account, most, &effect) {
            CallDecision::Begins => self.outside(effect),
            // The ledger has a copy of the effect, which `ThreadLookup::release` starts.
            CallDecision::Waits => {}
            CallDecision::Refused(refusal) => {
                let error = self.places.error(ledger, refusal);
                return Some((id, Outcome::Failed(error)));
            }
        }
        None
    }

    /// Charges the outcome of a model call, or of a tool that called models.
    pub(in crate::run) fn settle(&mut self, effect: EffectId, outcome: &Outcome) {
        let Some(ledger) = self.budget.as_deref_mut() else {
            return;
        };
        let settled = match outcome {
            // `settle` ignores effects that are no open model call, for example a tool call that failed.
            Outcome::Reply(_) | Outcome::Failed(_) => ledger.settle(self.no, effect, used(outcome)),
            // Model calls of a tool are not known before it ends, so that they are counted without a reservation.
            Outcome::Tool(result) => result.spent.as_deref().and_then(|spent| {
                let account = self.places.account(ledger, self.no)?;
                Some(CallSettlement {
                    warnings: ledger.count(account, amount(spent)),
                    overrun: None,
                })
            }),
            _ => None,
        };
        if let Some(settled) = settled {
            self.settled(settled);
        }
    }

    /// Cancels a model call. Returns true if it was still queued and never sent.
    pub(in crate::run) fn give_up_call(&mut self, effect: EffectId) -> bool {
        let Some(ledger) = self.budget.as_deref_mut() else {
            return false;
        };
        let had_waited = ledger.cancel_call(self.no, effect);
        let settled = if had_waited {
            // Nothing was used, but the released claim may let later calls start: `settled` examines them.
            Some(CallSettlement::default())
        } else {
            // The request was sent, and a provider may bill a request that is dropped: the whole reservation counts.
            ledger.settle(self.no, effect, None)
        };
        if let Some(settled) = settled {
            self.settled(settled);
        }
        had_waited
    }

    fn settled(&mut self, settled: CallSettlement) {
        let Some(ledger) = self.budget.as_deref_mut() else {
            return;
        };
        let machine = &self.live.machine;
        let node_id = &machine.graph().node(machine.node()).id;
        let events = self.places.events(ledger, Some(node_id), settled);
        self.places.release(ledger, self.mailbox, self.step.out);
        for event in events {
            if self.step.listens(event.event_type) {
                // The event may hold the thread, which checks only at a safe point that follows this input.
                if self.step.listening.holding.contains(event.event_type) {
                    let message = ToThread::Input(Input::Raised);
                    self.mailbox.send(Message::Thread(self.no, message));
                }
                let trigger_depth = self.live.machine.trigger_depth();
                self.emit(event.at_depth(trigger_depth));
            }
        }
    }

    /// Returns the limit of tokens that applies to the thread, and the tokens used of it.
    pub(in crate::run) fn token_limit(&mut self) -> Option<(u64, u64)> {
        let ledger = self.budget.as_deref_mut()?;
        let account = self.places.account(ledger, self.no)?;
        ledger.token_limit(account)
    }

    /// Returns the budget note for the next model request: the figures above their warning threshold.
    pub(in crate::run) fn budget_note(&mut self) -> Option<String> {
        let ledger = self.budget.as_deref_mut()?;
        let account = self.places.account(ledger, self.no)?;
        let lines: Vec<String> = ledger
            .warnings(account)
            .map(|(account, Figure { kind, used, limit })| {
                let scope = if account.is_path { " of this path" } else { "" };
                let [used, limit] = [used, limit].map(|figure| shown(kind, figure));
                match kind {
                    FigureKind::Cost => format!("- Cost{scope}: {used} of {limit} used"),
                    FigureKind::Tokens => format!("- Tokens{scope}: {used} of {limit} used"),
                    FigureKind::ModelCalls => format!("- Model calls{scope}: {used} of {limit} made"),
                }
            })
            .collect();
        (!lines.is_empty()).then(|| format!("## Budget\n\n{}", lines.join("\n")))
    }
}

impl RunMachine {
    /// Cancels the calls of an ended thread.
    pub(in crate::run) fn budget_of_ended(&mut self, thread: ThreadNo, step: &mut Step<'_>) {
        let Self {
            budget,
            tree,
            graphs,
            mailbox,
            ..
        } = self;
        let Some(ledger) = budget.as_deref_mut() else { return };
        let places = ThreadLookup { tree, graphs };
        let calls = ledger.calls_of(thread);
        // The usual case: a thread drops its calls before it ends. A thread that panicked could not.
        if calls.is_empty() {
            return;
        }
        let mut events = Vec::new();
        for effect in calls {
            if !ledger.cancel_call(thread, effect)
                && let Some(settled) = ledger.settle(thread, effect, None)
            {
                events.extend(places.events(ledger, None, settled));
            }
        }
        places.release(ledger, mailbox, step.out);
        for event in events {
            if step.listens(event.event_type) {
                let thread_id = self.thread_id(thread);
                let trigger_depth = self.tree.trigger_depth(thread);
                step.emit(self.graph_of(thread), &thread_id, event.at_depth(trigger_depth));
            }
        }
    }

    /// Takes the maximum usages that were computed since the last input and that no record contains.
    pub fn take_calls(&mut self) -> Vec<Setting> {
        let calls = self.budget.as_deref_mut().map(Ledger::take_lately).unwrap_or_default();
        calls.into_iter().map(Setting::CallMaximum).collect()
    }

    /// Provides recorded maximum usages for the calls of a replayed step.
    pub(in crate::run) fn expect_calls(&mut self, recorded: &[Setting]) {
        let calls = recorded.iter().filter_map(|setting| match setting {
            Setting::CallMaximum(call) => Some(*call),
            _ => None,
        });
        let again: Vec<CallMaximum> = calls.collect();
        if !again.is_empty() {
            // The ledger may not exist yet: the workflow with the budget may be called only in the step that is repeated next.
            self.budget.get_or_insert_default().expect(again);
        }
    }

    /// Returns the main thread's budget for the report.
    pub(in crate::run) fn budget_report(&self) -> Option<Box<BudgetReport>> {
        let ledger = self.budget.as_deref()?;
        let mut report = BudgetReport::default();
        for Figure { kind, used, limit } in ledger.figures(0) {
            let [used, limit] = [used, limit].map(|figure| shown(kind, figure));
            let figure = Some(BudgetFigure { limit, used });
            match kind {
                FigureKind::Tokens => report.tokens = figure,
                FigureKind::Cost => report.cost = figure,
                FigureKind::ModelCalls => report.model_calls = figure,
            }
        }
        // A budget that limits only paths has no figures of the main thread.
        (report != BudgetReport::default()).then(|| Box::new(report))
    }
}
