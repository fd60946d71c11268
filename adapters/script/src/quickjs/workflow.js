// Host functions of a script workflow. Evaluated in a fresh realm, before the script of the user.
//
// Returns a function that starts a script with its recorded inputs. Results are delivered one at a time, and everything that follows from
// one is executed before the next. A script that receives its results in several steps therefore behaves like one that receives all of them
// in one step.
//
// Each function of `any`, `race` and `threshold` is a scope, which owns the calls that the function makes. Several functions may wait for one
// call: each continues as a separate turn in the scope in which it began to wait, so that a join cancels only the calls of the losers.
//
// A script that changes built-in objects affects only its own calls: the engine checks each of them.
export default function (digest, optionFault) {
  "use strict";

  const { apply } = Reflect;
  const { isArray } = Array;
  const { parse, stringify } = JSON;
  const { defineProperty, freeze, getPrototypeOf, keys } = Object;
  const BuiltinError = Error;
  const BuiltinPromise = Promise;
  const BuiltinString = String;
  const { max } = Math;
  const { then } = Promise.prototype;
  const { includes, slice } = String.prototype;
  // The realm has no global `Function`.
  const sourceOf = getPrototypeOf(() => {}).toString;

  const MAX_NOTES = 1000;
  const MAX_NOTE = 2000;
  // The engine accepts values with 100 levels, and adds the outer levels itself.
  const MAX_LEVELS = 96;
  // 2^53 - 1: larger numbers have no exact JSON.
  const MAX_MS = 9007199254740991;
  const MAX_ROUNDS = 4294967295;

  const on = (promise, done, failed) => apply(then, promise, [done, failed]);
  // Polluted prototypes must not see the elements of internal lists.
  const push = (list, value) =>
    defineProperty(list, list.length, { value, writable: true, enumerable: true, configurable: true });
  const failure = (code, message) => {
    const error = new BuiltinError(message);
    defineProperty(error, "code", { value: code, writable: true, enumerable: true, configurable: true });
    return error;
  };
  const invalid = (message) => {
    throw failure("INVALID_INPUT", message);
  };
  const isDeeper = (value, left) => {
    if (typeof value !== "object" || value === null) return false;
    if (left === 0) return true;
    const names = keys(value);
    for (let i = 0; i < names.length; i++) if (isDeeper(value[names[i]], left - 1)) return true;
    return false;
  };
  const textOf = (value) => {
    if (typeof value === "string") return value;
    try {
      if (value instanceof BuiltinError) return `${value}`;
      return stringify(value) ?? BuiltinString(value);
    } catch {
      // JSON has no BigInt and no cycle; both have a string.
      try {
        return BuiltinString(value);
      } catch {
        return "a value without a text";
      }
    }
  };

  return function (make, state, written) {
    const { results, known, limits } = state;
    // Figures of the current step.
    let { tokens, from, notes: noted } = state;
    // Figures of the steps before.
    const recorded = state.budget ?? { total: tokens?.total ?? null, spent: [] };
    const calls = [];
    const waiting = [];
    const notes = [];
    const starts = [];
    const root = { parent: null, calls: [], inner: [], isOpen: true, isCancelled: false, hasSucceeded: false };
    let scope = root;
    let received = 0;
    let started = 0;
    let agents = 0;
    // Number of calls without those with which joins cancel others.
    let made = 0;
    // Number of recorded figures for the results so far, and the last of them.
    let figures = 0;
    let figure = 0;
    let end = null;
    let phaseName;

    const current = () => {
      while (!scope.isOpen && scope.parent !== null) scope = scope.parent;
      return scope;
    };
    const finish = (how) => {
      if (end === null) end = how;
    };
    const fail = (code, message) => finish({ failed: { code, message } });

    const note = (level, value) => {
      if (notes.length > MAX_NOTES) return;
      const text = notes.length === MAX_NOTES ? "further log lines are left out" : textOf(value);
      push(notes, [level, text.length > MAX_NOTE ? `${apply(slice, text, [0, MAX_NOTE])}...` : text]);
    };

    const differs = (at, now) => {
      const recorded = at < known.length ? known[at][0] : null;
      const named = (kind) => (kind === null ? "no call" : `\`${kind}\``);
      const same = recorded === now ? " with other arguments" : "";
      const message = `call ${at} of the script differs from the recorded one: recorded ${named(recorded)}, now ${named(now)}${same}`;
      finish({ failed: { code: "RUN_DIVERGED", message, details: { call: at, recorded, now } } });
    };

    // Returns a handler that runs as a separate turn in the current scope: the handlers of one promise may belong to several scopes.
    const inScope = (handler) => {
      if (typeof handler !== "function") return handler;
      const own = scope;
      return (value) =>
        new BuiltinPromise((resolve, reject) => {
          const run = () => {
            try {
              resolve(handler(value));
            } catch (error) {
              reject(error);
            }
          };
          push(starts, { scope: own, run });
        });
    };
    // Promise of a call, and of what follows from it. `await` calls `then` of promises with another constructor than the built-in one.
    class Call extends BuiltinPromise {
      then(done, failed) {
        return apply(then, this, [inScope(done), inScope(failed)]);
      }
    }
    const { then: waitInScope } = Call.prototype;

    // Records a call. Returns its number.
    const request = (kind, args) => {
      const tooDeep = () => failure("SCRIPT_LIMIT_EXCEEDED", `${kind}: the arguments are nested more than ${MAX_LEVELS} levels deep, or contain themselves`);
      // Checked here, so that the script can handle the error.
      if (isDeeper(args, MAX_LEVELS)) throw tooDeep();
      const text = stringify(args);
      // `toJSON` may return a value that is nested deeper than its object.
      const sum = digest(`${kind} ${text}`, MAX_LEVELS);
      if (sum === undefined) throw tooDeep();
      // Read after the arguments: a getter or `toJSON` of them may make a call, which is recorded first, or end the script.
      const at = calls.length;
      // An endless loop that ignores the error ends at the time limit.
      if (end !== null) throw failure("CANCELLED", "the script has ended");
      if (kind !== "cancel" && made >= limits.calls) {
        const message = `the script made more than ${limits.calls} calls of its host (\`limits.calls\`)`;
        fail("SCRIPT_LIMIT_EXCEEDED", message);
        throw failure("SCRIPT_LIMIT_EXCEEDED", message);
      }
      if (at < known.length && (known[at][0] !== kind || known[at][1] !== sum)) {
        differs(at, kind);
        throw failure("RUN_DIVERGED", "the script differs from the recorded one");
      }
      push(calls, { kind, text, sum });
      if (kind !== "cancel") made += 1;
      if (kind === "agent" || kind === "workflow") agents += 1;
      return at;
    };
    const call = (kind, args) => {
      const at = request(kind, args);
      const own = current();
      push(own.calls, at);
      const promise = new Call((resolve, reject) => {
        waiting[at] = { resolve, reject, scope: own, waiters: [] };
      });
      const wait = (done, failed) => {
        if (waiting[at]) push(waiting[at].waiters, scope);
        return apply(waitInScope, promise, [done, failed]);
      };
      return defineProperty(promise, "then", { value: wait, writable: true, configurable: true });
    };

    const deliver = (result) => {
      const at = result.call;
      if (at >= calls.length) return differs(calls.length, null);
      const waiter = waiting[at];
      // Cancelled while its result was on the way.
      if (!waiter) return;
      waiting[at] = undefined;
      scope = waiter.scope;
      if (result.error) waiter.reject(failure(result.error.code, result.error.message));
      else waiter.resolve(result.value);
    };

    // --- joins

    const listed = (name, list) => {
      if (!isArray(list)) invalid(`${name}: expected a list of functions`);
    };
    // The call of a promise is made before the join exists, which therefore could not cancel it.
    const functions = (name, list) => {
      listed(name, list);
      for (let i = 0; i < list.length; i++)
        if (typeof list[i] !== "function") invalid(`${name}: element ${i} must be a function: write \`() => agent(...)\``);
    };
    const attempt = (run) =>
      new BuiltinPromise((resolve) => resolve(typeof run === "function" ? run() : run));
    const orNull = (promise, where) =>
      new BuiltinPromise((resolve) =>
        on(promise, resolve, (error) => {
          note("error", `${where} failed: ${textOf(error)}`);
          resolve(null);
        }),
      );
    const all = (promises) =>
      new BuiltinPromise((resolve) => {
        const values = [];
        let open = promises.length;
        if (open === 0) resolve(values);
        for (let i = 0; i < promises.length; i++) {
          push(values, null);
          on(promises[i], (value) => {
            values[i] = value;
            open -= 1;
            if (open === 0) resolve(values);
          });
        }
      });

    // Cancels the calls of the functions that have not succeeded.
    const cancel = (scopes) => {
      const cancelled = [];
      const mark = (one) => {
        one.isOpen = false;
        one.isCancelled = true;
        push(cancelled, one);
        for (let i = 0; i < one.inner.length; i++) mark(one.inner[i]);
      };
      for (let i = 0; i < scopes.length; i++) if (!scopes[i].hasSucceeded) mark(scopes[i]);
      const numbers = [];
      const lost = [];
      for (let i = 0; i < cancelled.length; i++) {
        const own = cancelled[i].calls;
        for (let k = 0; k < own.length; k++) {
          const waiter = waiting[own[k]];
          if (!waiter) continue;
          const heir = heirOf(waiter);
          if (heir) {
            waiter.scope = heir;
            push(heir.calls, own[k]);
            continue;
          }
          waiting[own[k]] = undefined;
          push(numbers, own[k]);
          push(lost, waiter);
        }
      }
      if (numbers.length > 0) request("cancel", numbers);
      // Code outside of the losers may wait for such a call later, and would otherwise never continue.
      for (let i = 0; i < lost.length; i++) lost[i].reject(failure("CANCELLED", "a join has cancelled the call"));
    };
    // Returns a scope that waits for the call too and continues.
    const heirOf = ({ waiters }) => {
      for (let i = 0; i < waiters.length; i++) if (!waiters[i].isCancelled) return waiters[i];
    };

    const success = (value) => ({ isError: false, value });
    // Any value may be thrown, `undefined` too.
    const fault = (value) => ({ isError: true, value });

    // Starts functions, each in a new scope. `settled` receives each end, and -1 before the start; it returns the decision, or null.
    const join = (list, settled) =>
      new BuiltinPromise((resolve, reject) => {
        const parent = current();
        const scopes = [];
        let isDecided = false;
        const ended = (i, isDone, value) => {
          if (isDecided || scopes[i].isCancelled) return;
          scopes[i].isOpen = false;
          scopes[i].hasSucceeded = isDone;
          const decision = settled(i, isDone, value);
          if (!decision) return;
          isDecided = true;
          scope = parent;
          try {
            cancel(scopes);
          } catch (error) {
            return reject(error);
          }
          conclude(decision);
        };
        const conclude = ({ isError, value }) => (isError ? reject(value) : resolve(value));
        // The number of functions decides, so that no function starts.
        const atOnce = settled(-1, false, undefined);
        if (atOnce) return conclude(atOnce);
        for (let i = 0; i < list.length; i++) {
          const own = { parent, calls: [], inner: [], isOpen: true, isCancelled: false, hasSucceeded: false };
          push(scopes, own);
          push(parent.inner, own);
          push(starts, {
            scope: own,
            run: () => on(attempt(list[i]), (value) => ended(i, true, value), (error) => ended(i, false, error)),
          });
        }
      });

    const threshold = (count, list) => {
      functions("threshold", list);
      if (typeof count !== "number" || !(count >= 0)) invalid("threshold: the first argument is the number of functions that must succeed");
      const values = [];
      for (let i = 0; i < list.length; i++) push(values, null);
      let done = 0;
      let failed = 0;
      let last;
      return join(list, (i, isDone, value) => {
        if (i >= 0 && isDone) {
          values[i] = value;
          done += 1;
        } else if (i >= 0) {
          failed += 1;
          last = value;
        }
        if (done >= count) return success(values);
        if (list.length - failed >= count) return null;
        const cause = last === undefined ? "" : `: ${textOf(last)}`;
        const message = `fewer than ${count} of ${list.length} functions succeeded${cause}`;
        return fault(failure("JOIN_CONDITION_NOT_MET", message));
      });
    };

    // --- host functions

    const ignored = {};
    const agent = (prompt, options) => {
      if (typeof prompt !== "string") invalid("agent: the prompt must be a string");
      const given = options ?? {};
      if (typeof given !== "object") invalid("agent: the options must be an object");
      const names = keys(given);
      for (let i = 0; i < names.length; i++) {
        const fault = optionFault(names[i]);
        if (typeof fault === "string") invalid(fault);
      }
      const { schema, profileId, model, tools, label, system, maxToolRounds } = given;
      for (const name of ["effort", "isolation", "agentType"]) {
        if (given[name] === undefined || ignored[name]) continue;
        ignored[name] = true;
        note("warn", `agent: the option \`${name}\` is ignored`);
      }
      const limit = timeLimit("agent", given);
      if (!isAbsent(maxToolRounds) && !(typeof maxToolRounds === "number" && maxToolRounds % 1 === 0 && maxToolRounds >= 0 && maxToolRounds <= MAX_ROUNDS))
        invalid(`agent: \`maxToolRounds\`: expected a whole number, 0 to ${MAX_ROUNDS}`);
      const phase = given.phase ?? phaseName;
      return call("agent", { prompt, schema, profileId, model, tools, label, phase, system, timeoutMs: limit, maxToolRounds });
    };
    const parallel = (list) => {
      listed("parallel", list);
      const promises = [];
      for (let i = 0; i < list.length; i++) push(promises, orNull(attempt(list[i]), `parallel: function ${i}`));
      return all(promises);
    };
    const pipeline = (items, ...stages) => {
      if (!isArray(items)) invalid("pipeline: the first argument must be a list of items");
      for (let s = 0; s < stages.length; s++)
        if (typeof stages[s] !== "function") invalid(`pipeline: stage ${s} must be a function, one argument for each stage`);
      const through = async (item, i) => {
        let value = item;
        for (let s = 0; s < stages.length; s++) value = await stages[s](value, item, i);
        return value;
      };
      const promises = [];
      for (let i = 0; i < items.length; i++) push(promises, orNull(through(items[i], i), `pipeline: item ${i}`));
      return all(promises);
    };
    const any = (list) => {
      functions("any", list);
      let failed = 0;
      return join(list, (i, isDone, value) => {
        if (i >= 0 && isDone) return success(value);
        if (i >= 0) failed += 1;
        if (failed < list.length) return null;
        const cause = i < 0 ? "there is none" : textOf(value);
        return fault(failure("JOIN_CONDITION_NOT_MET", `every function of any failed: ${cause}`));
      });
    };
    // The engine accepts whole milliseconds only.
    const milliseconds = (what, ms) => {
      if (typeof ms !== "number" || !(ms >= 0 && ms <= MAX_MS)) invalid(`${what}: expected a number of milliseconds, 0 to ${MAX_MS}`);
      return ms - (ms % 1);
    };
    const isAbsent = (value) => value === undefined || value === null;
    const timeLimit = (what, options) => {
      const ms = options?.timeoutMs;
      return isAbsent(ms) ? ms : milliseconds(`${what}: \`timeoutMs\``, ms);
    };
    const race = (ms, list) => {
      if (isArray(ms)) invalid("race: the milliseconds are missing: write `race(1000, [...])`");
      functions("race", list);
      const limit = milliseconds("race", ms);
      const timed = [() => call("sleep", { ms: limit })];
      for (let i = 0; i < list.length; i++) push(timed, list[i]);
      return join(timed, (i, isDone, value) => {
        if (i < 0) return null;
        if (i === 0) return fault(failure("NODE_TIMEOUT", `race: no function ended within ${ms} ms`));
        return isDone ? success(value) : fault(value);
      });
    };
    const named = (what, name) => {
      const text = typeof name === "object" && name !== null ? name.name : name;
      if (typeof text !== "string") invalid(`${what}: the name must be a string`);
      return text;
    };
    const workflow = (name, input) => call("workflow", { name: named("workflow", name), input: input ?? null });
    const tool = (name, input) => call("tool", { name: named("tool", name), input: input ?? {} });
    // The names that the script writes, and the listed ones for computed names. The engine checks each call.
    const tools = { __proto__: null };
    const addTools = (names) => {
      for (let i = 0; i < names.length; i++) {
        const name = names[i];
        // `then` would make `await tools` a call.
        if (name !== "then") defineProperty(tools, name, { value: (input) => tool(name, input), enumerable: true, configurable: true });
      }
    };
    addTools(written);
    addTools(state.tools ?? []);
    freeze(tools);
    const ask = (question, schema, options) => {
      if (typeof question !== "string") invalid("ask: the question must be a string");
      return call("ask", { question, schema, timeoutMs: timeLimit("ask", options) });
    };
    const sleep = (ms) => {
      return call("sleep", { ms: milliseconds("sleep", ms) });
    };
    const event = (name, options) => call("event", { name: named("event", name), timeoutMs: timeLimit("event", options) });
    const phase = (name) => {
      phaseName = textOf(name);
      note("phase", phaseName);
    };
    const log = (...values) => {
      let text = "";
      for (let i = 0; i < values.length; i++) text += (i > 0 ? " " : "") + textOf(values[i]);
      note("info", text);
    };
    const spent = () => {
      if (tokens && received >= from) return tokens.spent;
      while (figures < recorded.spent.length && recorded.spent[figures][0] <= received) figure = recorded.spent[figures++][1];
      return figure;
    };
    const { total } = recorded;
    const budget = freeze({
      total,
      spent,
      remaining: () => (total === null ? Infinity : max(0, total - spent())),
      agents: freeze({ total: limits.agents, remaining: () => max(0, limits.agents - agents) }),
      calls: freeze({ total: limits.calls, remaining: () => max(0, limits.calls - made) }),
    });

    // A call is executed when the script waits. One that was made after the last `await` never is.
    const warnOfLostCalls = () => {
      let lost = 0;
      let kind;
      for (let i = known.length; i < calls.length; i++) {
        // Cancelled by a join.
        if (!waiting[i]) continue;
        kind ??= calls[i].kind;
        lost += 1;
      }
      if (lost > 0) note("warn", `${kind}: ${lost === 1 ? "1 call was" : `${lost} calls were`} not executed, because the script ended first: \`await\` is missing`);
    };

    const warnOfLostOutput = (script) => {
      // A script without calls has no results to return. The word in an inner function or a comment prevents the warning.
      if (calls.length > 0 && !apply(includes, apply(sourceOf, script, []), ["return"]))
        note("warn", "the script has no `return`, so that its output is null");
    };

    const speak = (level) => (...values) => {
      let text = "";
      for (let i = 0; i < values.length; i++) text += (i > 0 ? " " : "") + textOf(values[i]);
      note(level, text);
    };
    const console = { debug: speak("debug"), info: speak("info"), log: speak("info"), warn: speak("warn"), error: speak("error") };
    defineProperty(globalThis, "console", { value: console, writable: true, enumerable: false, configurable: true });

    // The order of HOST_NAMES.
    const script = make(agent, any, state.args, ask, budget, event, log, parallel, phase, pipeline, race, sleep, threshold, tool, tools, workflow);
    on(
      script(),
      (value) => {
        if (value === undefined) warnOfLostOutput(script);
        finish({ returned: value ?? null });
      },
      (error) => {
        const message = error === null || error === undefined ? `it threw ${error}` : textOf(error);
        const stack = error instanceof BuiltinError ? error.stack : undefined;
        finish({ thrown: { message, stack: typeof stack === "string" ? stack : "", isNull: error === null } });
      },
    );

    return {
      // Delivers what is next. Returns false if the script waits for its calls, or has ended.
      next() {
        if (end !== null) return false;
        if (started < starts.length) {
          const { scope: own, run } = starts[started++];
          if (!own.isCancelled) {
            scope = own;
            run();
          }
          return true;
        }
        if (received < results.length) {
          deliver(results[received++]);
          return true;
        }
        return false;
      },
      take() {
        // An ended script too: its result would otherwise depend on calls that it has not made.
        if (calls.length < known.length && (end === null || end.failed === undefined)) {
          end = null;
          differs(calls.length, null);
        }
        const fresh = [];
        const isOver = end !== null;
        for (let i = known.length; i < calls.length && !isOver; i++) {
          const { kind, text, sum } = calls[i];
          push(fresh, { kind, args: parse(text), digest: sum });
          push(known, [kind, sum]);
        }
        if (isOver && end.returned !== undefined) warnOfLostCalls();
        const lines = [];
        for (; noted < notes.length; noted++) push(lines, notes[noted]);
        const seen = tokens ? { total: tokens.total, spent: tokens.spent, from } : undefined;
        return { now: state.now, tokens: seen, calls: fresh, notes: lines, end };
      },
      // Adds the results of the next step. All lists are as long as those of a script that is evaluated from its start, so that both have
      // the same limits.
      resume(more) {
        // The engine has recorded the figures of the last step in the same way.
        const { length } = recorded.spent;
        if (tokens && (length === 0 || recorded.spent[length - 1][1] !== tokens.spent)) push(recorded.spent, [from, tokens.spent]);
        for (let i = 0; i < more.results.length; i++) push(results, more.results[i]);
        tokens = more.tokens;
        from = more.from;
      },
    };
  };
}
