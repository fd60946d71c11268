// Runs the page examples/service/index.html with a minimal stub of a browser: starts a workflow by its form and prints the text
// that it shows at the end.
//
// node --experimental-eventsource page.mjs FILE SERVICE WORKFLOW MESSAGE
import { readFile } from "node:fs/promises";

const [, , file, service, workflow, message] = process.argv;
const page = await readFile(file, "utf8");

class Element {
  children = [];
  textContent = "";
  value = "";
  listeners = {};
  append(...children) {
    this.children.push(...children);
    this.appended?.(children);
  }
  replaceChildren(...children) {
    this.children = children;
  }
  addEventListener(name, listener) {
    this.listeners[name] = listener;
  }
}

const elements = Object.fromEntries([...page.matchAll(/ id="(\w+)"/g)].map(([, id]) => [id, new Element()]));
globalThis.location = { search: `?service=${encodeURIComponent(service)}` };
globalThis.document = { getElementById: (id) => elements[id] ?? null, createElement: () => new Element() };
globalThis.Option = class {
  constructor(text, value) {
    Object.assign(this, { text, value });
  }
};
const ended = new Promise((end) => {
  elements.events.appended = ([{ textContent }]) => {
    // A line without a sequence in front is no event, but the final status or an error.
    if (!/^\d/.test(textContent)) end();
  };
});
const [, script] = page.match(/<script type="module">(.*)<\/script>/s);
await import(`data:text/javascript,${encodeURIComponent(script)}`);

elements.workflow.value = workflow;
elements.message.value = message;
await elements.ask.listeners.submit({ preventDefault() {} });
await ended;
console.log(JSON.stringify({
  workflows: elements.workflow.children.map(({ value }) => value),
  said: elements.said.textContent,
  events: elements.events.children.map(({ textContent }) => textContent),
}));
