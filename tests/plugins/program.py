"""A program that registers its parts by calls, and uses them in processes."""

from my_parts import LongCorridor, MyDQN, Wide

import starling

starling.register("algorithm", "my_dqn", MyDQN)
starling.register("component", "wide", Wide)
starling.register("environment", "long_corridor", LongCorridor)
starling.register("executor", "patient", "my_parts:PATIENT")
starling.register("preset", "mine", {"algo": "my_dqn", "env": "long_corridor", "steps": 400, "seed": 3})

settings = {"torso": {"type": "wide"}, "learning_starts": 100, "batch_size": 16}
roles = {"formation": "sync", "actors": 1, "executor": "patient", "heartbeat": 600.0}
result = starling.train(preset="mine", **roles, my_dqn=settings, eval_episodes=2, quiet=True)
print(result.summary["executor"], result.summary["parameter_hash"])
