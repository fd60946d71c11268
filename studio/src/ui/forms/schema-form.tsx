// Forms generated from JSON Schema. The form edits a JSON value; the same value can be edited as JSON text.

import { isObject, stringify } from "../../data/json";
import { useMemo, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { type Field, fieldOf, numberFrom, parseJson, type Problem, problems, type Schema, withProperty } from "../../data/schema";
import type { Json } from "../../types";
import { choiceTexts } from "../text/format";
import { useId } from "../id";
import { ProblemBox, toProblem } from "../resource";
import type { Problem as ApiProblem } from "../../api";

interface FormState {
  root: Schema;
  /** Problems by pointer; shown after the first attempt to send. */
  problems: Map<string, string[]>;
}

export interface JsonFormProps {
  /** Without a schema, the value is edited as JSON text. */
  schema?: Schema | null;
  initial?: Json;
  /** Text of the button. */
  submit: string;
  onSubmit: (value: Json | undefined) => Promise<void>;
  /** Further fields before the button. */
  children?: ComponentChildren;
  /** Further buttons. */
  buttons?: ComponentChildren;
  /** Name of the value in the text editor. */
  label?: string;
  /** The value is fixed, and only the buttons are shown. */
  isHidden?: boolean;
  /** The value may be absent. */
  isOptional?: boolean;
}

/** A form with a button: checks the value, sends it, and shows the service's problem if it refuses. */
export function JsonForm(props: JsonFormProps) {
  const schema = props.schema ?? true;
  const root = useMemo(() => fieldOf(schema, schema, "", !props.isOptional), [schema]);
  const canBeForm = root.kind !== "json";
  const [asText, setAsText] = useState(!canBeForm);
  const [value, setValue] = useState<Json | undefined>(props.initial ?? root.initial);
  const [text, setText] = useState(() => textOf(props.initial ?? root.initial));
  const [attempted, setAttempted] = useState(false);
  const [refused, setRefused] = useState<ApiProblem>();
  const [busy, setBusy] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  const id = useId();

  const parsed = asText && text.trim() !== "" ? parseJson(text) : undefined;
  const current = asText ? (parsed && "value" in parsed ? parsed.value : undefined) : value;
  const found = parsed && "error" in parsed ? [] : problems(current, schema);
  const byPointer = new Map<string, string[]>();
  if (attempted) for (const { pointer, message } of found) byPointer.set(pointer, [...(byPointer.get(pointer) ?? []), message]);
  const syntax = parsed && "error" in parsed ? parsed.error : undefined;

  const toggle = () => {
    if (asText && parsed && "value" in parsed) setValue(parsed.value);
    if (!asText) setText(textOf(value));
    setAsText(!asText);
  };
  const submit = async (event: Event) => {
    event.preventDefault();
    setAttempted(true);
    setRefused(undefined);
    const isEmptyAllowed = (schema === true || props.isOptional) && current === undefined;
    if (syntax || (found.length > 0 && !isEmptyAllowed)) {
      requestAnimationFrame(() => form.current?.querySelector<HTMLElement>('[aria-invalid="true"], .invalid')?.focus());
      return;
    }
    setBusy(true);
    try {
      await props.onSubmit(current);
    } catch (error) {
      setRefused(toProblem(error));
    } finally {
      setBusy(false);
    }
  };

  return (
    <form ref={form} class="form" noValidate onSubmit={submit}>
        {props.isHidden ? null : asText ? (
          <div class="field">
            <label for={`${id}-text`}>{props.label ?? "Value"} (JSON)</label>
            <textarea
              id={`${id}-text`}
              class="code"
              spellcheck={false}
              rows={Math.min(16, Math.max(3, text.split("\n").length + 1))}
              value={text}
              aria-invalid={attempted && (syntax !== undefined || found.length > 0)}
              aria-describedby={`${id}-problems`}
              onInput={(event) => setText(event.currentTarget.value)}
            />
            <div id={`${id}-problems`} aria-live="polite">
              {attempted && syntax && <p class="invalid">{syntax}</p>}
              {attempted && !syntax && (schema !== true || text.trim() !== "") && found.map((one) => <PointerProblem key={one.pointer + one.message} problem={one} />)}
            </div>
          </div>
        ) : (
          <FieldInput form={{ root: schema, problems: byPointer }} field={root} value={value} pointer="" onChange={setValue} isRoot />
        )}
      {props.children}
      {refused && <ProblemBox problem={refused} />}
      <div class="actions">
        <button type="submit" class="primary" disabled={busy}>
          {busy ? "Sending…" : props.submit}
        </button>
        {props.buttons}
        {(root.kind === "object" || root.kind === "list") && (
          <button type="button" class="link" onClick={toggle} disabled={asText && syntax !== undefined}>
            {asText ? "Edit as a form" : "Edit as JSON"}
          </button>
        )}
      </div>
    </form>
  );
}

const textOf = (value: Json | undefined): string => (value === undefined ? "" : stringify(value, 2));

function PointerProblem({ problem }: { problem: Problem }) {
  return (
    <p class="invalid">
      {problem.pointer && <code>{problem.pointer}</code>} {problem.message}
    </p>
  );
}

interface InputProps {
  form: FormState;
  field: Field;
  value: Json | undefined;
  pointer: string;
  onChange: (value: Json | undefined) => void;
  isRoot?: boolean;
}

/** The input of a field with its label, description and problems. */
function FieldInput(props: InputProps) {
  const { form, field, pointer, isRoot } = props;
  const id = useId();
  const messages = form.problems.get(pointer) ?? [];
  const isGroup = field.kind === "object" || field.kind === "list" || isRadio(field);
  const about = { id, describedBy: `${id}-about`, isInvalid: messages.length > 0 };
  const title = field.title || (isRoot ? "" : "Value");
  const notes = (
    <div id={about.describedBy}>
      {field.description && <p class="hint">{field.description}</p>}
      {messages.map((message) => (
        <p key={message} class="invalid">
          {title || "The value"} {message}
        </p>
      ))}
    </div>
  );
  const requirement = field.isRequired ? isRoot ? null : <span class="dim"> (required)</span> : null;
  if (isGroup) {
    return (
      <fieldset class={isRoot ? "field root" : "field"} aria-describedby={about.describedBy} tabIndex={messages.length ? -1 : undefined}>
        {title && (
          <legend>
            {title}
            {requirement}
          </legend>
        )}
        {notes}
        <GroupInput {...props} />
      </fieldset>
    );
  }
  return (
    <div class={`field ${field.kind === "boolean" ? "check" : ""}`}>
      {field.kind !== "boolean" && (
        <label for={id}>
          {title || "Value"}
          {requirement}
        </label>
      )}
      <SimpleInput {...props} {...about} title={title} />
      {notes}
    </div>
  );
}

const isRadio = (field: Field): boolean => field.kind === "choice" && field.choices!.length <= 5;

function GroupInput({ form, field, value, pointer, onChange, isRoot }: InputProps) {
  if (field.kind === "object") {
    const object = isObject(value) ? value : {};
    return (
      <>
        {field.properties!.map(({ name, field: inner }) => (
          <FieldInput
            form={form}
            key={name}
            field={inner}
            value={object[name]}
            pointer={`${pointer}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`}
            onChange={(next) => {
              const changed = withProperty(value, name, next);
              // An optional object without properties is absent.
              onChange(!field.isRequired && !isRoot && Object.keys(changed as object).length === 0 ? undefined : changed);
            }}
          />
        ))}
      </>
    );
  }
  if (field.kind === "list") return <ListInput form={form} field={field} value={value} pointer={pointer} onChange={onChange} />;
  return <ChoiceInput field={field} value={value} onChange={onChange} />;
}

function ChoiceInput({ field, value, onChange }: Pick<InputProps, "field" | "value" | "onChange">) {
  const name = useId();
  const chosen = stringify(value);
  const texts = choiceTexts(field.choices!);
  return (
    <div class="choices">
      {field.choices!.map((choice, at) => {
        const key = stringify(choice);
        return (
          <label key={key} class="choice">
            <input type="radio" name={name} checked={key === chosen} onChange={() => onChange(choice)} /> <bdi>{texts[at]}</bdi>
          </label>
        );
      })}
      {!field.isRequired && value !== undefined && (
        <button type="button" class="link" onClick={() => onChange(undefined)}>
          No choice
        </button>
      )}
    </div>
  );
}

/** Most items of a list that are fields. */
const MAX_ITEMS = 200;

function ListInput({ form, field, value, pointer, onChange }: InputProps) {
  const list = Array.isArray(value) ? value : [];
  const item = fieldOf(field.items!, form.root, "", true, pointer.split("/").length);
  const replace = (at: number, next: Json | undefined) => onChange(list.map((one, index) => (index === at ? (next ?? null) : one)));
  return (
    <>
      <ol class="list-input">
        {list.slice(0, MAX_ITEMS).map((one, at) => (
          <li key={at}>
            <FieldInput form={form} field={{ ...item, title: item.title || `Item ${at + 1}` }} value={one} pointer={`${pointer}/${at}`} onChange={(next) => replace(at, next)} />
            <button type="button" class="icon" aria-label={`Remove item ${at + 1}`} onClick={() => onChange(list.filter((_, index) => index !== at))}>
              ✕
            </button>
          </li>
        ))}
      </ol>
      <button type="button" onClick={() => onChange([...list, item.initial ?? (item.kind === "string" ? "" : null)])}>
        Add an item
      </button>
    </>
  );
}

interface SimpleProps extends InputProps {
  id: string;
  describedBy: string;
  isInvalid: boolean;
  title: string;
}

const INPUT_TYPES: { [format: string]: string } = { email: "email", date: "date", uri: "url" };

function SimpleInput({ field, value, onChange, id, describedBy, isInvalid, title }: SimpleProps) {
  const common = { id, "aria-describedby": describedBy, "aria-invalid": isInvalid, "aria-required": field.isRequired };
  if (field.kind === "boolean") {
    return (
      <label class="choice">
        <input type="checkbox" {...common} checked={value === true} onChange={(event) => onChange(event.currentTarget.checked)} /> {title || "Yes"}
      </label>
    );
  }
  if (field.kind === "choice") {
    const at = field.choices!.findIndex((choice) => stringify(choice) === stringify(value));
    return (
      <select {...common} value={at} onChange={(event) => onChange(field.choices![Number(event.currentTarget.value)])}>
        <option value={-1}>Choose…</option>
        {choiceTexts(field.choices!).map((text, index) => (
          <option key={index} value={index}>
            {text}
          </option>
        ))}
      </select>
    );
  }
  if (field.kind === "string") {
    const change = (text: string) => onChange(text === "" && !field.isRequired ? undefined : text);
    const type = INPUT_TYPES[field.format ?? ""];
    const given = typeof value === "string" ? value : textOf(value);
    if (type) return <input {...common} type={type as "email"} value={given} onInput={(event) => change(event.currentTarget.value)} />;
    return <textarea {...common} rows={given.includes("\n") || given.length > 80 ? 4 : 1} value={given} onInput={(event) => change(event.currentTarget.value)} />;
  }
  return <ParsedInput common={common} isNumber={field.kind === "number"} value={value} onChange={onChange} />;
}

/** A number, or JSON of any type. A text that is neither stays a text, which is then reported where a text does not fit. */
function ParsedInput({ common, isNumber, value, onChange }: { common: object; isNumber: boolean; value: Json | undefined; onChange: (value: Json | undefined) => void }) {
  const [text, setText] = useState(() => textOf(value));
  const change = (event: { currentTarget: { value: string } }) => {
    const input = event.currentTarget.value;
    const parsed = parseJson(input);
    setText(input);
    onChange(isNumber ? numberFrom(input) : input.trim() === "" ? undefined : "value" in parsed ? parsed.value : input);
  };
  if (isNumber) return <input {...common} inputMode="decimal" value={text} onInput={change} />;
  return <textarea {...common} class="code" spellcheck={false} rows={Math.min(12, Math.max(2, text.split("\n").length))} value={text} onInput={change} />;
}
