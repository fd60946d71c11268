"""Serves a small real model in OpenAI's protocol on a port of loopback, writes the support desk's config with that model
in it, prints the config's path, and ends when stdin is closed."""

import json
import sys
import tomllib
from pathlib import Path

import model

# Profiles of the support desk that use the real model: the writer of the summary, and the writer of the answer. The other
# profiles call tools and quote records, which a model of this size cannot do; they stay scripted.
REAL = {
    "summarizer": {"maxTokens": 300},
    "writer": {"maxTokens": 120},
}
# The last two are extensions of the server. Without them, a model of this size repeats one sentence.
PARAMETERS = {"temperature": 0.7, "seed": 1, "stop": ["<|im_end|>"], "repeat_penalty": 1.1, "dry_multiplier": 0.8}


def config(desk, address):
    """The desk's config, with the model at `address` for the profiles above."""
    written = tomllib.loads((desk / "pirn.toml").read_text())
    for place, profile in enumerate(written["profiles"]):
        if profile["id"] in REAL:
            written["profiles"][place] = model.profile(profile["id"], address, PARAMETERS | REAL[profile["id"]])
    for tool in written["tools"]:
        tool["command"]["cwd"] = str(desk.resolve())
    return written


folder, desk = Path(sys.argv[1]), Path(sys.argv[2])
server = model.serve(folder)
path = folder / "config.json"
path.write_text(json.dumps(config(desk, server.listening_address), indent=2))
print(path, flush=True)
sys.stdin.read()
