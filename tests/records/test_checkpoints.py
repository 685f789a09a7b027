"""The checkpoints of a run: which are kept, which is found."""

import os

import numpy as np
import pytest

from starling.core.errors import CheckpointError
from starling.records.checkpoints import Checkpoints


def saved(directory, *steps, keep=10):
    checkpoints = Checkpoints(directory, keep=keep)
    for step in steps:
        checkpoints.save(step, {"w": np.full(3, step)})
    return checkpoints


def tear(checkpoints, step):
    path = checkpoints.path(step) / "arrays.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def test_only_the_last_few_are_kept(tmp_path):
    checkpoints = saved(tmp_path, 10, 20, 30, 40, keep=2)
    assert checkpoints.steps() == [30, 40]
    assert len(os.listdir(tmp_path)) == 2


def test_steps_are_ordered_as_numbers(tmp_path):
    assert saved(tmp_path, 9, 10, 10**12, 10**13).latest() == 10**13


def test_the_newest_is_loaded_with_its_step(tmp_path):
    tree, meta = saved(tmp_path, 1, 2).load()
    assert tree["w"].tolist() == [2, 2, 2]
    assert meta == {"step": 2}


def test_a_chosen_step_is_loaded(tmp_path):
    assert saved(tmp_path, 1, 2).load(1)[1]["step"] == 1


def test_meta_is_kept_beside_the_step(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(5, {}, {"algo": "ppo"})
    assert checkpoints.load()[1] == {"algo": "ppo", "step": 5}


def test_torn_ones_are_passed_over_with_a_word(tmp_path):
    checkpoints = saved(tmp_path, 1, 2, 3)
    tear(checkpoints, 3)
    tear(checkpoints, 2)
    assert checkpoints.latest() == 1
    assert len(checkpoints.skipped) == 2
    assert "step-000000000003" in checkpoints.skipped[0]
    assert "torn" in checkpoints.skipped[0]
    assert checkpoints.load()[1]["step"] == 1
    assert len(checkpoints.skipped) == 2
    with pytest.raises(CheckpointError, match="torn"):
        checkpoints.load(3)


def test_without_a_whole_one_the_error_says_why_for_each(tmp_path):
    checkpoints = saved(tmp_path, 1, 2)
    tear(checkpoints, 1)
    tear(checkpoints, 2)
    assert checkpoints.latest() is None
    with pytest.raises(CheckpointError, match=r"no checkpoint that can be loaded.*000002.*torn.*000001.*torn"):
        checkpoints.load()


def test_an_empty_or_missing_directory_has_none(tmp_path):
    checkpoints = Checkpoints(tmp_path / "none")
    assert checkpoints.latest() is None
    assert checkpoints.steps() == []
    with pytest.raises(CheckpointError, match="before its first checkpoint"):
        checkpoints.load()
    assert not (tmp_path / "none").exists()


def test_an_unknown_step_lists_the_known_ones(tmp_path):
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 3; there are: 1, 2\."):
        saved(tmp_path, 1, 2).load(3)


def test_left_over_temporary_directories_go_at_the_next_save_only(tmp_path):
    checkpoints = saved(tmp_path, 1)
    (tmp_path / ".writing-step-000000000002-ab").mkdir()
    assert checkpoints.latest() == 1
    assert len(os.listdir(tmp_path)) == 2, "reading changes nothing: the writer may still be at it"
    checkpoints.save(2, {})
    assert sorted(os.listdir(tmp_path)) == ["step-000000000001", "step-000000000002"]


def test_other_files_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert saved(tmp_path, 1, 2, 3, keep=1).steps() == [3]
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_the_checkpoint_just_saved_is_kept_even_if_later_ones_lie_about(tmp_path):
    checkpoints = saved(tmp_path, 100, 200, 300)
    checkpoints.keep = 1
    checkpoints.save(150, {})
    assert checkpoints.steps() == [150, 200, 300]


def test_rewinding_forgets_the_abandoned_future(tmp_path):
    checkpoints = saved(tmp_path, 100, 200, 300)
    tear(checkpoints, 300)
    checkpoints.rewind(100)
    assert checkpoints.steps() == [100]
    assert checkpoints.latest() == 100


def test_saving_a_step_again_replaces_it(tmp_path):
    checkpoints = saved(tmp_path, 1)
    checkpoints.save(1, {"w": "new"})
    assert checkpoints.load()[0] == {"w": "new"}


@pytest.mark.parametrize("keep", [0, -1])
def test_keeping_none_is_refused(tmp_path, keep):
    with pytest.raises(CheckpointError, match=f"keep={keep}"):
        Checkpoints(tmp_path, keep=keep)


def test_a_negative_step_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="step=-1 is negative"):
        Checkpoints(tmp_path).save(-1, {})


def test_of_those_that_go_on_together_the_newest_whole_step_that_all_have_is_found(tmp_path):
    ahead, behind = saved(tmp_path / "a", 10, 20, 30, 40), saved(tmp_path / "b", 10, 20, 30)
    together = Checkpoints(ahead.directory, beside=[behind.directory])
    assert together.latest() == 30
    assert together.load()[1] == {"step": 30}
    tear(behind, 30)
    assert together.latest() == 20
    assert "step-000000000030" in together.skipped[0]
    assert together.load()[1] == {"step": 20}
    assert ahead.latest() == 40, "alone it finds its own"


def test_those_that_have_no_step_in_common_are_told_apart_from_none(tmp_path):
    saved(tmp_path / "a", 10)
    together = Checkpoints(tmp_path / "a", beside=[tmp_path / "b"])
    assert together.latest() is None
    with pytest.raises(CheckpointError, match=r"those of steps \[10\], of which .*b has none"):
        together.load()
