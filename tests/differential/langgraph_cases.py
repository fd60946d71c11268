"""Runs the workflows of cases.json on LangGraph and prints the final state of each, as JSON by name."""

import json
import operator
import pathlib
import re
import sys
import typing

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt


class State(typing.TypedDict, total=False):
    input: typing.Any
    output: typing.Any
    messages: typing.Annotated[list, operator.add]
    # Outputs of parallel nodes by name.
    outputs: typing.Annotated[dict, operator.or_]
    log: typing.Annotated[list, operator.add]
    total: typing.Annotated[int, operator.add]
    n: int
    m: int
    draft: str
    verdict: str
    rounds: int
    item: typing.Any
    index: int


class Model:
    """Scripted model: each call returns the first unused response whose pattern matches the prompt."""

    def __init__(self, responses):
        self.open = list(responses)

    def ask(self, prompt):
        for response in self.open:
            if re.search(response["match"], prompt):
                self.open.remove(response)
                return response["content"]
        raise LookupError(prompt)


def turn(model, prompt):
    reply = model.ask(prompt)
    return reply, [["user", prompt], ["assistant", reply]]


def line(graph, *nodes):
    names = []
    for name, node in nodes:
        graph.add_node(name, node)
        names.append(name)
    for before, after in zip([START, *names], [*names, END]):
        graph.add_edge(before, after)


def chain(graph, case, model):
    line(
        graph,
        ("a", lambda state: {"n": state["input"]["n"] + 1}),
        ("b", lambda state: {"n": state["n"] * 2}),
        ("c", lambda state: {"output": state["n"] - 3}),
    )


def speaks(model, prompt):
    def node(state):
        reply, messages = turn(model, prompt(state))
        return {"output": reply, "messages": messages}

    return node


def talk(graph, case, model):
    line(
        graph,
        ("hello", speaks(model, lambda state: f"Greet {state['input']}.")),
        ("bye", speaks(model, lambda state: "Say goodbye.")),
    )


def route(graph, case, model):
    graph.add_node("sorry", lambda state: {"output": "sorry"})
    graph.add_node("thanks", lambda state: {"output": "thanks"})
    graph.add_conditional_edges(START, lambda state: "sorry" if state["input"]["mood"] == "angry" else "thanks")
    graph.add_edge("sorry", END)
    graph.add_edge("thanks", END)


def route_model(graph, case, model):
    graph.add_node("mood", speaks(model, lambda state: f"Happy or angry: {state['input']}"))
    graph.add_node("sorry", speaks(model, lambda state: "Apologize."))
    graph.add_node("thanks", speaks(model, lambda state: "Thank them."))
    graph.add_edge(START, "mood")
    graph.add_conditional_edges("mood", lambda state: "sorry" if state["output"] == "angry" else "thanks", ["sorry", "thanks"])
    graph.add_edge("sorry", END)
    graph.add_edge("thanks", END)


def fork(graph, case, model):
    graph.add_node("more", lambda state: {"outputs": {"more": state["input"]["n"] + 1}})
    graph.add_node("twice", lambda state: {"outputs": {"twice": state["input"]["n"] * 2}})
    join(graph, ["more", "twice"], lambda state: {"output": state["outputs"]})


def join(graph, paths, node):
    graph.add_node("join", node)
    for path in paths:
        graph.add_edge(START, path)
    graph.add_edge(paths, "join")
    graph.add_edge("join", END)


def fork_models(graph, case, model):
    words = {"what": "What is", "why": "Why", "where": "Where is"}
    for name, word in words.items():

        def node(state, name=name, word=word):
            reply, messages = turn(model, f"{word} {state['input']}?")
            # The conversation of the main path continues.
            return {"outputs": {name: reply}, "messages": messages if name == "what" else []}

        graph.add_node(name, node)
    join(graph, list(words), lambda state: {"output": [state["outputs"][name] for name in words]})


def nested(graph, case, model):
    graph.add_node("outer", lambda state: {"outputs": {"outer": state["input"]["n"] * 5}})
    graph.add_node("inside", lambda state: {})
    graph.add_node("one", lambda state: {"outputs": {"one": state["input"]["n"] + 1}})
    graph.add_node("two", lambda state: {"outputs": {"two": state["input"]["n"]}})
    graph.add_node("inner", lambda state: {"outputs": {"inner": state["outputs"]["one"] + state["outputs"]["two"]}})
    graph.add_node("join", lambda state: {"output": state["outputs"]["outer"] + state["outputs"]["inner"]})
    graph.add_edge(START, "outer")
    graph.add_edge(START, "inside")
    graph.add_edge("inside", "one")
    graph.add_edge("inside", "two")
    graph.add_edge(["one", "two"], "inner")
    graph.add_edge(["outer", "inner"], "join")
    graph.add_edge("join", END)


def mapped(graph, each):
    graph.add_node("each", lambda state: {"outputs": {state["index"]: each(state["item"])}})
    graph.add_node("join", lambda state: {"output": [value for _, value in sorted(state.get("outputs", {}).items())]})
    sends = lambda state: [Send("each", {"item": item, "index": index}) for index, item in enumerate(state["input"])] or "join"
    graph.add_conditional_edges(START, sends, ["each", "join"])
    graph.add_edge("each", "join")
    graph.add_edge("join", END)


def map_squares(graph, case, model):
    mapped(graph, lambda item: item * item)


def map_models(graph, case, model):
    mapped(graph, lambda item: model.ask(f"Which way does the {item} run?"))


