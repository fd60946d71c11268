//! A QuickJS that reads texts for their faults and never runs one.
//!
//! It has nothing of what `prelude.js` takes away, bounds and gives: no text gets out of the function that it is wrapped in
//! (see [`super::realm`]), and that function is never called. Making a realm is mostly running the prelude.

use std::sync::Arc;
use std::time::Duration;

use pirn_core::script::ScriptFault;
use rquickjs::{CaughtError, Context, Function, Runtime};

use super::ExpressionLimits;
use super::interrupt::Interrupt;
use super::realm::{Form, evaluate, fresh_label, function, out_of_memory, thrown};

/// Time limit of compilation. Snippets are small, so only a stalled machine reaches it.
const TIME: Duration = Duration::from_secs(5);

/// A runtime and a context that texts are read in.
pub(super) struct Parser {
    context: Context,
    interrupt: Arc<Interrupt>,
    spent: bool,
}

impl Parser {
    pub(super) fn new() -> Result<Self, ScriptFault> {
        Self::build().map_err(|error| ScriptFault::limit(format!("no JavaScript realm could be made: {error}")))
    }

    fn build() -> rquickjs::Result<Self> {
        let limits = ExpressionLimits::default();
        let runtime = Runtime::new()?;
        runtime.set_memory_limit(limits.memory);
        runtime.set_max_stack_size(limits.stack);
        let interrupt = Arc::new(Interrupt::new());
        let polled = interrupt.clone();
        runtime.set_interrupt_handler(Some(Box::new(move || polled.must_stop())));
        Ok(Self {
            context: Context::full(&runtime)?,
            interrupt,
            spent: false,
        })
    }

    /// True once a limit was hit: make a new one.
    pub(super) fn is_spent(&self) -> bool {
        self.spent
    }

    /// Parses a text; nothing of it runs.
    pub(super) fn parse(&mut self, source: &str, form: Form) -> Result<(), ScriptFault> {
        let text = format!("0, {}", function(source, form, &fresh_label()));
        self.interrupt.begin(TIME, None);
        let parsed = self.context.with(|ctx| {
            let function = evaluate::<Function<'_>>(&ctx, text);
            function
                .map(drop)
                .map_err(|error| self.fault(CaughtError::from_error(&ctx, error)))
        });
        self.spent |= self.interrupt.interruption().is_some() || parsed.as_ref().is_err_and(is_limit);
        self.interrupt.end();
        parsed
    }

    fn fault(&self, caught: CaughtError<'_>) -> ScriptFault {
        let interrupted = || self.interrupt.interruption().map(ScriptFault::from);
        match caught {
            CaughtError::Exception(exception) => thrown(&exception, interrupted, || None),
            // what QuickJS throws when it has no memory left for an exception
            CaughtError::Value(_) => interrupted().unwrap_or_else(out_of_memory),
            CaughtError::Error(error) => interrupted().unwrap_or_else(|| ScriptFault::error(error.to_string())),
        }
    }
}

fn is_limit(fault: &ScriptFault) -> bool {
    fault.code == pirn_core::error::RunErrorCode::ScriptLimitExceeded
}
