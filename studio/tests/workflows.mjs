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
