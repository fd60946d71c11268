//! The realm that expressions share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pirn_definition::script::place;
use pirn_definition::script::{Names, Path, Scope, ScopeValues, ScriptFault};
use serde_json::Value;

use crate::placeholder::Shifts;
use crate::quickjs::realm::{Compiled, Form, Realm, Run, out_of_memory, placeholder_call};
use crate::quickjs::realm_options::RealmOptions;
use crate::{ExpressionLimits, HostFunctions, placeholder};

/// Evaluator of expressions that need JavaScript.
pub(super) trait JavaScript {
    /// The value.
    fn value(&mut self, script: &Script, scope: &dyn Scope, time: Duration) -> Result<Value, ScriptFault>;
    /// Returns whether the value is truthy.
    fn truth(&mut self, script: &Script, scope: &dyn Scope, time: Duration) -> Result<bool, ScriptFault>;
}

/// An expression in the form that JavaScript evaluates.
pub(super) struct Script {
    id: u64,
    /// The original source.
    pub(super) text: Arc<str>,
    /// The names that the expression uses.
    pub(super) names: Names,
    source: String,
    paths: Arc<[Path]>,
    rewritten: Shifts,
}

impl Script {
    pub(super) fn read(text: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut names = Names::of(text);
        let (source, paths, rewritten) = match placeholder::rewrite(text, placeholder_call) {
            Some(rewritten) => (rewritten.source, rewritten.paths, rewritten.shifts),
            None => (text.to_owned(), Vec::new(), Shifts::default()),
        };
        for path in &paths {
            path.note(&mut names);
        }
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            text: text.into(),
            names,
            source,
            paths: paths.into(),
            rewritten,
        }
    }

    /// Returns the fault with its position in the original source, and the source.
    fn placed(&self, mut fault: ScriptFault) -> ScriptFault {
        let Some(Value::Object(details)) = &mut fault.details else {
            return fault;
        };
        let number = |name: &str| u32::try_from(details.get(name)?.as_u64()?).ok();
        if let Some((line, column)) = number("line").zip(number("column")) {
            let column = place::column_of_bytes(&self.source, line, column);
            let offset = self.rewritten.original(place::offset(&self.source, line, column));
            let (line, column) = place::line_and_column(&self.text, offset);
            details.extend([
                ("line".to_owned(), line.into()),
                ("column".to_owned(), column.into()),
                ("expression".to_owned(), (&*self.text).into()),
            ]);
        }
        fault
    }
}

/// A realm, created with the first expression, and the snippets compiled in it.
pub(super) struct Expressions {
    limits: ExpressionLimits,
    compiled: HashMap<u64, Result<Compiled, ScriptFault>>,
    realm: Option<Realm>,
}

impl Expressions {
    pub(super) fn new(limits: ExpressionLimits) -> Self {
        Self {
            limits,
            compiled: HashMap::new(),
            realm: None,
        }
    }

    /// Runs a snippet. If it runs out of memory in a realm that others have used, it is run again in a fresh one, because their
    /// residue may be the cause.
    fn run<R>(
        &mut self,
        script: &Script,
        scope: &dyn Scope,
        time: Duration,
        body: impl Fn(&mut Realm, &Compiled, Run) -> Result<R, ScriptFault>,
    ) -> Result<R, ScriptFault> {
        let was_used = self.realm.as_ref().is_some_and(|realm| !realm.is_spent());
        match self.attempt(script, scope, time, &body) {
            Err(fault) if was_used && fault == out_of_memory() => self.attempt(script, scope, time, body),
            result => result,
        }
    }

    /// Runs one attempt. No handle to a compiled snippet outlives this call, because the next attempt may replace the realm that
    /// owns it.
    fn attempt<R>(
        &mut self,
        script: &Script,
        scope: &dyn Scope,
        time: Duration,
        body: impl Fn(&mut Realm, &Compiled, Run) -> Result<R, ScriptFault>,
    ) -> Result<R, ScriptFault> {
        let is_spent = self.realm.as_ref().is_some_and(Realm::is_spent);
        if is_spent || self.compiled.len() >= self.limits.cached {
            self.compiled.clear();
        }
        if is_spent {
            self.realm = None;
        }
        let realm = match &mut self.realm {
            Some(realm) => realm,
            none => none.insert(Realm::new(&RealmOptions {
                memory: self.limits.memory,
                stack: self.limits.stack,
                shared: true,
                functions: Arc::new(HostFunctions::default()),
            })?),
        };
        let compiled = self
            .compiled
            .entry(script.id)
            .or_insert_with(|| realm.compile(&script.source, Form::Expression, &script.names))
            .clone()?;
        let scope = ScopeValues::capture(&script.names, scope);
        let run = Run {
            unknown: scope.unknown(&script.names),
            scope,
            paths: script.paths.clone(),
            seed: None,
            now: None,
            time,
            stop: None,
        };
        body(realm, &compiled, run)
    }
}

impl JavaScript for Expressions {
    fn value(&mut self, script: &Script, scope: &dyn Scope, time: Duration) -> Result<Value, ScriptFault> {
        self.run(script, scope, time, Realm::value)
            .map_err(|fault| script.placed(fault))
    }

    fn truth(&mut self, script: &Script, scope: &dyn Scope, time: Duration) -> Result<bool, ScriptFault> {
        self.run(script, scope, time, Realm::truth)
            .map_err(|fault| script.placed(fault))
    }
}

impl Drop for Expressions {
    fn drop(&mut self) {
        // Compiled snippets belong to the realm's runtime and must be dropped first.
        self.compiled.clear();
    }
}
