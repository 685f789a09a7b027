#!/bin/sh
# Draws every formation for docs/formations.md; run it from the repository's root.
set -e
draw() { name=$1; shift; starling formation "$name" "$@" --svg "docs/pictures/$name.svg"; }
draw single
draw sync --actors 4
draw actor_learner --actors 4
draw evolution --actors 4
draw central_inference --actors 4
draw apex --actors 8 --buffers 2
draw async_gradients --actors 4
draw sharded_ps --actors 4 --servers 2
draw allreduce --actors 4 --learners 2
