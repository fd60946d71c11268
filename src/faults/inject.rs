//! Wrappers that inject faults into models and tools.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::host::{Chance, WorkClock};
use pirn_actors::journal::Graphs;
use pirn_actors::ports::{AskedCall, Model, ModelCall, ModelSession, Models, Ports, ToolOutcome, ToolSpec, Tools};
use pirn_conversation::conversation::{MessageRules, ModelRequest};
use pirn_conversation::model_call::CallBound;
use pirn_core::thread::{ModelReply, ToolResult};
use pirn_definition::Millis;
use pirn_definition::definition::{InDoubt, Profile};
use pirn_definition::error::{RunError, RunErrorCode};
use serde_json::{Map, Value};

use super::{Faults, Rates};

/// Wraps the models and tools of an engine; `seed` determines which calls fail, in the order of the calls.
pub(crate) fn inject(ports: &mut Ports, faults: Faults, seed: u64) {
    // No wrapper, so that an engine without faults pays nothing for each call.
    if faults.is_empty() {
        return;
    }
    let dice = Dice(Arc::new(Mutex::new(Chance::new(seed))));
    ports.models = Arc::new(FaultyModels {
        models: Arc::clone(&ports.models),
        rates: faults.models,
        dice: dice.clone(),
    });
    ports.tools = Arc::new(FaultyTools {
        tools: Arc::clone(&ports.tools),
        rates: faults.tools,
        dice,
    });
}

/// Random generator, used when a call is made: under virtual time the order is determined by the seed.
#[derive(Clone)]
struct Dice(Arc<Mutex<Chance>>);

/// The injected faults of one call.
#[derive(Clone, Copy)]
struct Fate {
    late_ms: Millis,
    end: End,
}

#[derive(Clone, Copy)]
enum End {
    Good,
    Fails,
    Stalls(Millis),
}

impl Dice {
    fn fate(&self, rates: &Rates) -> Fate {
        let chance = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // 53 bits: the resolution of a double between 0 and 1.
        let drawn = || (chance.next() >> 11) as f64 / (1_u64 << 53) as f64;
        // Every call draws three numbers whatever its rates are, so that a changed rate does not shift the faults of later calls.
        let (late, end) = (drawn(), drawn());
        let (from, to) = rates.late_ms;
        // The range includes both ends. If it contains every value, their number overflows, so the addition saturates.
        let spread = to.saturating_sub(from).saturating_add(1);
        let late_ms = from + chance.next() % spread.max(1);
        Fate {
            late_ms: if late < rates.late { late_ms } else { 0 },
            end: if end < rates.fail {
                End::Fails
            } else if end < rates.fail + rates.stall {
                End::Stalls(rates.stall_ms)
            } else {
                End::Good
            },
        }
    }
}

impl Fate {
    /// Waits for the injected delay. Returns an error if the call must not be made.
    async fn pass(self, clock: &WorkClock) -> Result<(), String> {
        if self.late_ms > 0 {
            clock.sleep(self.late_ms).await;
        }
        match self.end {
            End::Good => Ok(()),
            End::Fails => Err("a fault of the configuration: it failed".to_owned()),
            End::Stalls(after) => {
                clock.sleep(after).await;
                Err(format!("a fault of the configuration: no answer in {after} ms"))
            }
        }
    }
}

fn rates_of(rates: &BTreeMap<String, Rates>, name: &str) -> Option<Rates> {
    rates.get(name).or_else(|| rates.get("*")).copied()
}

struct FaultyModels {
    models: Arc<dyn Models>,
    rates: BTreeMap<String, Rates>,
    dice: Dice,
}

impl Models for FaultyModels {
    fn choose(&self, profile_id: Option<&str>) -> (Arc<Profile>, Arc<dyn Model>) {
        let (profile, model) = self.models.choose(profile_id);
        let Some(rates) = rates_of(&self.rates, &profile.id) else {
            return (profile, model);
        };
        let dice = self.dice.clone();
        (profile, Arc::new(FaultyModel { model, rates, dice }))
    }

    fn of_run(&self, graphs: &Graphs) -> Option<Arc<dyn Models>> {
        let models = self.models.of_run(graphs)?;
        Some(Arc::new(Self {
            models,
            rates: self.rates.clone(),
            dice: self.dice.clone(),
        }))
    }
}

struct FaultyModel {
    model: Arc<dyn Model>,
    rates: Rates,
    dice: Dice,
}

impl Model for FaultyModel {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        // Drawn when the call is made and not when the future is polled, whose order depends on the work runtime.
        let fate = self.dice.fate(&self.rates);
        let model = Arc::clone(&self.model);
        async move {
            let failed = |message| RunError::new(RunErrorCode::ModelError, message);
            // Before the call: a call that fails must have had no effect.
            fate.pass(&call.clock).await.map_err(failed)?;
            model.call(call).await
        }
        .boxed()
    }

    fn answered(&self, request: &ModelRequest, session: &ModelSession) {
        self.model.answered(request, session);
    }

    fn is_external(&self) -> bool {
        self.model.is_external()
    }

    fn call_bound(&self, request: &ModelRequest, parameters: &Map<String, Value>) -> CallBound {
        self.model.call_bound(request, parameters)
    }

    fn message_rules(&self) -> MessageRules {
        self.model.message_rules()
    }
}

struct FaultyTools {
    tools: Arc<dyn Tools>,
    rates: BTreeMap<String, Rates>,
    dice: Dice,
}

impl Tools for FaultyTools {
    fn specs(&self, names: &[Arc<str>]) -> Vec<ToolSpec> {
        self.tools.specs(names)
    }

    fn in_doubt(&self, name: &str, is_consented: bool) -> Option<InDoubt> {
        self.tools.in_doubt(name, is_consented)
    }

    fn is_external(&self, name: &str) -> bool {
        self.tools.is_external(name)
    }

    fn call(&self, names: &[Arc<str>], asked: AskedCall, clock: WorkClock) -> BoxFuture<'static, ToolOutcome> {
        let Some(rates) = rates_of(&self.rates, &asked.call.name) else {
            return self.tools.call(names, asked, clock);
        };
        let fate = self.dice.fate(&rates);
        let (tools, names) = (Arc::clone(&self.tools), names.to_vec());
        async move {
            match fate.pass(&clock).await {
                Ok(()) => tools.call(&names, asked, clock).await,
                Err(content) => ToolOutcome::Result(ToolResult::failed(content)),
            }
        }
        .boxed()
    }

    fn close(&self) {
        self.tools.close();
    }
}
