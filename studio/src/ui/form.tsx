// A form for a value: fields from a JSON Schema, or a text field for JSON where the schema is missing or too general.

import { useState } from "preact/hooks";
import type { Json, JsonObject } from "../types";
import { pretty } from "./format";

export interface FormProps {
  schema?: JsonObject | null;
  value: Json | undefined;
  onChange: (value: Json | undefined) => void;
  label?: string;
  /** Called with the reason while the text is no valid JSON, and with undefined once it is. */
  onInvalid?: (reason: string | undefined) => void;
}

const isObject = (value: unknown): value is JsonObject => typeof value === "object" && value !== null && !Array.isArray(value);
const typeOf = (schema: JsonObject): string | undefined => (Array.isArray(schema.type) ? schema.type.find((type) => type !== "null") : schema.type) as string | undefined;

/** The value of a schema that a form starts with. */
export function initial(schema: JsonObject | null | undefined): Json | undefined {
  if (!schema) return undefined;
  if (schema.default !== undefined) return schema.default;
  if (schema.const !== undefined) return schema.const;
  if (typeOf(schema) !== "object" || !isObject(schema.properties)) return undefined;
  const value: JsonObject = {};
  for (const [name, property] of Object.entries(schema.properties)) {
    const start = isObject(property) ? initial(property) : undefined;
    if (start !== undefined) value[name] = start;
  }
  return value;
}

export function ValueForm(props: FormProps) {
  const { schema } = props;
  if (schema && typeOf(schema) === "object" && isObject(schema.properties) && Object.keys(schema.properties).length > 0) return <ObjectForm {...props} schema={schema} />;
  if (schema && (schema.enum || schema.const !== undefined || ["string", "number", "integer", "boolean"].includes(typeOf(schema) ?? ""))) return <Field {...props} schema={schema} />;
  return <JsonField {...props} />;
}

function ObjectForm({ schema, value, onChange, label, onInvalid }: FormProps & { schema: JsonObject }) {
  const object = isObject(value) ? value : {};
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const set = (name: string, to: Json | undefined) => {
    const next = { ...object };
    if (to === undefined) delete next[name];
    else next[name] = to;
    onChange(next);
  };
  return (
    <fieldset class="form">
      {label && <legend>{label}</legend>}
      {Object.entries(schema.properties as JsonObject).map(([name, property]) => (
        <ValueForm
          key={name}
          schema={isObject(property) ? property : undefined}
          value={object[name]}
          label={`${(isObject(property) && (property.title as string)) || name}${required.has(name) ? " *" : ""}`}
          onChange={(to) => set(name, to)}
          onInvalid={onInvalid}
        />
      ))}
    </fieldset>
  );
}

function Field({ schema, value, onChange, label = "Value" }: FormProps & { schema: JsonObject }) {
  const type = typeOf(schema);
  const hint = typeof schema.description === "string" ? <span class="hint">{schema.description}</span> : null;
  if (Array.isArray(schema.enum)) {
    const options = schema.enum;
    return (
      <label class="field">
        {label}
        <select value={value === undefined ? "" : JSON.stringify(value)} onChange={(e) => onChange(e.currentTarget.value === "" ? undefined : (JSON.parse(e.currentTarget.value) as Json))}>
          <option value="" />
          {options.map((option) => <option value={JSON.stringify(option)}>{typeof option === "string" ? option : JSON.stringify(option)}</option>)}
        </select>
        {hint}
      </label>
    );
  }
  if (type === "boolean")
    return (
      <label class="field check">
        <input type="checkbox" checked={value === true} onChange={(e) => onChange(e.currentTarget.checked)} /> {label}
        {hint}
      </label>
    );
  if (type === "number" || type === "integer")
    return (
      <label class="field">
        {label}
        <input
          type="number"
          step={type === "integer" ? 1 : "any"}
          min={schema.minimum as number | undefined}
          max={schema.maximum as number | undefined}
          value={typeof value === "number" ? value : ""}
          onInput={(e) => onChange(e.currentTarget.value === "" ? undefined : Number(e.currentTarget.value))}
        />
        {hint}
      </label>
    );
  const long = typeof value === "string" && (value.length > 60 || value.includes("\n"));
  return (
    <label class="field">
      {label}
      {long ? (
        <textarea rows={4} value={value} onInput={(e) => onChange(e.currentTarget.value)} />
      ) : (
        <input value={typeof value === "string" ? value : ""} maxLength={schema.maxLength as number | undefined} onInput={(e) => onChange(e.currentTarget.value === "" ? undefined : e.currentTarget.value)} />
      )}
      {hint}
    </label>
  );
}

export function JsonField({ value, onChange, label = "JSON", onInvalid, rows = 6 }: FormProps & { rows?: number }) {
  const [text, setText] = useState(value === undefined ? "" : typeof value === "string" ? JSON.stringify(value) : pretty(value));
  const [reason, setReason] = useState<string | undefined>(undefined);
  const change = (to: string) => {
    setText(to);
    let invalid: string | undefined;
    try {
      onChange(to.trim() === "" ? undefined : (JSON.parse(to) as Json));
    } catch (error) {
      invalid = (error as Error).message;
    }
    setReason(invalid);
    onInvalid?.(invalid);
  };
  return (
    <label class="field">
      {label}
      <textarea class="mono" rows={rows} spellcheck={false} value={text} aria-invalid={reason !== undefined} onInput={(e) => change(e.currentTarget.value)} />
      {reason && <span class="invalid">{reason}</span>}
    </label>
  );
}
