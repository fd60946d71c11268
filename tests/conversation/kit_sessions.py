"""Sessions and scores of compaction-conformance-kit for tests/conversation/compaction_kit.rs.

`sessions` prints a list of {"name", "messages", "current"}; "current" are the user's rules and constraints, and
the other statements without replaced ones. `score` reads a list of {"name", "texts"}, the text of each round, and prints a list of
{"name", "rounds"}: for each round the share of surviving statements by type.
"""

import json
import re
import sys

from compaction_kit.canaries import seeded_canaries
from compaction_kit.corpus import build_random_session
from compaction_kit.generated import build_generated_session
from compaction_kit.runner import _probe_all, _rates
from compaction_kit.session import build_seeded_session

SEEDS = range(1, 13)
# The share of each type is a mean over these, because a session has only two statements of a type.
GENERATED_SEEDS = range(1, 101)


def sessions():
    yield "seeded", build_seeded_session(), seeded_canaries()
    for seed in SEEDS:
        yield f"random {seed}", *build_random_session(seed)
    for seed in GENERATED_SEEDS:
        yield f"generated {seed}", *build_generated_session(seed)


def current(session, canaries):
    labels = {canary.content.split(":")[0] for canary in canaries}
    old = [re.escape(token) for canary in canaries for token in canary.superseded_tokens]
    is_old = re.compile(rf"(?<!\w)({'|'.join(old)})(?!\w)").search if old else lambda text: False
    said = [turn.text for turn in session.turns if turn.role == "user" and turn.text.split(":")[0] in labels]
    # A paraphrase of a rule replaces nothing, so that both must be retained.
    is_binding = lambda text: text.startswith(("SAFETY RULE", "HARD CONSTRAINT"))
    return [text for text in said if is_binding(text) or not is_old(text.lower().split(":", 1)[1])]


def main():
    if sys.argv[1] == "sessions":
        found = []
        for name, session, canaries in sessions():
            messages = [{"role": turn.role, "content": turn.text} for turn in session.turns]
            found.append({"name": name, "messages": messages, "current": current(session, canaries)})
        return json.dump(found, sys.stdout)
    texts = {one["name"]: one["texts"] for one in json.load(sys.stdin)}
    scores = []
    for name, _, canaries in sessions():
        survived = [_probe_all(canaries, text) for text in texts[name]]
        lost = [[c.content for c in canaries if not one[c.id]] for one in survived]
        rounds = [_rates(canaries, one) for one in survived]
        scores.append({"name": name, "rounds": rounds, "lost": lost[-1]})
    json.dump(scores, sys.stdout)


main()
