"""Serves a small real model on a port of loopback, lets it plan and run a workflow for each task (real.json), and prints what it has
submitted. Arguments: the folder of the model, the program `pirn`, and the tasks; without tasks, the ten below."""

import json
import re
import subprocess
import sys
from pathlib import Path

import model

HERE = Path(__file__).parent
TASKS = [
    "Compare rice and pasta.",
    "Write a story about the forest, and improve it.",
    "Compare trains and planes.",
    "Write a speech about the moon, and improve it.",
    "Compare gold and silver.",
    "Write a song about the river, and improve it.",
    "Compare apples and oranges.",
    "Write a report about the weather, and improve it.",
    "Compare summer and winter.",
    "Write a joke about the office, and improve it.",
]
# With a seed, each execution on the same processor gives the same texts. A model of this size does not end its turns: it continues
# with the next turn, or repeats the call. Without the penalties, it repeats the question instead of answering it.
PROFILES = {
    "planner": {"temperature": 0, "seed": 1, "maxTokens": 300, "stop": ["<|im_end|>", "</tool_call>"]},
    "worker": {
        "temperature": 0.7,
        "seed": 1,
        "maxTokens": 40,
        # A result of one line, as in the examples: after a longer one, the planner submits its workflow again.
        "stop": ["<|im_end|>", "\n"],
        "repeat_penalty": 1.1,
        "dry_multiplier": 0.8,
    },
}


def topics(task):
    """The words of a task that its workflow must contain."""
    found = re.fullmatch(r"Compare (\w+) and (\w+)\.|Write an? (\w+) about the (\w+),.*", task)
    return [word for word in found.groups() if word] if found else []


def planned(task, pirn, config, events):
    """Runs the workflow, prints the submissions, and returns true if one of them is about the task and has completed."""
    command = [pirn, "run", HERE / "real.json", "--profiles", config, "--conversation", HERE / "real-examples.json"]
    command += ["--events", events, "--input", json.dumps(task), "--quiet"]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    print(f"task: {task}")
    read = [json.loads(line) for line in events.read_text().splitlines()]
    kind = lambda word: [event for event in read if event["type"] == word]
    scripts = {event["toolCallId"]: event["arguments"].get("script", "") for event in kind("TOOL_CALL_STARTED")}
    completed = {event["childThreadId"] for event in kind("SUBGRAPH_COMPLETED") if event["status"] == "COMPLETED"}
    children = [event["childThreadId"] for event in kind("SUBGRAPH_STARTED") if event["nodeId"] == "plan"]
    agents = [event for event in kind("SUBGRAPH_STARTED") if event["threadId"] in children]
    for script in scripts.values():
        print("".join(f"  {line}\n" for line in script.splitlines()), end="")
    print(f"  agents: {len(agents)}, submissions: {len(scripts)}, exit code: {ended.returncode}")
    for line in (ended.stdout + ended.stderr).strip().splitlines()[:1]:
        print(f"  output: {line}", flush=True)
    is_about = any(all(word in script for word in topics(task)) for script in scripts.values())
    return ended.returncode == 0 and len(agents) >= 2 and is_about and bool(completed.intersection(children))


folder, pirn, tasks = Path(sys.argv[1]), sys.argv[2], sys.argv[3:] or TASKS
server = model.serve(folder, (Path(model.__file__).parent / "tools.jinja").read_text())
config = folder / "dynamic.json"
profiles = [model.profile(name, server.listening_address, parameters) for name, parameters in PROFILES.items()]
config.write_text(json.dumps({"profiles": profiles}, indent=2))
count = sum(planned(task, pirn, config, folder / "dynamic-events.jsonl") for task in tasks)
print(f"{count} of {len(tasks)} tasks: a workflow about the task was planned and has completed")
