"""The contract of effects: each means the same on every executor, and in the replay of a recorded run."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from starling.core.effects import (
    AllReduce,
    Call,
    Checkpoint,
    Latest,
    Publish,
    Pulse,
    Put,
    Reply,
    Report,
    Sleep,
    Take,
    TakeMany,
)
from starling.core.errors import ConfigError, RunError
from starling.executors import EXECUTORS, Start, get_executor
from starling.executors.edges import WAIT, Edges
from starling.executors.memory_edges import MemoryEdges
from starling.executors.processes import Supervisor
from starling.executors.recording import replay
from starling.executors.waits import Wait
from starling.formations import Edge, Formation, RoleId, Roles
from tests.executors.scripts import Script, item, number_of
from tests.executors.watchers import Watcher

MODULE = "tests.executors.test_effects"  # as worker processes import it
ONE_THREAD = ["inline", "simulated"]
every_executor = pytest.mark.parametrize("executor", EXECUTORS)  # and the replay of processes


def formation_of(roles, *edges, ends="taker"):
    return Formation("script", tuple(Roles(kind, count) for kind, count in roles.items()), edges, ends)


def run(executor, script, formation, directory, watcher=None):
    """A program and what its roles came to; on processes it is recorded, and its replay must come to the same."""
    name = f"{MODULE}:{script.__name__}"
    record = directory / "record" if executor == "processes" else None
    program = Script(name, formation, made(directory / "first"), record)
    results = get_executor(executor)(program, watcher or Watcher(), False)
    if record is not None and not any(record.glob("*.1")):
        program.replayed = Script(name, formation, made(directory / "again"))
        replayed = replay(program.replayed, Watcher(), record)
        assert replayed.keys() == results.keys()
        for role, result in results.items():
            np.testing.assert_equal(replayed[role], result)
    return program, results


def made(directory):
    directory.mkdir()
    return directory


def result_of(results, index=0):
    return {role.index: result for role, result in results.items()}[index]


# -- queues

QUEUE = Edge("items", "queue", "putter", "taker", depth=2)


def many_items(program, role, start):
    if role.kind == "putter":
        for number in range(30):
            yield Put("items", item(number))
        return None
    numbers = []
    yield Sleep(0.05)  # the queue is full by then, and its sender waits
    for _ in range(30):
        numbers.append(number_of((yield Take(("items",))).item))
    return {"numbers": np.array(numbers)}


@every_executor
def test_a_put_waits_while_the_queue_is_full_and_items_come_in_their_order(executor, tmp_path):
    _, results = run(executor, many_items, formation_of({"taker": 1, "putter": 1}, QUEUE), tmp_path)
    assert result_of(results)["numbers"].tolist() == list(range(30))


def from_one_sender(program, role, start):
    if role.kind == "putter":
        for number in range(4):
            yield Put("items", item(10 * role.index + number))
        return None
    found = []
    for sender in (2, 2, 0, 1, 1, 2):
        found.append(number_of((yield Take(("items",), sender)).item))
    return {"numbers": np.array(found)}


@every_executor
def test_a_take_from_one_sender_leaves_the_others_alone(executor, tmp_path):
    _, results = run(executor, from_one_sender, formation_of({"taker": 1, "putter": 3}, QUEUE), tmp_path)
    assert result_of(results)["numbers"].tolist() == [20, 21, 0, 10, 11, 22]


def endless(program, role, start):
    if role.kind == "putter":
        number = 0
        while True:
            yield Put("items", item(number))
            number += 1
    served, borrowed = [0, 0, 0], []
    while min(served) < 10:
        message = yield Take(("items",), borrow=True)
        served[message.sender] += 1
        borrowed = [*borrowed, (number_of(message.item), message.item)][-2:]
        for number, each in borrowed:
            assert number_of(each) == number
        yield Sleep(0.005)  # time for the senders to fill their queues, or to write where they must not
    return {"served": np.array(served)}


@every_executor
def test_every_sender_is_served_and_what_is_borrowed_stays_intact_while_it_is_on_loan(executor, tmp_path):
    lent = Edge("items", "queue", "putter", "taker", depth=1, loans=2)
    _, results = run(executor, endless, formation_of({"taker": 1, "putter": 3}, lent), tmp_path)
    assert result_of(results)["served"].min() == 10


def fed(program, role, start):
    if role.kind == "putter":
        number = 0
        while True:
            yield Put("items" if role.index else "other", item(number))
            number += 1
    served = {"items": 0, "other": 0}
    while min(served.values()) < 10:
        served[(yield Take(("items", "other"))).edge] += 1
    return {"least": np.int64(min(served.values()))}


@every_executor
def test_no_edge_is_starved_by_another(executor, tmp_path):
    other = Edge("other", "queue", "putter", "taker")
    _, results = run(executor, fed, formation_of({"taker": 1, "putter": 2}, QUEUE, other), tmp_path)
    assert int(result_of(results)["least"]) == 10


def test_lanes_that_are_all_filled_take_strict_turns():
    formation = formation_of({"taker": 1, "putter": 3}, QUEUE)
    edges = Edges(formation, MemoryEdges(formation), lambda: 0.0, lambda role: False)
    taker = RoleId("taker", 0)
    for sender in (0, 1, 2):
        for number in range(2):
            assert edges.attempt(RoleId("putter", sender), Put("items", number)) is None
    assert edges.attempt(RoleId("putter", 0), Put("items", 2)) is WAIT
    assert [edges.attempt(taker, Take(("items",))).sender for _ in range(4)] == [0, 1, 2, 0]
    assert [m.sender for m in edges.attempt(taker, TakeMany("items", most=2, seconds=9.0))] == [1, 2]


def gather(program, role, start):
    if role.kind == "putter":
        yield Sleep(0.01 * role.index)
        yield Put("items", item(role.index))
        return None
    first = yield TakeMany("items", most=3, seconds=30.0)
    return {"senders": np.array(sorted(message.sender for message in first))}


@every_executor
def test_take_many_gathers_until_it_has_as_many_as_it_wants(executor, tmp_path):
    _, results = run(executor, gather, formation_of({"taker": 1, "putter": 3}, QUEUE), tmp_path)
    assert set(result_of(results)["senders"].tolist()) <= {0, 1, 2}
    if executor != "inline":  # where a round of turns is all the time there is
        assert result_of(results)["senders"].tolist() == [0, 1, 2]


def gather_what_comes(program, role, start):
    if role.kind == "putter":
        for number in range(2):
            yield Put("items", item(number))
        return None
    found = []
    while len(found) < 2:
        found += yield TakeMany("items", most=50, seconds=0.02)
    return {"numbers": np.array([number_of(message.item) for message in found])}


@every_executor
def test_take_many_does_not_wait_for_ever_and_may_take_several_from_one_sender(executor, tmp_path):
    _, results = run(executor, gather_what_comes, formation_of({"taker": 1, "putter": 1}, QUEUE), tmp_path)
    assert result_of(results)["numbers"].tolist() == [0, 1]


def deaf(program, role, start):
    if role.kind == "putter":
        if role.index:
            return {"put": np.int64(0)}
        for number in range(20):
            yield Put("items", item(number), to=1)
        return {"put": np.int64(20)}
    return None


@every_executor
def test_a_role_that_is_done_holds_nobody_up(executor, tmp_path):
    formation = formation_of({"taker": 2, "putter": 1}, QUEUE, ends="putter")
    _, results = run(executor, deaf, formation, tmp_path)
    assert int(result_of(results)["put"]) == 20


# -- requests and answers

REQUESTS = Edge("requests", "queue", "client", "server", depth=3)
REPLIES = Edge("replies", "queue", "server", "client", depth=3, answers="requests")


def calls(program, role, start):
    if role.kind == "server":
        while True:
            for message in reversed((yield TakeMany("requests", most=3, seconds=0.01))):
                yield Reply("replies", item(2 * number_of(message.item)), message.sender)
    answers = []
    for number in range(8):
        answers.append(number_of((yield Call("requests", item(100 * role.index + number))).item))
    return {"answers": np.array(answers)}


@every_executor
def test_several_calls_may_be_open_at_a_server_and_each_gets_its_own_answer(executor, tmp_path):
    formation = formation_of({"client": 3, "server": 1}, REQUESTS, REPLIES, ends="client")
    _, results = run(executor, calls, formation, tmp_path)
    for client in range(3):
        expected = [2 * (100 * client + number) for number in range(8)]
        assert result_of(results, client)["answers"].tolist() == expected


def asks_ahead(program, role, start):
    if role.kind == "server":
        while True:
            message = yield Take(("requests",), borrow=True)
            yield Reply("replies", item(number_of(message.item) + 1), message.sender)
    answers = []
    for number in range(3):
        yield Put("requests", item(number), to=number % 2)
    for number in range(3, 20):
        answers.append(number_of((yield Take(("replies",), (number - 3) % 2)).item))
        yield Put("requests", item(number), to=number % 2)
    for number in range(20, 23):
        answers.append(number_of((yield Take(("replies",), (number - 3) % 2)).item))
    return {"answers": np.array(answers)}


@every_executor
def test_a_role_may_have_several_requests_open_at_several_servers(executor, tmp_path):
    formation = formation_of({"client": 1, "server": 2}, REQUESTS, REPLIES, ends="client")
    _, results = run(executor, asks_ahead, formation, tmp_path)
    assert result_of(results)["answers"].tolist() == list(range(1, 21))


CLIENT, SERVER = RoleId("client", 0), RoleId("server", 0)


def edges_of(formation):
    return Edges(formation, MemoryEdges(formation), lambda: 0.0, lambda role: False)


def test_a_call_with_requests_open_is_refused():
    edges = edges_of(formation_of({"client": 1, "server": 1}, REQUESTS, REPLIES, ends="client"))
    edges.attempt(CLIENT, Put("requests", 1))
    with pytest.raises(RunError, match=r"client-0 calls server-0 over 'requests' with 1 requests open; take their"):
        edges.attempt(CLIENT, Call("requests", 2))


def test_a_call_after_a_crash_gets_its_own_answer_and_not_that_of_a_call_from_before():
    edges = edges_of(formation_of({"client": 1, "server": 1}, REQUESTS, REPLIES, ends="client"))
    assert edges.attempt(CLIENT, Call("requests", "old")) is WAIT
    edges.restart(CLIENT)
    assert edges.attempt(CLIENT, Call("requests", "new")) is WAIT
    assert edges.attempt(SERVER, Take(("requests",))).item == "old"
    edges.attempt(SERVER, Reply("replies", "to the old", 0))
    assert edges.attempt(SERVER, Take(("requests",))) is WAIT
    assert edges.attempt(CLIENT, Call("requests", "new")) is WAIT
    assert edges.attempt(SERVER, Take(("requests",))).item == "new"
    edges.attempt(SERVER, Reply("replies", "to the new", 0))
    assert edges.attempt(CLIENT, Call("requests", "new")).item == "to the new"


def test_replies_without_a_request_or_without_room_are_refused():
    narrow = Edge("replies", "queue", "server", "client", depth=1, answers="requests")
    edges = edges_of(formation_of({"client": 1, "server": 1}, REQUESTS, narrow, ends="client"))
    with pytest.raises(RunError, match=r"server-0 answers client-0 over 'replies', which has no open request"):
        edges.attempt(SERVER, Reply("replies", 1, 0))
    for number in range(2):
        edges.attempt(CLIENT, Put("requests", number))
        edges.attempt(SERVER, Take(("requests",)))
    edges.attempt(SERVER, Reply("replies", 1, 0))
    with pytest.raises(RunError, match=r"over 'replies', which is full \(depth 1\); .* raise the depth"):
        edges.attempt(SERVER, Reply("replies", 2, 0))


@pytest.mark.parametrize(
    ("role", "effect", "message"),
    [
        (CLIENT, Put("replies", 1), r"client-0 sends over 'replies'; only roles of the kind server do"),
        (CLIENT, Put("requests", 1), r"client-0 sends over 'requests' to None; it leads to \[0, 1\]: name one"),
        (CLIENT, Put("requests", 1, to=2), r"to 2; it leads to \[0, 1\]"),
        (CLIENT, Take(("requests",)), r"client-0 takes from 'requests'; it has senders \[\]: name an edge to it"),
        (SERVER, Take(("requests",), 4), r"server-0 takes from 'requests' of sender 4; it has senders \[0\]"),
        (SERVER, Call("replies", 1), r"server-0 calls over 'replies', which no edge answers; use Put"),
        (CLIENT, Reply("requests", 1, 0), r"client-0 replies over 'requests', which answers no edge; use Put"),
        (CLIENT, AllReduce("group", 1.0, weight=-1.0), r"weight=-1.0 for 'group'; it must be finite and at least 0"),
    ],
)
def test_effects_that_cannot_be_meant_are_refused_with_the_remedy(role, effect, message):
    group = Edge("group", "collective", "client", "client")
    edges = edges_of(formation_of({"client": 1, "server": 2}, REQUESTS, REPLIES, group, ends="client"))
    with pytest.raises(ConfigError, match=message):
        edges.attempt(role, effect)


# -- broadcasts

WEIGHTS = Edge("weights", "broadcast", "publisher", "taker")


def reads(program, role, start):
    if role.kind == "publisher":
        for number in range(1, 6):
            yield Publish("weights", item(number), version=10 * number)
        while True:
            yield Sleep(0.01)
    newest = yield Latest("weights", after=5)
    again = yield Latest("weights", known=newest.number)
    other = yield Latest("weights", known=4)
    numbers = [number_of(newest.value), newest.version, newest.number, again.version, again.number]
    return {"numbers": np.array(numbers), "known": again.value is None, "other": np.int64(number_of(other.value))}


@every_executor
def test_latest_waits_for_as_many_values_as_asked_and_copies_none_that_is_known(executor, tmp_path):
    _, results = run(executor, reads, formation_of({"taker": 1, "publisher": 1}, WEIGHTS), tmp_path)
    found = result_of(results)
    assert found["numbers"].tolist() == [5, 50, 5, 50, 5]
    assert bool(found["known"])
    assert int(found["other"]) == 5


def promises(program, role, start):
    if role.kind == "publisher":
        for number in range(1, 4):

            def compute(number=number):
                program.say(role, number)
                return item(number)

            yield Publish("weights", compute, version=number)
        while True:
            yield Sleep(0.01)
    numbers = []
    for _ in range(3):
        numbers.append(number_of((yield Latest("weights", after=3)).value))
    return {"numbers": np.array(numbers)}


@every_executor
def test_a_promise_is_resolved_once_and_where_nobody_reads_it_never(executor, tmp_path):
    program, results = run(executor, promises, formation_of({"taker": 2, "publisher": 1}, WEIGHTS), tmp_path)
    for index in range(2):
        assert result_of(results, index)["numbers"].tolist() == [3, 3, 3]
    if executor == "processes":  # who reads elsewhere needs the value at once
        assert program.said("publisher-0") == [[1], [2], [3]]
        program = program.replayed
    assert program.said("publisher-0") == [[3]]


def last_words(program, role, start):
    if role.kind == "publisher":
        yield Publish("weights", item(1), version=1)
        return None
    newest = yield Latest("weights", after=100)
    return {"number": np.int64(newest.number)}


@every_executor
def test_of_a_publisher_that_is_done_the_last_value_is_enough(executor, tmp_path):
    _, results = run(executor, last_words, formation_of({"taker": 1, "publisher": 1}, WEIGHTS), tmp_path)
    assert int(result_of(results)["number"]) == 1


# -- collectives

GROUP = Edge("group", "collective", "member", "member")


def reduces(program, role, start):
    rng = np.random.default_rng(role.index)
    found = {}
    for turn in range(3):
        value = {"x": rng.standard_normal(3), "n": np.int64(role.index)}
        found[f"plain{turn}"] = (yield AllReduce("group", value))["x"]
        found[f"zero{turn}"] = (yield AllReduce("group", value, weight=0.0))["x"]
        found[f"weighted{turn}"] = (yield AllReduce("group", value, weight=role.index + 1.0))["x"]
    return found


@pytest.mark.parametrize(("executor", "members"), [("inline", 40), ("simulated", 40), ("processes", 3)])
def test_members_get_the_same_bits_and_equal_weights_give_the_plain_mean(executor, members, tmp_path):
    _, results = run(executor, reduces, formation_of({"member": members}, GROUP, ends="member"), tmp_path)
    rngs = [np.random.default_rng(member) for member in range(members)]
    for turn in range(3):
        values = [rng.standard_normal(3) for rng in rngs]
        plain, weighted = values[0], 1.0 * values[0]
        for number, value in enumerate(values[1:], 2):
            plain, weighted = plain + value, weighted + number * value
        for member in range(members):
            found = result_of(results, member)
            assert (found[f"plain{turn}"] == plain / members).all()
            assert (found[f"zero{turn}"] == plain / members).all()
            assert (found[f"weighted{turn}"] == weighted / (members * (members + 1) / 2)).all()


# -- time, and the world outside

ALONE = {"taker": 1}


def outward(program, role, start):
    for steps in range(0, 1_000, 10):
        if (yield Pulse(steps)):
            break
        yield Sleep(0.02)  # the one who is asked looks now and then
    yield Report(steps, {"loss": 0.5}, {"lags": np.array([1.0, 2.0])})
    yield Checkpoint(steps, lambda: {"steps": steps})
    return {"steps": np.int64(steps)}


@every_executor
def test_a_pulse_is_answered_with_whether_to_stop_and_reports_come_through(executor, tmp_path):
    watcher = Watcher(stop_after=50)
    program, results = run(executor, outward, formation_of(ALONE), tmp_path, watcher)
    steps = int(result_of(results)["steps"])
    assert 50 <= steps < 990
    assert watcher.reports == [("taker-0", steps, {"loss": 0.5})]
    if executor in ONE_THREAD:
        assert watcher.checkpoints == [("taker-0", steps)]
    if executor == "processes":
        assert program.saved(RoleId("taker", 0), Start(restore=True)) == {"steps": steps}


# -- crashes


def relays(program, role, start):
    """A client asks for numbers in turn and notes the answers; both sides go on where they were."""
    if role.kind == "server":
        while True:
            for message in (yield TakeMany("requests", most=2, seconds=0.0)):
                yield Reply("replies", item(number_of(message.item)), message.sender)
    sent = start.sent
    while True:
        yield Put("items", item(sent))
        sent += 1


def asks(program, role, start):
    if role.kind != "client":
        yield from relays(program, role, start)
    answers, numbers = [], []
    while not (yield Pulse(len(numbers))):
        yield Put("requests", item(len(numbers)))
        if len(numbers) >= 2:
            answers.append(number_of((yield Take(("replies",))).item))
        numbers.append(number_of((yield Take(("items",))).item))
    return {"answers": np.array(answers), "numbers": np.array(numbers)}


class RandomKiller(Watcher):
    """Kills a role of the given kinds at random moments, in turn."""

    def __init__(self, kinds, times, seed):
        super().__init__()
        self.kinds, self.left, self.rng, self.next = kinds, times, np.random.default_rng(seed), 0

    def stopping(self, role, steps):
        if self.left and steps >= self.next:
            victim = self.supervisor.children[RoleId(self.kinds[self.left % len(self.kinds)], 0)]
            if victim.process is not None and victim.process.poll() is None:
                os.kill(victim.process.pid, signal.SIGKILL)
                victim.crashes.clear()  # many in a minute are the point here
                self.left -= 1
                self.next = steps + int(self.rng.integers(5, 30))  # which takes all roles, so the victim is back
        return not self.left and steps >= self.next


@pytest.mark.parametrize("seed", [0, 1])
def test_every_item_of_a_role_that_is_killed_at_random_arrives_exactly_once(seed, tmp_path):
    items = Edge("items", "queue", "putter", "client", depth=2, counted=True)
    formation = formation_of({"client": 1, "server": 1, "putter": 1}, REQUESTS, REPLIES, items, ends="client")
    killer = RandomKiller(("server", "putter"), 8, seed)
    program = Script(f"{MODULE}:asks", formation, tmp_path)
    killer.supervisor = Supervisor(program, killer, tmp_path, restore=False)
    try:
        results = killer.supervisor.supervise()
    finally:
        killer.supervisor.close()
    found = results[RoleId("client", 0)]
    count = len(found["numbers"])
    assert count > 8 * 5
    assert found["numbers"].tolist() == list(range(count))
    assert found["answers"].tolist() == list(range(count - 2))


def resumes(program, role, start):
    state = program.saved(role, start) or {"count": 0}
    for count in range(int(state["count"]), 10):
        yield Checkpoint(count, lambda count=count: {"count": np.int64(count)})
        program.say(role, start.incarnation, count)
        if count == 5 and start.incarnation == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return {"count": np.int64(count)}


def test_a_role_that_crashes_goes_on_from_its_checkpoint(tmp_path):
    program, results = run("processes", resumes, formation_of(ALONE), tmp_path)
    assert int(result_of(results)["count"]) == 9
    assert program.said("taker-0") == [[0, count] for count in range(6)] + [[1, count] for count in range(5, 10)]


def waits_in_every_way(program, role, start):
    if role.kind == "putter":
        if role.index == 0:
            yield Take(("back",), 0, why="not yet")
        elif role.index == 1:
            yield Latest("weights", after=7, sender=0)
        elif role.index == 2:
            for number in range(3):
                yield Put("items", item(number))
        yield Sleep(60.0)
    for steps in range(10_000):
        yield Sleep(0.05)
        if (yield Pulse(steps)):
            break
    return None


class UntilAllWait(Watcher):
    """Asks to stop when the status says that every putter waits."""

    def stopping(self, role, steps):
        putters = self.statuses[-1]["roles"][1:] if self.statuses else []
        return bool(putters) and all(each["state"] == "waiting" for each in putters)


def test_a_status_says_in_fields_what_each_role_waits_for(tmp_path):
    back = Edge("back", "queue", "taker", "putter")
    weights = Edge("weights", "broadcast", "taker", "putter")
    watcher = UntilAllWait()
    formation = formation_of({"taker": 1, "putter": 4}, QUEUE, back, weights)
    run("processes", waits_in_every_way, formation, tmp_path, watcher)
    status = next(
        status for status in watcher.statuses if all(each["state"] == "waiting" for each in status["roles"][1:])
    )
    nothing = {"sender": None, "receiver": None, "wanted": None, "seconds": None, "reason": ""}
    assert [each["waiting"] for each in status["roles"][1:]] == [
        {**nothing, "effect": "take", "edges": ["back"], "sender": 0, "reason": "not yet"},
        {**nothing, "effect": "latest", "edges": ["weights"], "sender": 0, "wanted": 7},
        {**nothing, "effect": "put", "edges": ["items"]},
        {**nothing, "effect": "sleep", "edges": [], "seconds": 60.0},
    ]
    assert [str(Wait.from_mapping(each["waiting"])) for each in status["roles"][1:]] == [
        "waits for 'back' from sender 0 (not yet)",
        "waits for value 7 of 'weights'",
        "waits to put on 'items', which is full",
        "sleeps for 60 s",
    ]
