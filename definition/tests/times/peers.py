"""Writes peers.json: cron expressions, a start, and the next times on which the packages croniter and cronsim agree.

    pip install croniter cronsim && python3 definition/tests/times/peers.py
"""

import datetime
import json
import pathlib
import random

from croniter import croniter
from cronsim import CronSim

ROWS, TIMES = 150, 4
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
DAYS = "sun mon tue wed thu fri sat".split()


def field(choose, low, high, names=()):
    def value():
        if names and choose.random() < 0.3:
            return choose.choice(names)
        return str(choose.randint(low, high))

    low_end = choose.randint(low, high - 1)
    span = f"{low_end}-{choose.randint(low_end + 1, high)}"
    step = choose.randint(2, (high - low) // 2)
    return choose.choice(["*", "*", value(), f"{value()},{value()}", span, f"{span}/{step}", f"*/{step}"])


def start(choose):
    day = datetime.datetime(choose.randint(1990, 2090), choose.randint(1, 12), choose.randint(1, 28))
    return day + datetime.timedelta(minutes=choose.randrange(24 * 60))


def by_both(expression, begins):
    first, second = croniter(expression, begins), CronSim(expression, begins)
    times = [(first.get_next(datetime.datetime), next(second)) for _ in range(TIMES)]
    # They differ where a step restricts one of the two kinds of days, and in unusual ranges.
    return [a.isoformat() for a, _ in times] if all(a == b for a, b in times) else None


choose = random.Random(1)
rows = []
while len(rows) < ROWS:
    parts = [(0, 59), (0, 23), (1, 31), (1, 12, MONTHS), (0, 6, DAYS)]
    expression = " ".join(field(choose, *part) for part in parts)
    begins = start(choose)
    try:
        times = by_both(expression, begins)
    except Exception:  # An expression that matches no date.
        continue
    if times:
        rows.append([expression, begins.isoformat(), times])
text = ",\n".join(json.dumps(row) for row in rows)
pathlib.Path(__file__).with_name("peers.json").write_text(f"[\n{text}\n]\n")
