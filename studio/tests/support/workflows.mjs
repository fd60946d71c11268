// Workflows of the tests that are no examples.

/** A branch fails after three attempts while the other waits in a called workflow. */
export const FAILING = {
  workflows: [
    {
      id: "failing",
      nodes: [
        { id: "start", type: "START" },
        { id: "both", type: "FORK", config: { forkPathIds: ["a", "b"], childNodeIds: ["unstable", "called"] } },
        { id: "unstable", type: "CODE", config: { code: "throw new Error('no <b id=injected>bold</b>')" }, retry: { maxAttempts: 3, initialDelayMs: 5 } },
        { id: "called", type: "SUBGRAPH", config: { subgraphId: "slow" } },
        { id: "joined", type: "JOIN", config: { joinStrategy: "ALL_COMPLETED" } },
        { id: "end", type: "END" },
      ],
      edges: [
        { from: "start", to: "both" },
        { from: "both", to: "unstable" },
        { from: "both", to: "called" },
        { from: "unstable", to: "joined" },
        { from: "called", to: "joined" },
        { from: "joined", to: "end" },
      ],
    },
    {
      id: "slow",
      nodes: [{ id: "start", type: "START" }, { id: "wait", type: "WAIT", config: { seconds: 5 } }, { id: "end", type: "END" }],
      edges: [{ from: "start", to: "wait" }, { from: "wait", to: "end" }],
    },
  ],
};

/** A FORK of `n` branches that each set a variable. */
export function fork(n) {
  const paths = Array.from({ length: n }, (_, i) => `p${i}`);
  return {
    id: `fork-${n}`,
    nodes: [
      { id: "start", type: "START" },
      { id: "fork", type: "FORK", config: { forkPathIds: paths, childNodeIds: paths.map((path) => `set-${path}`) } },
      ...paths.map((path, i) => ({ id: `set-${path}`, type: "VARIABLE", config: { variableName: "n", expression: String(i) } })),
      { id: "join", type: "JOIN", config: { joinStrategy: "ALL_COMPLETED" } },
      { id: "end", type: "END" },
    ],
    edges: [
      { from: "start", to: "fork" },
      ...paths.flatMap((path) => [{ from: "fork", to: `set-${path}` }, { from: `set-${path}`, to: "join" }]),
      { from: "join", to: "end" },
    ],
    variables: [{ name: "n", value: 0 }],
  };
}

/** Two calls of a model at `endpoint`, the second of which extends the first one, a request of more than 1,024 tokens. */
export const twoCalls = (endpoint) => ({
  profiles: [{ id: "far", provider: "openai", model: "small", endpoint, stream: false, prices: { input: 3, cachedRead: 0.3, output: 15 } }],
  workflows: [
    {
      id: "two-calls",
      nodes: [
        { id: "start", type: "START" },
        { id: "read", type: "LLM", config: { profileId: "far", prompt: "The parcels are sorted by their weight. ".repeat(300) } },
        { id: "write", type: "LLM", config: { profileId: "far", prompt: "Write a label." } },
        { id: "end", type: "END" },
      ],
      edges: [
        { from: "start", to: "read" },
        { from: "read", to: "write" },
        { from: "write", to: "end" },
      ],
    },
  ],
});

/** Two of three branches decide the join; the output names them. The text of a model looks like markup. */
export const RACE = {
  profiles: [
    { id: "one", provider: "scripted", responses: [{ content: "<b id=injected>one</b>" }] },
    { id: "far", provider: "openai", model: "small", endpoint: "http://127.0.0.1:9/v1" },
  ],
  workflows: [
    {
      id: "race",
      nodes: [
        { id: "start", type: "START" },
        { id: "fork", type: "FORK", config: { forkPathIds: ["a", "b", "c"], childNodeIds: ["ask-a", "ask-b", "wait-c"] } },
        { id: "ask-a", type: "LLM", config: { prompt: "go", profileId: "one" } },
        { id: "ask-b", type: "LLM", config: { prompt: "go", profileId: "one" } },
        { id: "wait-c", type: "WAIT", config: { seconds: 2 } },
        { id: "join", type: "JOIN", config: { forkPathIds: ["a", "b", "c"], joinStrategy: "SUCCESS_COUNT_THRESHOLD", threshold: 2 } },
        { id: "end", type: "END", config: { output: "output.completed" } },
      ],
      edges: [
        { from: "start", to: "fork" },
        ...["ask-a", "ask-b", "wait-c"].flatMap((node) => [{ from: "fork", to: node }, { from: node, to: "join" }]),
        { from: "join", to: "end" },
      ],
    },
    {
      id: "far",
      nodes: [{ id: "start", type: "START" }, { id: "ask", type: "LLM", config: { prompt: "go", profileId: "far" } }, { id: "end", type: "END" }],
      edges: [{ from: "start", to: "ask" }, { from: "ask", to: "end" }],
    },
  ],
};
