// Runs once in every new realm, before any snippet of a user. Returns the functions that the host calls.
//
// Removes what a snippet must not use: compilation of strings, clocks, random numbers, and globals that are not on the host's list.
// Bounds the loops of built-in functions, in which QuickJS does not check the time limit. Resolves names.
export default function (host) {
  "use strict";

  const { apply, construct, ownKeys, getOwnPropertyDescriptor, defineProperty, getPrototypeOf } = Reflect;
  const { create, freeze, hasOwn } = Object;
  const { isArray } = Array;
  const { isConcatSpreadable, unscopables } = Symbol;
  const BuiltinProxy = Proxy;
  const BuiltinDate = Date;
  const BuiltinRegExp = RegExp;
  const BuiltinError = Error;
  const BuiltinString = String;
  const BuiltinArrayBuffer = ArrayBuffer;
  const { at, fixed, member, has, keys, unknown, log, now, random, allowed, functions, longest, pause, exhausted } = host;

  const refuse = (message) => {
    throw new TypeError(message);
  };
  const replace = (object, name, value) =>
    defineProperty(object, name, { value, writable: true, enumerable: false, configurable: true });

  // --- removed globals ----------------------------------------------------------------------------------------

  const kept = new Set(allowed);
  for (const name of ownKeys(globalThis)) {
    if (!kept.has(name)) delete globalThis[name];
  }
  const noCompiler = function () {
    refuse("strings cannot be compiled to code here");
  };
  for (const f of [function () {}, async function () {}, function* () {}, async function* () {}]) {
    defineProperty(getPrototypeOf(f), "constructor", { value: noCompiler, writable: false, configurable: false });
  }
  for (const name of ["captureStackTrace", "stackTraceLimit", "prepareStackTrace"]) delete Error[name];

  const noClock = "there is no clock here, so that a run can be repeated: pass the time as input";
  // Only script workflows have a clock: its value is recorded.
  const clock = () => now() ?? refuse(noClock);
  const date = function Date(...parts) {
    // Called as a function, `Date` ignores its arguments and returns the current time as text.
    if (!new.target) return `${new BuiltinDate(clock())}`;
    if (parts.length === 0) parts = [clock()];
    return Reflect.construct(BuiltinDate, parts, new.target);
  };
  date.prototype = BuiltinDate.prototype;
  replace(date, "parse", BuiltinDate.parse);
  replace(date, "UTC", BuiltinDate.UTC);
  replace(date, "now", clock);
  replace(BuiltinDate.prototype, "constructor", date);
  replace(globalThis, "Date", date);
  replace(Math, "random", () =>
    random ? random() : refuse("Math.random needs a seed, so that a run can be repeated"),
  );

  // --- built-in functions without a check of the time limit -------------------------------------------------------

  // Counts the elements that built-in functions visit, so that a loop of built-in functions also checks the time limit.
  let looked = 0;
  const spend = (amount) => {
    looked += amount;
    if (looked < 1e6) return;
    looked = 0;
    pause();
  };
  const limit = (message) => {
    throw new RangeError(message);
  };

  // A longer list does not fit into the memory limit. Only a sparse array has a greater length.
  const measure = (list) => {
    const length = isArray(list) ? list.length : getOwnPropertyDescriptor(Object(list), "length")?.value;
    if (typeof length !== "number") refuse("this needs a list");
    if (length > longest) limit(`a list of ${length} is too long`);
    spend(length);
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
    // An assignment keeps the attributes of the property, and costs less than `defineProperty`.
    object[name] = method;
  };
  // As `guard`, for functions that are also constructors.
  const guardBuilder = (name, check) => {
    const builder = globalThis[name];
    if (typeof builder !== "function") return;
    const guarded = new BuiltinProxy(builder, {
      apply: (target, self, args) => (check(args), apply(target, self, args)),
      construct: (target, args, made) => (check(args), construct(target, args, made === guarded ? target : made)),
    });
    replace(globalThis, name, guarded);
    replace(builder.prototype, "constructor", guarded);
  };

  const measured = (list) => void measure(list);
  for (const name of [
    ...["join", "toString", "toLocaleString", "reverse", "slice", "splice", "copyWithin", "sort", "shift", "unshift"],
    ...["toReversed", "toSorted", "toSpliced", "with"],
  ]) {
    guard(Array.prototype, name, measured);
  }
  guard(Array.prototype, "concat", (list, others) => {
    for (const other of [list, ...others]) {
      if (isArray(other)) measure(other);
      else if (typeof other === "object" && other?.[isConcatSpreadable]) refuse("only lists are put together");
    }
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

  // A comparison visits the common prefix of two strings, so the total length is limited.
  for (const name of ["sort", "toSorted"]) {
    guard(Array.prototype, name, (list, [compare]) => {
      if (compare !== undefined || !isArray(list)) return;
      const length = measure(list);
      let all = 0;
      for (let i = 0; i < length; i++) if (typeof list[i] === "string") all += list[i].length;
      if (all > 1e7) limit("the texts to sort are too long");
    });
  }
  for (const name of ["indexOf", "lastIndexOf", "includes"]) {
    guard(Array.prototype, name, (list, [wanted]) => {
      if (typeof wanted !== "string" || !isArray(list)) return;
      if (wanted.length > 1000 && wanted.length * list.length > 1e8) limit("the list, and the text to search for, are too long");
    });
  }

  const typed = getPrototypeOf(Int8Array);
  const typedLength = getOwnPropertyDescriptor(typed.prototype, "length").get;
  const spendTyped = (list) => spend(apply(typedLength, list, []));
  for (const name of [
    ...["join", "toString", "toLocaleString", "reverse", "slice", "copyWithin", "sort", "fill", "indexOf"],
    ...["lastIndexOf", "includes", "toReversed", "toSorted", "with"],
  ]) {
    guard(typed.prototype, name, spendTyped);
  }
  guard(typed.prototype, "set", (list, [values]) => (spendTyped(list), numbers(values)));
  // Strings that a built-in function converts to numbers: the cost is their length.
  const numbers = (list) => {
    if (!isArray(list)) return;
    const length = measure(list);
    let all = 0;
    for (let i = 0; i < length; i++) {
      all += number(list[i]);
      if (all > 1e7) limit("the texts of a list are too long for numbers");
    }
  };
  const number = (value) => {
    if (typeof value !== "string") return 0;
    if (value.length > 10_000) limit(`a text of ${value.length} is too long for a number`);
    spend(value.length);
    return value.length;
  };
  for (const name of ownKeys(globalThis)) {
    const builder = globalThis[name];
    if (typeof builder === "function" && getPrototypeOf(builder) === typed) guardBuilder(name, ([list]) => numbers(list));
  }
  for (const name of ["from", "of"]) guard(typed, name, (_, args) => numbers(name === "of" ? args : args[0]));
  for (const name of ["Number", "BigInt"]) guardBuilder(name, ([value]) => void number(value));
  for (const name of ["parseInt", "parseFloat", "isNaN", "isFinite"]) guard(globalThis, name, (_, [text]) => void number(text));
  for (const name of ["parseInt", "parseFloat"]) replace(Number, name, globalThis[name]);
  // The other functions convert one or two texts, as the operators do.
  for (const name of ["hypot", "max", "min"]) guard(Math, name, (_, args) => numbers(args));

  // The conversion takes quadratic time in the number of digits.
  guard(BigInt.prototype, "toString", (value) => {
    if (typeof value === "bigint" && value >> 200_000n !== 0n && value >> 200_000n !== -1n) limit("the BigInt has too many digits to be converted to a string");
  });

  const textOf = (text) => {
    if (text === null || text === undefined) refuse("this needs a text");
    if (typeof text !== "string") text = `${text}`;
    spend(text.length);
    return text;
  };
  for (const name of [
    ...["concat", "endsWith", "isWellFormed", "localeCompare", "startsWith"],
    ...["toLocaleLowerCase", "toLocaleUpperCase", "toLowerCase", "toUpperCase", "toWellFormed"],
    ...["trim", "trimEnd", "trimStart", "trimLeft", "trimRight"],
  ]) {
    guard(String.prototype, name, textOf);
  }
  // The length of the result counts too.
  for (const [name, made] of [
    ["repeat", (text, count) => text.length * count],
    ["padStart", (_, length) => length],
    ["padEnd", (_, length) => length],
  ]) {
    guard(String.prototype, name, (text, [amount]) => {
      text = textOf(text);
      if (typeof amount === "number" && amount > 0) spend(made(text, amount));
      return text;
    });
  }
  // Normalization sorts the combining marks of a letter in quadratic time.
  const marks = /\p{M}{1000}/u;
  const testMarks = marks.test;
  guard(String.prototype, "normalize", (text) => {
    text = textOf(text);
    if (text.length > 1000 && apply(testMarks, marks, [text])) limit("a letter has too many combining marks");
    return text;
  });
  // The built-in search compares the needle at every position of the string.
  for (const name of ["indexOf", "lastIndexOf", "includes", "split", "replace", "replaceAll"]) {
    guard(String.prototype, name, (text, args) => {
      text = textOf(text);
      if (typeof args[0] === "object" && args[0] !== null && !(args[0] instanceof BuiltinRegExp)) {
        args[0] = BuiltinString(args[0]);
      }
      const needle = args[0];
      if (typeof needle === "string" && needle.length > 16 && needle.length * text.length > 1e8) {
        limit("the text to search, and what to search for, are too long");
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
  for (const name of ["encodeURI", "encodeURIComponent", "decodeURI", "decodeURIComponent", "escape", "unescape", "btoa", "atob"]) {
    guard(globalThis, name, (_, [text]) => void (typeof text === "string" && spend(text.length)));
  }

  // A pattern is parsed into a tree, and a back reference compares the whole match of its group.
  const short = (pattern) => {
    if (typeof pattern === "string" && pattern.length > 10_000) limit(`a pattern of ${pattern.length} is too long`);
  };
  guardBuilder("RegExp", ([pattern]) => short(pattern));
  guard(BuiltinRegExp.prototype, "compile", (_, [pattern]) => short(pattern));
  for (const name of ["match", "matchAll", "search"]) {
    guard(String.prototype, name, (text, [pattern]) => (short(pattern), textOf(text)));
  }
  const sourceOf = getOwnPropertyDescriptor(BuiltinRegExp.prototype, "source").get;
  const searching = (pattern, args) => {
    if (typeof args[0] !== "string") args[0] = `${args[0]}`;
    const text = args[0];
    spend(text.length);
    if (text.length <= 10_000) return;
    const source = apply(sourceOf, pattern, []);
    for (let i = 0; i + 1 < source.length; i++) {
      if (source[i] !== "\\") continue;
      i += 1;
      if ((source[i] >= "1" && source[i] <= "9") || source[i] === "k") {
        limit(`a text of ${text.length} is too long for a pattern with back references`);
      }
    }
  };
  for (const name of ["exec", "test", Symbol.match, Symbol.matchAll, Symbol.replace, Symbol.search, Symbol.split]) {
    guard(BuiltinRegExp.prototype, name, (pattern, args) => void searching(pattern, args));
  }

  guard(JSON, "stringify", (_, args) => {
    const which = args[1];
    if (isArray(which) && measure(which) > 10_000) limit(`a list of ${which.length} names to write is too long`);
  });
  guard(JSON, "parse", (_, [text]) => void (typeof text === "string" && spend(text.length)));

  // Every access to a missing member visits the whole prototype chain.
  const chained = (prototype) => {
    for (let depth = 0, object = prototype; object !== null && typeof object === "object"; depth++) {
      if (depth > 1000) limit("the prototype chain has more than 1000 objects");
      object = getPrototypeOf(object);
    }
  };
  guard(Object, "create", (_, [prototype]) => void chained(prototype));
  guard(Object, "setPrototypeOf", (_, [, prototype]) => void chained(prototype));
  guard(Reflect, "setPrototypeOf", (_, [, prototype]) => void chained(prototype));
  const assigned = getOwnPropertyDescriptor(Object.prototype, "__proto__");
  if (assigned) {
    const set = function (prototype) {
      chained(prototype);
      apply(assigned.set, this, [prototype]);
    };
    defineProperty(Object.prototype, "__proto__", { get: assigned.get, set, enumerable: false, configurable: true });
  }

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

  // Without this, an unknown name could resolve to a member of Object.prototype.
  Object.setPrototypeOf(globalThis, null);

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

  // Values of the current evaluation. A value is converted when it is first read. The host calls `forget` at the end of the
  // evaluation, after the result was converted to plain data, because getters in the result may read values.
  const found = new Map();
  const foundMembers = [new Map(), new Map()];
  const forget = () => {
    if (found.size > 0) found.clear();
    if (foundMembers[0].size > 0) foundMembers[0].clear();
    if (foundMembers[1].size > 0) foundMembers[1].clear();
    hidden = null;
  };

  // Names that are unknown in this evaluation are left to JavaScript: `typeof` of them works, and any other use throws.
  const none = freeze(create(null));
  let hidden = null;
  const hiddenNames = () => {
    if (hidden !== null) return hidden;
    const names = unknown();
    if (names.length === 0) return (hidden = none);
    hidden = create(null);
    for (const name of names) hidden[name] = true;
    return freeze(hidden);
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

  // Resolves a name, in this order: variable, fixed name, function of the host or of JavaScript, output of a node.
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

  // Returns an object whose members are the names of a snippet. The snippet is compiled inside of `with (object)`.
  const bind = (names) => {
    const scope = create(null);
    defineProperty(scope, unscopables, { get: hiddenNames, enumerable: false, configurable: false });
    for (const name of names) {
      const fallback = functions[name] ?? (hasOwn(globalThis, name) ? globalThis[name] : undefined);
      let get = readers[name] ?? (() => meaning(name, fallback));
      if (name === "__proto__") get = () => refuse("`__proto__` is not a name");
      const set = () => refuse(`\`${name}\` cannot be assigned: declare it with let, or return the value`);
      defineProperty(scope, name, { get, set, enumerable: true, configurable: false });
    }
    return freeze(scope);
  };

  // Returns the error of a script. QuickJS throws `null` if the memory does not suffice for an error, and then no error can be thrown
  // here either, so that the host records it.
  const caught = (error) => {
    if (error === null) {
      try {
        new BuiltinArrayBuffer(longest / 16);
      } catch {
        exhausted();
      }
    }
    return error;
  };

  const run = (text) => text();
  const truth = (text) => !!text();

  const { toWellFormed } = String.prototype;
  const wellFormed = (text) => apply(toWellFormed, text, []);

  // --- a shared realm cannot be changed by a snippet ----------------------------------------------------------

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

  return { bind, caught, run, truth, forget, wellFormed };
}
