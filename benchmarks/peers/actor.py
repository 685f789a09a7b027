"""An IMPALA actor's process up to its first chunk: prints its memory and how long it took to start, as JSON."""

from __future__ import annotations

import json
import sys
import time

begun = float(sys.argv[1])  # when the process was asked for, on the wall clock

from starling.core.effects import Newest  # noqa: E402
from starling.executors import worker  # noqa: E402, F401
from starling.executors.base import Start  # noqa: E402
from starling.experiments.config import resolve  # noqa: E402
from starling.experiments.program import Program  # noqa: E402
from starling.formations import RoleId  # noqa: E402

program = Program(resolve({"algo": "impala", "env": "CartPole-v1", "formation": "actor_learner"}))
code = program.role(RoleId("actor", 0), Start())
next(code)
started = time.time() - begun
code.send(Newest({"params": program.acting_part(program.initial), "steps": 0}, 0, 1))
with open("/proc/self/status") as file:
    resident = next(int(line.split()[1]) / 1000 for line in file if line.startswith("VmRSS"))
print(json.dumps({"megabytes": resident, "seconds": started}))
