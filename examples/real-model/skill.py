"""Serves a small real model, lets it write a workflow for each task after the page of `pirn skill`, and checks the workflows.
Arguments: the folder of the model, the program `pirn`, and a number of tasks, which are tried with the whole page only."""

import re
import subprocess
import sys
from pathlib import Path

import model

TASKS = [
    "Translate the text into French.",
    "Write a song about the river, then improve it.",
    "Name three risks of the plan.",
    "Write a speech about the moon, then improve it.",
    "Summarize the text in two sentences.",
    "Write a report about the weather, then improve it.",
    "Write a recipe for the dish.",
    "Write a joke about the office, then improve it.",
    "Explain the word to a child.",
    "Write a poem about the forest, then improve it.",
]
# Enough for four times the workflow of a task.
ANSWER_TOKENS = 800


def accepted(workflow, task):
    """Returns true if `pirn check` accepts the workflow and one of its prompts is that of the task."""
    path = folder / "skill.json"
    path.write_text(workflow)
    checked = subprocess.run([pirn, "check", path, "--profiles", config], capture_output=True, text=True)
    prompt = re.split(r", then|\.$", task)[0]
    return checked.stdout.startswith("valid: 0 errors, 0 warnings") and f'"prompt": "{prompt}' in workflow


folder, pirn = Path(sys.argv[1]), sys.argv[2]
tasks = TASKS[: int(sys.argv[3])] if len(sys.argv) > 3 else TASKS
page = subprocess.run([pirn, "skill"], capture_output=True, text=True, check=True).stdout
config = folder / "skill.toml"
config.write_text(re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1])
server = model.serve(folder)
without_tasks = page[: page.index("## Tasks with their workflows")]
readings = [("the page", page), ("the page without its last section", without_tasks), ("no page", "")]
for name, read in readings[:1] if len(sys.argv) > 3 else readings:
    count = 0
    for task in tasks:
        # The model was not trained on conversations with a template: it continues the page.
        prompt = f"{read.rstrip()}\n\nTask: {task}\n\n```json\n"
        workflow, _ = model.complete(server.listening_address, prompt, ANSWER_TOKENS, "```")
        is_accepted = accepted(workflow, task)
        count += is_accepted
        print(f"{'accepted' if is_accepted else 'refused '}  {task}", flush=True)
    print(f"{name}: {count} of {len(tasks)} workflows accepted", flush=True)
