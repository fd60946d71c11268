// Runs once in every new realm, before any text of a user; its result is what the host calls.
//
// It takes away what a text must not have (compilers of text, clocks, chance, everything not on the host's list),
// bounds the built-in loops that QuickJS runs without asking whether time is up, and resolves names.
(function (host) {
  "use strict";

  const { apply, ownKeys, getOwnPropertyDescriptor, defineProperty, getPrototypeOf } = Reflect;
  const { create, freeze, hasOwn } = Object;
  const { isArray } = Array;
  const BuiltinProxy = Proxy;
  const BuiltinDate = Date;
  const BuiltinRegExp = RegExp;
  const BuiltinError = Error;
  const BuiltinString = String;
  const { at, fixed, member, has, keys, log, random, allowed, functions, longest } = host;

  const refuse = (message) => {
    throw new TypeError(message);
  };
  const replace = (object, name, value) =>
    defineProperty(object, name, { value, writable: true, enumerable: false, configurable: true });

  // --- what is taken away -------------------------------------------------------------------------------------

  for (const name of ownKeys(globalThis)) {
    if (!allowed.includes(name)) delete globalThis[name];
  }
  const noCompiler = function () {
    refuse("text cannot be compiled to code here");
  };
  for (const f of [function () {}, async function () {}, function* () {}, async function* () {}]) {
    defineProperty(getPrototypeOf(f), "constructor", { value: noCompiler, writable: false, configurable: false });
  }
  for (const name of ["captureStackTrace", "stackTraceLimit", "prepareStackTrace"]) delete Error[name];

  const noClock = "there is no clock here, so that a run can be repeated: pass the time in as input";
  const date = function Date(...parts) {
    if (!new.target || parts.length === 0) refuse(noClock);
    return Reflect.construct(BuiltinDate, parts, new.target);
  };
  date.prototype = BuiltinDate.prototype;
  replace(date, "parse", BuiltinDate.parse);
  replace(date, "UTC", BuiltinDate.UTC);
  replace(date, "now", () => refuse(noClock));
  replace(BuiltinDate.prototype, "constructor", date);
  replace(globalThis, "Date", date);
  replace(Math, "random", () =>
    random ? random() : refuse("there is no chance here without a seed, so that a run can be repeated"),
  );

  // --- built-in loops that do not ask whether time is up ------------------------------------------------------

  // A list longer than this does not fit into the memory limit; only one full of holes gets there.
  const measure = (list) => {
    const length = isArray(list) ? list.length : getOwnPropertyDescriptor(Object(list), "length")?.value;
    if (typeof length !== "number") refuse("this needs a list");
    if (length > longest) throw new RangeError(`a list of ${length} is too long`);
    return length;
  };
  const guard = (object, name, check) => {
    const builtin = object[name];
    if (typeof builtin !== "function") return;
    const method = {
      [name](...args) {
        return apply(builtin, check(this, args) ?? this, args);
      },
    }[name];
    replace(object, name, method);
  };
  for (const name of [
    ...["join", "toString", "toLocaleString", "reverse", "slice", "splice", "copyWithin", "sort", "shift", "unshift"],
  ]) {
    guard(Array.prototype, name, (list) => void measure(list));
  }
  guard(Array.prototype, "concat", (list, others) => {
    measure(list);
    for (let i = 0; i < others.length; i++) if (isArray(others[i])) measure(others[i]);
  });
  const flatten = (list, depth, into) => {
    const length = measure(list);
    for (let i = 0; i < length; i++) {
      if (!(i in list)) continue;
      const item = list[i];
      if (depth >= 1 && isArray(item)) flatten(item, depth - 1, into);
      else into[into.length] = item;
    }
    return into;
  };
  const flatteners = {
    flat(depth = 1) {
      return flatten(this, +depth, []);
    },
    flatMap(change, self) {
      const into = [];
      const length = measure(this);
      for (let i = 0; i < length; i++) {
        if (!(i in this)) continue;
        const item = apply(change, self, [this[i], i, this]);
        if (isArray(item)) flatten(item, 0, into);
        else into[into.length] = item;
      }
      return into;
    },
  };
  replace(Array.prototype, "flat", flatteners.flat);
  replace(Array.prototype, "flatMap", flatteners.flatMap);

  // The built-in search compares needle and text at every place.
  for (const name of ["indexOf", "lastIndexOf", "includes", "split", "replace", "replaceAll"]) {
    guard(String.prototype, name, (text, args) => {
      if (typeof text !== "string") text = `${text}`;
      if (typeof args[0] === "object" && args[0] !== null && !(args[0] instanceof BuiltinRegExp)) {
        args[0] = BuiltinString(args[0]);
      }
      const needle = args[0];
      if (typeof needle === "string" && needle.length > 1000 && needle.length * text.length > 1e9) {
        throw new RangeError("the text to search, and what to search for, are too long");
      }
      return text;
    });
  }
  replace(String, "raw", (strings, ...values) => {
    const raw = strings.raw;
    const length = measure(raw);
    let text = "";
    for (let i = 0; i < length; i++) text += raw[i] + (i + 1 < length && i < values.length ? values[i] : "");
    return text;
  });
  if (typeof Iterator === "function" && Iterator.prototype.drop) {
    const drop = Iterator.prototype.drop;
    const wrapper = {
      drop(count) {
        const inner = this;
        const next = inner.next;
        const asked = create(Iterator.prototype, { next: { value: () => apply(next, inner, []) } });
        return apply(drop, asked, [count]);
      },
    };
    replace(Iterator.prototype, "drop", wrapper.drop);
  }

  // --- names --------------------------------------------------------------------------------------------------

  const show = (value) => {
    if (typeof value === "string") return value;
    if (value instanceof BuiltinError) return `${value}`;
    try {
      return JSON.stringify(value) ?? BuiltinString(value);
    } catch {
      return BuiltinString(value);
    }
  };
  const speak =
    (level) =>
    (...parts) =>
      log(level, parts.map(show).join(" "));
  const console = create(null);
  for (const level of ["debug", "info", "log", "warn", "error"]) console[level] = speak(level);
  replace(globalThis, "console", console);

  // What was handed over, once for each evaluation: a value is converted when it is first read. The host says when the
  // evaluation is over: not before its result is plain data, which getters in it may have a part in.
  const found = new Map();
  const foundMembers = [new Map(), new Map()];
  const forget = () => {
    if (found.size > 0) found.clear();
    if (foundMembers[0].size > 0) foundMembers[0].clear();
    if (foundMembers[1].size > 0) foundMembers[1].clear();
  };

  const memberOf = (kind, name) => {
    const known = foundMembers[kind];
    if (known.has(name)) return known.get(name);
    const value = member(kind, name);
    known.set(name, value);
    return value;
  };
  const collection = (kind, name) => {
    const isFixed = () =>
      refuse(`\`${name}\` cannot be changed: assign with a VARIABLE node, or return the value`);
    return new BuiltinProxy(
      {},
      {
        get(target, key) {
          const value = typeof key === "string" ? memberOf(kind, key) : undefined;
          return value === undefined ? target[key] : value;
        },
        has: (target, key) => (typeof key === "string" && has(kind, key)) || key in target,
        ownKeys: () => keys(kind),
        getOwnPropertyDescriptor: (_, key) =>
          typeof key === "string" && has(kind, key)
            ? { value: memberOf(kind, key), writable: true, enumerable: true, configurable: true }
            : undefined,
        set: isFixed,
        defineProperty: isFixed,
        deleteProperty: isFixed,
        setPrototypeOf: isFixed,
        preventExtensions: isFixed,
      },
    );
  };
  const variables = collection(0, "variables");
  const nodes = collection(1, "nodes");

  // A variable, a fixed name, a function of the host or of JavaScript, a node's output.
  const fixedNames = { __proto__: null, input: "input", output: "output", result: "output", event: "event" };
  const meaning = (name, fallback) => {
    const variable = memberOf(0, name);
    if (variable !== undefined) return variable;
    const fixedName = fixedNames[name];
    if (fixedName === undefined) return fallback === undefined ? memberOf(1, name) : fallback;
    if (!found.has(fixedName)) found.set(fixedName, fixed(fixedName));
    return found.get(fixedName);
  };
  const readers = {
    variables: () => variables,
    nodes: () => nodes,
    __proto__: null,
  };

  // An object whose members are the names a text can use; a text is compiled inside `with` of it.
  const bind = (names) => {
    const scope = create(null);
    for (const name of names) {
      const fallback = functions[name] ?? (hasOwn(globalThis, name) ? globalThis[name] : undefined);
      let get = readers[name] ?? (() => meaning(name, fallback));
      if (name === "__proto__") get = () => refuse("`__proto__` is not a name");
      const set = () => refuse(`\`${name}\` cannot be assigned: declare it with let, or return the value`);
      defineProperty(scope, name, { get, set, enumerable: true, configurable: false });
    }
    return freeze(scope);
  };

  const run = (text) => text();
  const truth = (text) => !!text();

  const { toWellFormed } = String.prototype;
  const wellFormed = (text) => apply(toWellFormed, text, []);

  // --- a realm that many texts share cannot be changed by any of them -----------------------------------------

  const harden = () => {
    const hidden = [
      ...[[].values(), "".matchAll(/a/g), ""[Symbol.iterator](), new Map().entries(), new Set().values()],
      ...[function* () {}, async function () {}, async function* () {}, (function* () {})(), (async function* () {})()],
      ...[[].values().map((x) => x), Iterator.from({ next() {} }), Object.getPrototypeOf(Int8Array), /a/],
    ];
    const waiting = [globalThis, at, ...hidden.map(getPrototypeOf)];
    const seen = new Set();
    while (waiting.length > 0) {
      const object = waiting.pop();
      if (object === null || (typeof object !== "object" && typeof object !== "function") || seen.has(object)) continue;
      seen.add(object);
      freeze(object);
      waiting.push(getPrototypeOf(object));
      for (const key of ownKeys(object)) {
        const property = getOwnPropertyDescriptor(object, key);
        waiting.push(property.value ?? null, property.get ?? null, property.set ?? null);
      }
    }
  };
  if (host.shared) harden();

  return { bind, run, truth, forget, wellFormed };
});