def count(graph, case, model):
    graph.add_node("more", lambda state: {"n": state.get("n", 0) + 1})
    graph.add_node("done", lambda state: {"output": state["n"]})
    graph.add_edge(START, "more")
    graph.add_conditional_edges("more", lambda state: "more" if state["n"] < state["input"]["limit"] else "done", ["more", "done"])
    graph.add_edge("done", END)


def total_of(graph, case, model):
    graph.add_node("add", lambda state: {"n": state.get("n", 0) + state["input"][state.get("rounds", 0)], "rounds": state.get("rounds", 0) + 1})
    graph.add_node("done", lambda state: {"output": state["n"]})
    graph.add_edge(START, "add")
    graph.add_conditional_edges("add", lambda state: "add" if state["rounds"] < len(state["input"]) else "done", ["add", "done"])
    graph.add_edge("done", END)


def refine(graph, case, model):
    def write(state):
        rounds = state.get("rounds", 0)
        prompt = f"Again: {state['verdict']}" if rounds else f"Write a notice: {state['input']}"
        draft, messages = turn(model, prompt)
        return {"draft": draft, "rounds": rounds + 1, "messages": messages}

    def judge(state):
        verdict, messages = turn(model, f"Judge: {state['draft']}")
        return {"verdict": verdict, "messages": messages}

    graph.add_node("write", write)
    graph.add_node("judge", judge)
    graph.add_node("done", lambda state: {"output": {"draft": state["draft"], "rounds": state["rounds"]}})
    graph.add_edge(START, "write")
    graph.add_edge("write", "judge")
    graph.add_conditional_edges("judge", lambda state: "done" if state["verdict"] == "OK" else "write", ["done", "write"])
    graph.add_edge("done", END)


def called(node):
    inner = StateGraph(State)
    line(inner, ("only", node))
    return inner.compile()


def subgraph(graph, case, model):
    double = called(lambda state: {"output": state["input"]["n"] * 2})
    line(
        graph,
        ("double", lambda state: {"n": double.invoke({"input": state["input"]})["output"]}),
        ("more", lambda state: {"output": state["n"] + 1}),
    )


def subgraph_models(graph, case, model):
    explain = called(speaks(model, lambda state: f"Explain {state['input']}."))
    line(
        graph,
        ("explain", lambda state: {"output": explain.invoke({"input": state["input"]})["output"]}),
        ("shorten", speaks(model, lambda state: f"Shorten: {state['output']}")),
    )


def asks(name):
    return lambda state: {"outputs": {name: interrupt(name)}}


def interrupted(graph, case, model):
    line(
        graph,
        ("approve", asks("approve")),
        ("done", lambda state: {"output": {"amount": state["input"]["amount"], "answer": state["outputs"]["approve"]}}),
    )


def two_people(graph, case, model):
    graph.add_node("finance", asks("finance"))
    graph.add_node("legal", asks("legal"))
    join(graph, ["finance", "legal"], lambda state: {"output": state["outputs"]})


def append(graph, case, model):
    graph.add_node("first", lambda state: {"log": [state["input"][0]]})
    graph.add_node("second", lambda state: {"log": [state["input"][1]]})
    join(graph, ["first", "second"], lambda state: {"output": state["log"]})


def total(graph, case, model):
    graph.add_node("first", lambda state: {"total": state["input"][0]})
    graph.add_node("second", lambda state: {"total": state["input"][1]})
    join(graph, ["first", "second"], lambda state: {"output": state["total"]})


def retry(graph, case, model):
    calls = []

    def flaky(state):
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError("not yet")
        return {"output": "third time"}

    graph.add_node("flaky", flaky, retry_policy=RetryPolicy(max_attempts=3, initial_interval=0.001))
    graph.add_edge(START, "flaky")
    graph.add_edge("flaky", END)


def time_travel(graph, case, model):
    line(
        graph,
        ("a", lambda state: {"n": state["input"]["n"]}),
        # A script belongs to a run: a run that goes back repeats its responses.
        ("ask", lambda state: {"messages": [["user", "Go on."], ["assistant", Model(case["responses"]).ask("Go on.")]]}),
        ("b", lambda state: {"m": state["n"] + 1}),
    )


BUILD = {
    "chain": chain,
    "talk": talk,
    "route": route,
    "route-default": route,
    "route-model": route_model,
    "fork": fork,
    "fork-models": fork_models,
    "nested": nested,
    "map": map_squares,
    "map-models": map_models,
    "map-empty": map_squares,
    "count": count,
    "sum": total_of,
    "refine": refine,
    "subgraph": subgraph,
    "subgraph-models": subgraph_models,
    "interrupt": interrupted,
    "two-people": two_people,
    "append": append,
    "total": total,
    "retry": retry,
    "time-travel": time_travel,
}


def play(case):
    graph = StateGraph(State)
    BUILD[case["name"]](graph, case, Model(case.get("responses", [])))
    app = graph.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": case["name"]}, "recursion_limit": 100}
    state = app.invoke({"input": case["input"]}, config)
    for name, answer in case.get("answers", []):
        waiting = [one for task in app.get_state(config).tasks for one in task.interrupts]
        asked = next(one for one in waiting if one.value == name)
        state = app.invoke(Command(resume={asked.id: answer}), config)
    if case["name"] == "time-travel":
        before = next(at for at in app.get_state_history(config) if at.next == ("ask",))
        changed = app.update_state(before.config, {"n": 10})
        again = app.invoke(None, changed)
        return {"output": [{"n": one["n"], "m": one["m"]} for one in (state, again)], "messages": []}
    return {"output": state.get("output"), "messages": state.get("messages", [])}


cases = json.loads(pathlib.Path(__file__).with_name("cases.json").read_text())
json.dump({case["name"]: play(case) for case in cases}, sys.stdout)
