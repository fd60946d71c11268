// Runs the scripts of the standard input, a JSON list, one after the other. Writes the list of their ends.
//
// Results arrive in the order of the calls, and everything that follows from one is executed before the next. The functions of `any` are
// scopes: the calls of the losers get no result.
const { AsyncLocalStorage } = require("node:async_hooks");
const AsyncFunction = (async () => {}).constructor;

const textOf = (value) => (typeof value === "string" ? value : value instanceof Error ? `${value}` : JSON.stringify(value));
const turn = () => new Promise((resolve) => setImmediate(resolve));

const execute = async (source) => {
  const scopes = new AsyncLocalStorage();
  const [starts, calls, logs] = [[], [], []];
  const isCancelled = (scope) => scope !== undefined && (scope.isCancelled || isCancelled(scope.parent));
  const attempt = (run) => new Promise((resolve) => resolve(typeof run === "function" ? run() : run));
  const agent = (prompt) =>
    new Promise((resolve, reject) => {
      const answer = () => (prompt.includes("FAIL") ? reject(new Error(`no answer to ${prompt}`)) : resolve(`re: ${prompt}`));
      calls.push({ scope: scopes.getStore(), run: answer });
    });
  // With as many turns of promises as the engine's functions, so that log lines have the same order.
  const orNull = (promise) => new Promise((resolve) => void promise.then(resolve, () => resolve(null)));
  const all = (promises) =>
    new Promise((resolve) => {
      const values = promises.map(() => null);
      let open = promises.length;
      if (open === 0) resolve(values);
      promises.forEach((one, i) => void one.then((value) => ((values[i] = value), (open -= 1), open === 0 && resolve(values))));
    });
  const parallel = (list) => all(list.map((one) => orNull(attempt(one))));
  const pipeline = (items, ...stages) => {
    const through = async (item, i) => {
      let value = item;
      for (const stage of stages) value = await stage(value, item, i);
      return value;
    };
    return all(items.map((item, i) => orNull(through(item, i))));
  };
  const any = (list) =>
    new Promise((resolve, reject) => {
      const parent = scopes.getStore();
      let failed = 0;
      const all = list.map(() => ({ parent, isCancelled: false }));
      const decide = (i) => all.forEach((scope, k) => (scope.isCancelled = k !== i));
      list.forEach((run, i) => {
        const done = (value) => (decide(i), resolve(value));
        const lost = (error) => {
          failed += 1;
          if (failed === list.length) reject(new Error(`every function of any failed: ${textOf(error)}`));
        };
        starts.push({ scope: all[i], run: () => scopes.run(all[i], () => attempt(run).then(done, lost)) });
      });
    });
  const log = (...values) => void logs.push(values.map(textOf).join(" "));
  let end;
  const names = { agent, any, log, parallel, pipeline };
  const made = new AsyncFunction(...Object.keys(names), `"use strict"; ${source}`);
  made(...Object.values(names)).then(
    (value) => (end = { returned: value ?? null }),
    (error) => (end = { failed: textOf(error).replace(/^Error: /, "") }),
  );
  for (;;) {
    await turn();
    const next = end === undefined && (starts.shift() ?? calls.shift());
    if (!next) return { end: end ?? { failed: "stuck" }, logs };
    if (!isCancelled(next.scope)) next.run();
  }
};

(async () => {
  let input = "";
  for await (const part of process.stdin) input += part;
  const ends = [];
  for (const source of JSON.parse(input)) ends.push(await execute(source));
  process.stdout.write(JSON.stringify(ends));
})();
