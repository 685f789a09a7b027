"""Records of what an executor chose."""

from __future__ import annotations

import pytest

from starling.core.effects import Latest, Message, Newest, Pulse, Put, Sleep, Take, TakeMany
from starling.core.errors import RunError
from starling.executors.recording import Recorder
from starling.formations import Edge, Formation, RoleId, Roles
from starling.records.choices import LATEST, PULSE, TAKE, Choices

EDGES = (
    Edge("weights", "broadcast", "learner", "actor"),
    Edge("experience", "queue", "actor", "learner"),
)
FORMATION = Formation("script", (Roles("learner", 2), Roles("actor", 3)), EDGES, "learner")
ROLE = RoleId("actor", 1)


@pytest.fixture
def record(tmp_path):
    recorder = Recorder(tmp_path, FORMATION, ROLE, 0)
    recorder.note(Latest("weights", sender=1), Newest(None, 30, 7))
    recorder.note(Put("experience", 0), None)
    recorder.note(Sleep(1.0), None)
    recorder.note(Take(("experience",)), Message("experience", 2, None))
    recorder.note(TakeMany("experience", 4, 0.1), [Message("experience", 0, None), Message("experience", 2, None)])
    recorder.note(Pulse(5), True)
    recorder.close()
    return tmp_path / "actor-1.0"


def test_choices_come_back_as_they_were_noted(record):
    found = [(kind, numbers) for kind, numbers in Choices(str(ROLE), record)]
    assert found == [(LATEST, [0, 1, 7]), (TAKE, [1, 2]), (TAKE, [1, 0, 1, 2]), (PULSE, [1])]


def test_another_effect_than_the_recorded_one_is_refused(record):
    with pytest.raises(RunError, match=r"actor-1 makes a take where latest was recorded; a replay needs the code and"):
        Choices(str(ROLE), record).next(TAKE)


def test_a_last_choice_that_was_cut_off_is_none(record):
    record.write_bytes(record.read_bytes()[:-3])
    assert [kind for kind, _ in Choices(str(ROLE), record)] == [LATEST, TAKE, TAKE]
