"""A worker's share of rows that step together."""

from __future__ import annotations

from typing import Any

from starling.envs.channels import RESET, STATE, STEP
from starling.envs.gym_envs import GymEnvs
from starling.envs.shared_rows import SharedRows

__all__ = ["Together"]


class Together:
    """Does what is asked of all rows of its share, and leaves in shared memory what came of it."""

    def __init__(self, envs: GymEnvs, rows: SharedRows, share: slice) -> None:
        self.envs, self._rows, self._share = envs, rows, share
        self._actions = rows.actions(share)

    def do(self, code: int, content: Any) -> Any:
        """The answer, where there is one beside what lies in shared memory."""
        if code == STEP:
            return self._rows.write(self._share, self.envs.step(self._actions))
        if code == RESET:
            return self._rows.write_first(self._share, self.envs.reset())
        if code == STATE:
            return self.envs.state()
        self._rows.write_first(self._share, self.envs.restore(content))
        return self.envs.exact_resume
