"""Sessions and scores of compaction-conformance-kit for tests/conversation/compaction_kit.rs.

`sessions` prints a list of {"name", "messages"}. `score` reads a list of {"name", "texts"}, the text of each round, and prints a list of
{"name", "rounds"}: for each round the share of surviving statements by type.
"""

import json
import sys

from compaction_kit.canaries import seeded_canaries
from compaction_kit.corpus import build_random_session
from compaction_kit.generated import build_generated_session
from compaction_kit.runner import _probe_all, _rates
from compaction_kit.session import build_seeded_session

SEEDS = range(1, 13)


def sessions():
    yield "seeded", build_seeded_session(), seeded_canaries()
    for seed in SEEDS:
        yield f"random {seed}", *build_random_session(seed)
        yield f"generated {seed}", *build_generated_session(seed)


def main():
    if sys.argv[1] == "sessions":
        found = []
        for name, session, _ in sessions():
            messages = [{"role": turn.role, "content": turn.text} for turn in session.turns]
            found.append({"name": name, "messages": messages})
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
