//! Aliases of fields. They duplicate serde's `alias` attributes, which cannot be queried, for the schema, for pointers, and so
//! that a misspelt field is not also reported as missing.

/// A type, the name of one of its fields, and another name for that field.
pub(super) const ALIASES: [(&str, &str, &str); 6] = [
    ("NodeDefinition", "config", "data"),
    ("EdgeDefinition", "sourceNodeId", "from"),
    ("EdgeDefinition", "targetNodeId", "to"),
    ("VariableConfig", "variableName", "variable"),
    ("SetVariable", "variableName", "variable"),
    ("VariableDefinition", "value", "defaultValue"),
];

/// Returns the canonical name of a key.
pub(super) fn canonical(key: &str) -> &str {
    let alias = ALIASES.iter().find(|(_, _, alias)| *alias == key);
    alias.map_or(key, |(_, field, _)| field)
}

/// Returns the aliases of a field.
pub(super) fn aliases_of(field: &str) -> impl Iterator<Item = &'static str> {
    ALIASES
        .iter()
        .filter(move |(_, own, _)| *own == field)
        .map(|(_, _, alias)| *alias)
}
