//! A log in memory, at every level.

use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

static LISTENS: AtomicBool = AtomicBool::new(false);
static SAID: Mutex<String> = Mutex::new(String::new());

/// Runs `work`; returns the log of all threads during it, at every level.
pub(crate) fn of(work: impl FnOnce()) -> String {
    // The other tests of this process install no subscriber.
    tracing::subscriber::set_global_default(All).expect("nobody else listens");
    LISTENS.store(true, Ordering::SeqCst);
    work();
    LISTENS.store(false, Ordering::SeqCst);
    std::mem::take(&mut *SAID.lock().unwrap_or_else(PoisonError::into_inner))
}

struct All;

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("memory");
    }
}

fn say(metadata: &Metadata<'_>, fields: impl FnOnce(&mut Fields<'_>)) {
    let mut line = format!("{} {}", metadata.level(), metadata.target());
    fields(&mut Fields(&mut line));
    line.push('\n');
    SAID.lock().unwrap_or_else(PoisonError::into_inner).push_str(&line);
}

impl Subscriber for All {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        LISTENS.load(Ordering::Relaxed)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        say(span.metadata(), |fields| span.record(fields));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        say(event.metadata(), |fields| event.record(fields));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
