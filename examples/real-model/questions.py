"""Reads contexts with questions from stdin (`pirn-benches-compression contexts N`), lets a small real model answer them, and
prints a Markdown table with the share of correct answers of each strategy."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import model

COLUMNS = {
    "Rule": "rules",
    "Fact": "facts",
    "Negation": "negations",
    "Correction": "corrections",
    "Claim": "claims",
}
# Long enough for a number of four digits and a space before it.
ANSWER_TOKENS = 8


server = model.serve(Path(sys.argv[1]))
asked, correct, tokens, replies = Counter(), Counter(), Counter(), {}
strategies = {}
for line in sys.stdin:
    context = json.loads(line)
    strategy = context["strategy"]
    strategies[strategy] = True
    # The model was not trained on conversations with a template: it continues a text.
    text = "".join(f"{message['role'].capitalize()}: {message['content']}\n" for message in context["messages"])
    for question in context["questions"]:
        prompt = f"{text}Assistant: {question['start']}"
        # Two strategies may retain the same messages.
        if prompt not in replies:
            replies[prompt] = model.complete(server.listening_address, prompt, ANSWER_TOKENS)
        reply, length = replies[prompt]
        number = re.search(r"\d+", reply)
        for key in ((strategy, question["kind"]), (strategy, "all")):
            asked[key] += 1
            correct[key] += number is not None and number[0] == question["answer"]
        tokens[strategy] += length

print("| strategy |", " | ".join(COLUMNS.values()), "| all | tokens |")
print("|---" * (len(COLUMNS) + 3) + "|")
for strategy in strategies:
    shares = [f"{correct[strategy, kind] * 100 / asked[strategy, kind]:.0f} %" for kind in (*COLUMNS, "all")]
    print(f"| {strategy} |", " | ".join(shares), f"| {tokens[strategy] / asked[strategy, 'all']:.0f} |")
