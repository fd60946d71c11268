"""Graph for the load test: one node that returns a number."""

from typing import TypedDict

from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    n: int


def node(state: State) -> State:
    return {"n": state["n"]}


echo = StateGraph(State).add_node("node", node).add_edge(START, "node").add_edge("node", END).compile()
