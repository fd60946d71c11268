//! JavaScript of Pirn itself, compiled once per process and loaded into each realm as bytecode.
//!
//! Parsing `prelude.js` takes several times longer than all other work for a new realm, and every CODE node has a new realm
//! (decision 0043). rquickjs loads bytecode only by an unsafe function, so that this file is the only one of the crate with unsafe code.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use rquickjs::module::WriteOptions;
use rquickjs::{Context, Ctx, Function, Module, Runtime};

use super::label::fresh_label;

/// A source that exports one function, and its bytecode.
pub(super) struct Library {
    source: &'static str,
    bytecode: OnceLock<Vec<u8>>,
}

/// Prepares a realm for snippets.
pub(super) static PRELUDE: Library = Library::new(include_str!("prelude.js"));

/// Host functions of script workflows.
pub(super) static WORKFLOW: Library = Library::new(include_str!("workflow.js"));

impl Library {
    const fn new(source: &'static str) -> Self {
        Self {
            source,
            bytecode: OnceLock::new(),
        }
    }

    /// Returns the function of the library in the realm of `ctx`.
    pub(super) fn function<'js>(&self, ctx: &Ctx<'js>) -> rquickjs::Result<Function<'js>> {
        let bytecode = self.bytecode()?;
        // SAFETY: the bytes must be bytecode that this version of QuickJS wrote. `compile` has written them in this process, only this
        // file can access them, and nothing changes them.
        let module = unsafe { Module::load(ctx.clone(), bytecode) }?;
        let (module, evaluated) = module.eval()?;
        evaluated.finish::<()>()?;
        module.get("default")
    }

    fn bytecode(&self) -> rquickjs::Result<&[u8]> {
        if let Some(bytecode) = self.bytecode.get() {
            return Ok(bytecode);
        }
        let bytecode = compile(self.source)?;
        Ok(self.bytecode.get_or_init(|| bytecode))
    }
}

fn compile(source: &str) -> rquickjs::Result<Vec<u8>> {
    let runtime = Runtime::new()?;
    let context = Context::full(&runtime)?;
    context.with(|ctx| {
        // A random name, because `import()` of a snippet finds the loaded modules of its realm by their names.
        let module = Module::declare(ctx, fresh_label(), source)?;
        module.write(WriteOptions {
            strip_source: true,
            strip_debug: true,
            ..WriteOptions::default()
        })
    })
}
