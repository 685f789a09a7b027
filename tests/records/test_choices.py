"""Recorded choices: what was written comes back, and what nobody wrote is refused."""

import pytest

from starling.core.errors import RunError
from starling.records.choices import Choices

GOOD = b'["latest", [1, 0, 2]]\n["take", [0, 1, 0, 0]]\n["pulse", [0]]\n'


@pytest.fixture
def record(tmp_path):
    path = tmp_path / "learner-0.0"
    path.write_bytes(GOOD)
    return path


@pytest.mark.parametrize(
    "line",
    [
        *("take", "5", "[]", "null", "{}", '["take"]', '["take", 5]', '["take", [0]]', '["take", [0, 0], 1]'),
        *('["take", [0, -1]]', '["take", [0, 1.5]]', '["take", [true, 0]]', f'["take", [0, {2**63}]]'),
        *('["take", "01"]', '["take", {"0": 1, "1": 2}]', '["latest", [1, 0]]', '["pulse", []]', '["nap", [0]]'),
        *('[["take"], [0, 0]]', 100_000 * "[", f'["take", [0, {5_000 * "9"}]]', "\x00\x00", '["take", [0, 0]'),
    ],
    ids=lambda line: line[:30],
)
def test_a_line_that_nobody_wrote_is_refused_unless_it_is_the_torn_last_one(record, line):
    record.write_bytes(GOOD + line.encode() + b"\n")
    assert len(list(Choices("learner-0", record))) == 3
    record.write_bytes(GOOD + line.encode() + b"\n" + GOOD)
    with pytest.raises(RunError, match=r"learner-0\.0, line 4, is no choice, yet choices follow; mend or remove it"):
        Choices("learner-0", record)


def test_bytes_that_are_no_text_are_refused(record):
    record.write_bytes(b"\xff\xfe\n" + GOOD)
    with pytest.raises(RunError, match="line 1, is no choice"):
        Choices("learner-0", record)


def test_a_link_is_not_followed(record, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(record)
    with pytest.raises(RunError, match="cannot be read"):
        Choices("learner-0", link)
