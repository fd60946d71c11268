//! The function `compressMessages`, which CODE can call.

use pirn_conversation::conversation::Tokenizer;
use pirn_conversation::conversation::compression::{Compression, CompressionContext, compress, finish_with_checklist};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Name of the function in CODE.
pub(super) const NAME: &str = "compressMessages";

/// `compressMessages(context)` or `compressMessages(messages, markMap, compressionConfig)` gives a CompressionResult.
///
/// The strategy `summarize` is `checklist` here and ignores its `profileId`, because a script cannot wait for a model.
pub(super) fn compress_messages(arguments: Vec<Value>, tokenizer: &dyn Tokenizer) -> Result<Value, String> {
    let context = context(arguments)?;
    let result = match compress(&context, tokenizer).map_err(|error| error.to_string())? {
        Compression::Done(result) => *result,
        Compression::Summarize(plan) => finish_with_checklist(&plan, None, tokenizer).result,
    };
    serde_json::to_value(result).map_err(|error| error.to_string())
}

fn context(arguments: Vec<Value>) -> Result<CompressionContext, String> {
    let mut arguments = arguments.into_iter();
    let mut fields = match arguments.next() {
        Some(Value::Object(context)) => context,
        Some(Value::Array(messages)) => {
            let names = ["markMap", "compressionConfig"].map(str::to_owned);
            let rest = names.into_iter().zip(arguments);
            let messages = ("messages".to_owned(), Value::Array(messages));
            [messages].into_iter().chain(rest).collect()
        }
        Some(_) | None => return Err("it takes a CompressionContext, or messages, markMap and config".to_owned()),
    };
    // Values that the workflow does not set are null or undefined in a script: treat them as absent.
    fields.retain(|_, value| !value.is_null());
    if !fields.contains_key("messages") {
        return Err("there are no `messages`".to_owned());
    }
    if let Some(Value::Object(config)) = fields.get_mut("compressionConfig") {
        drop_nulls(config);
    }
    CompressionContext::deserialize(Value::Object(fields)).map_err(|error| error.to_string())
}

fn drop_nulls(config: &mut Map<String, Value>) {
    config.retain(|_, value| !value.is_null());
}
