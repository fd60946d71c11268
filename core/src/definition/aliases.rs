//! Other names that a field is read under. They are serde's `alias` attributes, listed where serde does not tell of them:
//! for the schema, for pointers, and for a misspelt field that is not to be reported as missing too.

/// A type, the name of one of its fields, and another name for that field.
pub(super) const ALIASES: [(&str, &str, &str); 6] = [
    ("NodeDefinition", "config", "data"),
    ("EdgeDefinition", "sourceNodeId", "from"),
    ("EdgeDefinition", "targetNodeId", "to"),
    ("VariableConfig", "variableName", "variable"),
    ("SetVariable", "variableName", "variable"),
    ("VariableDefinition", "value", "defaultValue"),
];

/// The field that a key names.
pub(super) fn canonical(key: &str) -> &str {
    let alias = ALIASES.iter().find(|(_, _, alias)| *alias == key);
    alias.map_or(key, |(_, field, _)| field)
}

/// The other names of a field.
pub(super) fn aliases_of(field: &str) -> impl Iterator<Item = &'static str> {
    ALIASES
        .iter()
        .filter(move |(_, own, _)| *own == field)
        .map(|(_, _, alias)| *alias)
}
