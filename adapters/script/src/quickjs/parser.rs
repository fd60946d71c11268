//! A QuickJS parser that reports faults of snippets and never runs them.
//!
//! Its realm lacks the restrictions and functions of `prelude.js`, which take most of the time to create a realm. They are not
//! needed: no snippet can escape from the function that wraps it (see [`super::realm`]), and that function is never called.

use std::sync::Arc;
use std::time::Duration;

use pirn_definition::script::ScriptFault;
use rquickjs::{CaughtError, Context, Function, Runtime};

use super::interrupt::Interrupt;
use super::label::fresh_label;
use super::realm::{Form, evaluate, function, out_of_memory, thrown};
use crate::ExpressionLimits;

/// Time limit of compilation. Snippets are small, so only a stalled machine reaches it.
const TIME: Duration = Duration::from_secs(5);

/// A runtime and a context for parsing.
pub(crate) struct Parser {
    context: Context,
    interrupt: Arc<Interrupt>,
    spent: bool,
}

impl Parser {
    pub(crate) fn new() -> Result<Self, ScriptFault> {
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

    /// Returns whether a limit was exceeded: the parser must be replaced.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent
    }

    /// Parses a snippet without running it.
    pub(crate) fn parse(&mut self, source: &str, form: Form) -> Result<(), ScriptFault> {
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
            // QuickJS throws a plain value if it has no memory for an exception object.
            CaughtError::Value(_) => interrupted().unwrap_or_else(out_of_memory),
            CaughtError::Error(error) => interrupted().unwrap_or_else(|| ScriptFault::error(error.to_string())),
        }
    }
}

fn is_limit(fault: &ScriptFault) -> bool {
    fault.code == pirn_definition::error::RunErrorCode::ScriptLimitExceeded
}
