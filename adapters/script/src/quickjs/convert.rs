//! JSON to JavaScript and back.
//!
//! Conversion to JavaScript is lossless except for integers beyond 2^53, which a double cannot represent. Conversion back accepts
//! JSON values only: `undefined` becomes `null`, members that are `undefined` are omitted, and values that would change silently
//! (`NaN`, a function, a `Map`) are errors with their location.

use rquickjs::{Ctx, Error, Function, IntoJs, Object, String as JsString, Value as JsValue, atom::PredefinedAtom};
use serde_json::{Map, Number, Value};

use super::interrupt::Interrupt;

/// Maximum nesting of lists and objects in a result. A deeper result could not be parsed from JSON text again.
pub(crate) const DEEPEST: usize = pirn_definition::value::MAX_LEVELS;

/// Integers beyond this value are not exactly representable as a double.
const LARGEST_EXACT: f64 = 9_007_199_254_740_992.0;

/// Converts a JSON value to a value of a realm.
pub(crate) fn to_js<'js>(ctx: &Ctx<'js>, value: &Value) -> rquickjs::Result<JsValue<'js>> {
    match value {
        Value::Null => Ok(JsValue::new_null(ctx.clone())),
        Value::Bool(truth) => Ok(JsValue::new_bool(ctx.clone(), *truth)),
        Value::Number(number) => Ok(JsValue::new_number(ctx.clone(), number.as_f64().unwrap_or(f64::NAN))),
        Value::String(text) => text.as_str().into_js(ctx),
        Value::Array(_) | Value::Object(_) => ctx.json_parse(value.to_string()),
    }
}

/// Reasons why a result is not JSON.
#[derive(Debug)]
pub(crate) enum NotJson {
    /// The result contains a value that JSON cannot represent.
    Holds {
        /// Description of the value: `a function`.
        what: String,
        /// Path of the value, from the innermost member outwards.
        at: Vec<String>,
    },
    /// The result is too large, or the time limit was exceeded.
    TooLarge,
    /// A getter or `toJSON` of the result threw.
    Threw(Error),
}

impl From<Error> for NotJson {
    fn from(error: Error) -> Self {
        Self::Threw(error)
    }
}

impl NotJson {
    fn holds(what: impl Into<String>) -> Self {
        Self::Holds {
            what: what.into(),
            at: Vec::new(),
        }
    }

    fn within(self, member: String) -> Self {
        match self {
            Self::Holds { what, mut at } => {
                at.push(member);
                Self::Holds { what, at }
            }
            Self::TooLarge | Self::Threw(_) => self,
        }
    }
}

/// Converts results and counts their size, so that a small object graph that expands to a huge tree is detected.
pub(crate) struct Reader<'a, 'js> {
    /// Replaces unpaired surrogates, which JSON strings cannot contain.
    well_formed: &'a Function<'js>,
    /// Interrupts long conversions.
    interrupt: &'a Interrupt,
    /// Remaining bytes of the result's limit.
    budget: usize,
    taken: u32,
}

impl<'a, 'js> Reader<'a, 'js> {
    /// Creates a reader of a result of at most `budget` bytes.
    pub(crate) fn new(well_formed: &'a Function<'js>, interrupt: &'a Interrupt, budget: usize) -> Self {
        Self {
            well_formed,
            interrupt,
            budget,
            taken: 0,
        }
    }

    /// Converts a JavaScript value to JSON.
    pub(crate) fn read(&mut self, value: &JsValue<'js>) -> Result<Value, NotJson> {
        Ok(self.value(value, 0)?.unwrap_or(Value::Null))
    }

    /// Returns `None` for `undefined`.
    fn value(&mut self, value: &JsValue<'js>, depth: usize) -> Result<Option<Value>, NotJson> {
        self.take(32)?;
        if value.is_undefined() {
            return Ok(None);
        }
        if value.is_null() {
            return Ok(Some(Value::Null));
        }
        if let Some(truth) = value.as_bool() {
            return Ok(Some(Value::Bool(truth)));
        }
        if let Some(number) = value.as_int() {
            return Ok(Some(Value::from(number)));
        }
        if let Some(number) = value.as_float() {
            return float(number).map(Some);
        }
        if let Some(text) = value.as_string() {
            return Ok(Some(Value::String(self.text(text)?)));
        }
        if value.is_function() {
            return Err(NotJson::holds("a function"));
        }
        if value.is_symbol() {
            return Err(NotJson::holds("a symbol"));
        }
        if value.is_big_int() {
            return Err(NotJson::holds("a BigInt (convert it with Number or String)"));
        }
        if value.is_promise() {
            return Err(NotJson::holds("a promise (await it)"));
        }
        if depth >= DEEPEST {
            return Err(NotJson::holds(format!("itself, or more than {DEEPEST} levels")));
        }
        if let Some(list) = value.as_array() {
            return self.list(list.as_object(), depth).map(Some);
        }
        match value.as_object() {
            Some(object) => self.object(object, depth),
            None => Err(NotJson::holds("something that JSON does not have")),
        }
    }

