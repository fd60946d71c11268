//! `pirn context convert`: converts a conversation to another format.

use std::sync::Arc;

use clap::ValueEnum;
use pirn::formats::{self, Format};
use pirn_conversation::conversation::{Estimator, repair_tool_pairs};
use pirn_definition::message::Message;
use serde_json::Value;

use super::input::{BadInput, conversation, json_of, of_format};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The conversation; - for stdin
    pub(super) file: String,
    /// The format of the input (default: detected)
    #[arg(long, value_name = "FORM")]
    from: Option<Form>,
    /// The format to write; a conversation with archived messages is reduced to the visible ones
    #[arg(long, value_name = "FORM")]
    to: Form,
}

#[derive(Clone, Copy, ValueEnum)]
enum Form {
    Pirn,
    Openai,
    Anthropic,
    Gemini,
}

impl From<Form> for Format {
    fn from(form: Form) -> Self {
        match form {
            Form::Pirn => Self::Pirn,
            Form::Openai => Self::OpenAi,
            Form::Anthropic => Self::Anthropic,
            Form::Gemini => Self::Gemini,
        }
    }
}

/// Converts a conversation. For a provider's format, calls without a result get one and results without a call are dropped, since
/// providers reject both.
pub(super) fn converted(args: &Args, text: &str) -> Result<Value, BadInput> {
    let read = formats::read(&json_of(text)?, args.from.map(Format::from)).map_err(|error| of_format(&error))?;
    let messages = read.messages.into_iter().map(Arc::new).collect();
    let history = conversation(messages, read.mark_map, &Estimator)?;
    let mut visible: Vec<Arc<Message>> = history.visible().messages();
    let to = Format::from(args.to);
    if to != Format::Pirn {
        visible = repair_tool_pairs(visible, Arc::new).0;
    }
    formats::write(&visible, to).map_err(|error| of_format(&error))
}