    fn list(&mut self, list: &Object<'js>, depth: usize) -> Result<Value, NotJson> {
        // `Array::len` would panic if the length exceeds 2^31.
        let length = list.get::<_, f64>("length")? as usize;
        let mut items = Vec::new();
        for index in 0..length {
            let key = u32::try_from(index).map_err(|_| NotJson::TooLarge)?;
            let item: JsValue<'js> = list.get(key)?;
            let item = self
                .value(&item, depth + 1)
                .map_err(|error| error.within(format!("[{index}]")))?;
            items.push(item.unwrap_or(Value::Null));
        }
        Ok(Value::Array(items))
    }

    fn object(&mut self, object: &Object<'js>, depth: usize) -> Result<Option<Value>, NotJson> {
        let to_json: JsValue<'js> = object.get(PredefinedAtom::ToJSON)?;
        if let Some(to_json) = to_json.into_function() {
            let value: JsValue<'js> = to_json.call((rquickjs::function::This(object.clone()),))?;
            return self.value(&value, depth + 1);
        }
        if object.is_error() {
            let mut fields = Map::new();
            for field in ["name", "message"] {
                let text: JsValue<'js> = object.get(field)?;
                fields.insert(field.to_owned(), self.value(&text, depth + 1)?.unwrap_or(Value::Null));
            }
            return Ok(Some(Value::Object(fields)));
        }
        let tag: JsValue<'js> = object.get(PredefinedAtom::SymbolToStringTag)?;
        if let Some(tag) = tag.as_string() {
            let tag = self.text(tag)?;
            return Err(NotJson::holds(format!("a {tag} (make it a list or a plain object)")));
        }
        let mut fields = Map::new();
        for key in object.keys::<JsString<'js>>() {
            let key = key?;
            let name = self.text(&key)?;
            let field: JsValue<'js> = object.get(key)?;
            let field = self
                .value(&field, depth + 1)
                .map_err(|error| error.within(name.clone()))?;
            if let Some(field) = field {
                fields.insert(name, field);
            }
        }
        Ok(Some(Value::Object(fields)))
    }

    fn text(&mut self, text: &JsString<'js>) -> Result<String, NotJson> {
        let text = match text.to_string() {
            Err(Error::Utf8(_)) => self
                .well_formed
                .call::<_, JsString<'js>>((text.clone(),))?
                .to_string()?,
            other => other?,
        };
        self.take(text.len())?;
        Ok(text)
    }

    fn take(&mut self, bytes: usize) -> Result<(), NotJson> {
        self.budget = self.budget.checked_sub(bytes).ok_or(NotJson::TooLarge)?;
        self.taken = self.taken.wrapping_add(1);
        if self.taken.is_multiple_of(1024) && self.interrupt.must_stop() {
            return Err(NotJson::TooLarge);
        }
        Ok(())
    }
}

fn float(number: f64) -> Result<Value, NotJson> {
    if number.fract() == 0.0 && number.abs() <= LARGEST_EXACT {
        return Ok(Value::from(number as i64));
    }
    Number::from_f64(number)
        .map(Value::Number)
        .ok_or_else(|| NotJson::holds(format!("{number}, which is no number")))
}

/// Describes an invalid value and its location in `whole`.
pub(crate) fn describe(whole: &str, what: &str, at: &[String]) -> String {
    if at.is_empty() {
        return format!("{whole} is {what}");
    }
    let path: String = at
        .iter()
        .rev()
        .map(|member| {
            if member.starts_with('[') {
                member.clone()
            } else {
                format!(".{member}")
            }
        })
        .collect();
    format!("{whole} holds {what} at `{}`", path.trim_start_matches('.'))
}
