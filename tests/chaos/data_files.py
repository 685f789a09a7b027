"""Damaged files of saved tables and of a durable log, some of them with checksums that hold."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from starling.core.errors import StarlingError
from starling.core.spaces import Dict, Int
from starling.data import Checkpointer, CompressedFramePool, FramePool, NStepAdder, Store, Table, transition_signature
from starling.data.saving.durable_log import DurableLog
from starling.data.saving.files import _as_safetensors
from starling.data.saving.journal import CHECKSUM, FIELDS

from .mutations import NUMBERS, mutated_bytes, mutated_value

ITEM = Dict(n=Int((), 0, 2**40, "int64"), x=Int((3,), 0, 256, "uint8"))
FRAME = Int((4, 4, 2), 0, 256, "uint8")
CAPACITY = 9


# Saved tables


def plain(sampler, remover, **options):
    """One table whose items lie in it."""
    return {"t": Table(ITEM, CAPACITY, sampler=sampler, remover=remover, **options)}, None


def framed(compressed):
    """Two tables and an adder that share a pool of frames."""
    pool = CompressedFramePool(FRAME, 60, -1, nbytes=60 * 256) if compressed else FramePool(FRAME, 60, -1)
    signature = transition_signature(FRAME, Int(()))
    shared = {"obs": pool, "next_obs": pool}
    tables = {name: Table(signature, CAPACITY, sampler=name, shared=shared) for name in ("prioritized", "uniform")}
    return tables, NStepAdder(list(tables.values()), 2, 3)


def stored():
    """Two tables over a store."""
    store = Store(ITEM, 30)
    return {name: Table(ITEM, CAPACITY, sampler=name, store=store) for name in ("fifo", "min_heap")}, None


KINDS = {
    "circle": lambda: plain("prioritized", "fifo"),
    "uniform": lambda: plain("uniform", "uniform", max_times_sampled=3),
    "prioritized": lambda: plain("prioritized", "prioritized"),
    "heaps": lambda: plain("max_heap", "min_heap"),
    "lists": lambda: plain("fifo", "lifo", max_times_sampled=2),
    "frames": lambda: framed(False),
    "compressed frames": lambda: framed(True),
    "store": stored,
}


def item(number):
    return {"n": np.array([number]), "x": np.full((1, 3), number % 7, np.uint8)}


def step(rng):
    """A vector step of two environments, of images with long runs."""
    no = np.zeros(2, bool)
    obs, after = (np.repeat(rng.integers(0, 4, (2, 4, 1, 2), np.uint8), 4, 2) for _ in range(2))
    return obs, np.zeros(2, np.int32), None, np.ones(2), rng.random(2) < 0.2, no, after, after


def fill(tables, adder, rng, count=14):
    for number in range(count):
        if adder is not None:
            adder.add(*step(rng))
        else:
            for table in tables.values():
                table.insert(item(number), rng.random(1))


def use(tables, adder, rng):
    """Everything that follows the numbers of a table."""
    attempts = [lambda: fill(tables, adder, rng, 4)]
    for table in tables.values():
        attempts += [
            lambda table=table: table.update_priorities(table.sample(4, timeout=0).keys, rng.random(4)),
            lambda table=table: table.remove(table.sample(1, timeout=0).keys),
            table.evict,
            table.state,
        ]
    attempts.append(lambda: fill(tables, adder, rng, 12))
    for attempt in attempts:
        with contextlib.suppress(StarlingError):  # a checkpoint may say that a limit is reached
            attempt()
    for table in tables.values():
        while table.evict():
            pass


class SavedTables:
    """Each input is a checkpoint of one of ``KINDS`` with something changed; it is loaded, and what came is used."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.saved = {}
        for kind, make in KINDS.items():
            for compress in (False, True):
                tables, adder = make()
                rng, path = np.random.default_rng(0), directory / "saved"
                fill(tables, adder, rng)
                next(iter(tables.values())).sample(2)
                also = None if adder is None else adder.state
                Checkpointer(path, tables, also=also, block_bytes=200, compress=compress).save()
                self.saved[kind, compress] = {file.name: file.read_bytes() for file in path.iterdir()}
                shutil.rmtree(path)

    def attempt(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        names = list(self.saved)
        kind, compress = names[int(rng.integers(len(names)))]
        write(self.directory / "tables", damaged(rng, self.saved[kind, compress]))
        tables, adder = KINDS[kind]()
        if rng.random() < 0.3:  # over items that are there
            fill(tables, adder, rng, 5)
        try:
            also = Checkpointer(self.directory / "tables", tables).load()
            if adder is not None:
                adder.restore(also)
        except StarlingError:
            if adder is None:
                use(tables, adder, rng)  # a table is whole, whether the checkpoint was refused or not
            raise
        use(tables, adder, rng)


def write(directory: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for name, content in files.items():
        (directory / name).write_bytes(content)


def damaged(rng, files):
    """A checkpoint with one thing changed: bytes of a file, or what they mean, with checksums that hold."""
    files = dict(files)
    (manifest_name,) = [name for name in files if name.startswith("manifest")]
    tensors = sorted(name for name in files if name.endswith(".safetensors"))
    name = tensors[int(rng.integers(len(tensors)))]
    choice = rng.random()
    if choice < 0.1:
        name = manifest_name if rng.random() < 0.5 else name
        files[name] = mutated_bytes(rng, files[name])
        return files
    manifest = json.loads(json.loads(files[manifest_name])["manifest"])
    if choice < 0.3:
        manifest = mutated_value(rng, manifest)
    else:
        content = mutated_bytes(rng, files[name]) if choice < 0.4 else damaged_tensors(rng, files[name])
        files[name] = content
        for entry in entries(manifest):
            if entry.get("file") == name:
                entry["size"], entry["crc32"] = len(content), zlib.crc32(content)
    files[manifest_name] = signed(manifest)
    return files


def signed(manifest):
    text = json.dumps(manifest)
    return json.dumps({"digest": hashlib.sha256(text.encode()).hexdigest(), "manifest": text}).encode()


def entries(value):
    """All objects within a value."""
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from entries(child)


def damaged_tensors(rng, content):
    """A safetensors file in which one array has other numbers, is of another kind, or is gone."""
    try:
        tensors = {name: array.copy() for name, array in load(content).items()}
    except SafetensorError:
        return content
    name = sorted(tensors)[int(rng.integers(len(tensors)))]
    array = tensors.pop(name)
    match int(rng.integers(8)):
        case 0:
            pass
        case 1:
            tensors[f"{name}~"] = array
        case 2:
            tensors[name] = array.astype(("float32", "int64", "int8", "bool")[int(rng.integers(4))])
        case 3:
            tensors[name] = array.reshape(-1)[: array.size // 2]
        case _:
            tensors[name] = with_odd_numbers(rng, array)
    return b"".join(_as_safetensors(tensors)) if tensors else content


def with_odd_numbers(rng, array):
    flat = array.reshape(-1)
    for _ in range(int(rng.integers(1, 4)) if flat.size else 0):
        place = int(rng.integers(flat.size))
        if rng.random() < 0.5:
            flat[place] = flat[int(rng.integers(flat.size))]
        elif flat.dtype.kind == "f":
            flat[place] = (np.nan, np.inf, -1.0, 1e30, 0.0)[int(rng.integers(5))]
        else:
            number = NUMBERS[int(rng.integers(len(NUMBERS)))] if rng.random() < 0.5 else int(rng.integers(-2, 40))
            flat[place] = np.array(number & (2**64 - 1), np.uint64).astype(array.dtype)
    return array


# Durable logs


def log_tables():
    return {
        "a": Table(ITEM, CAPACITY, sampler="prioritized"),
        "b": Table(ITEM, CAPACITY, sampler="fifo", max_times_sampled=2),
    }


def write_log(log, tables, sequence=0):
    """Items of two writers, draws and updates."""
    for i in range(3):
        leaves = [np.arange(2) + i, np.zeros((2, 3), np.uint8)]
        log.insert([tables["a"]], "1/a", sequence + 2 * i, 2, leaves, np.ones(2))
        log.insert([tables["a"], tables["b"]], "2/a,b", sequence + 2 * i, 2, leaves, np.full(2, np.nan))
        sample = tables["a"].buffers(2)
        log.draw(tables["a"], sample)
        log.update(tables["a"], sample.keys.copy(), np.ones(2))
        log.draw(tables["b"], tables["b"].buffers(1))
    log.flush(idle=True)


class DurableLogs:
    """Each input is a log, a checkpoint and a journal, with something changed; a server starts with it, and goes on."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        tables, path = log_tables(), directory / "saved"
        log = DurableLog(tables, path)
        write_log(log, tables)
        self.young = {file.name: file.read_bytes() for file in path.iterdir()}  # without a checkpoint
        log.checkpoint()
        write_log(log, tables, 6)
        log.close()
        self.old = {file.name: file.read_bytes() for file in path.iterdir()}

    def attempt(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        files = dict(self.young if rng.random() < 0.5 else self.old)
        journals = sorted(name for name in files if name.startswith("journal"))
        if files.keys() > set(journals) and rng.random() < 0.3:
            files = damaged_position(rng, files)
        else:
            name = journals[int(rng.integers(len(journals)))]
            change = mutated_bytes if rng.random() < 0.2 else damaged_records
            files[name] = change(rng, files[name])
        write(self.directory / "log", files)
        tables = log_tables()
        log = DurableLog(tables, self.directory / "log")
        try:
            write_log(log, tables, max(log.accepted("1/a"), log.accepted("2/a,b")))
        finally:
            log.close()
        use(tables, None, rng)


def damaged_position(rng, files):
    """A checkpoint whose position of the log was changed, with checksums that hold."""
    (manifest_name,) = [name for name in files if name.startswith("manifest")]
    manifest = json.loads(json.loads(files[manifest_name])["manifest"])
    name = manifest["also"]["file"]
    position = json.loads(load(files[name])["position"].tobytes())
    text = json.dumps(mutated_value(rng, position)).encode()
    if rng.random() < 0.2:
        text = mutated_bytes(rng, text)
    content = b"".join(_as_safetensors({"position": np.frombuffer(text, np.uint8)}))
    manifest["also"].update(file=name, size=len(content), crc32=zlib.crc32(content))
    return {**files, name: content, manifest_name: signed(manifest)}


def damaged_records(rng, content):
    """A journal in which a record was changed, with checksums that hold."""
    records, offset = [], 0
    while offset < len(content):
        fields = FIELDS.unpack_from(content, offset + CHECKSUM.size)
        offset += CHECKSUM.size + FIELDS.size
        name, body = content[offset : offset + fields[1]], content[offset + fields[1] :][: fields[4]]
        records.append([fields[0], name, fields[2], fields[3], body])
        offset += len(name) + len(body)
    if not records:
        return content
    which = int(rng.integers(len(records)))
    record = records[which]
    match int(rng.integers(7)):
        case 0:
            record[0] = records[int(rng.integers(len(records)))][0]
        case 1:
            record[1] = mutated_bytes(rng, record[1])
        case 2:
            record[2] = number_of(rng, 32)
        case 3:
            record[3] = number_of(rng, 64)
        case 4:
            record[4] = mutated_bytes(rng, record[4])
        case 5:
            records.insert(which, record)
        case _:
            records.pop(which)
    return b"".join(packed(*each) for each in records)


def number_of(rng, bits):
    return (NUMBERS[int(rng.integers(len(NUMBERS)))] + int(rng.integers(-1, 3))) & (2**bits - 1)


def packed(kind, name, items, sequence, body):
    head = struct.pack("<4sIIQI", kind, len(name), items, sequence, len(body)) + name
    return CHECKSUM.pack(zlib.crc32(body, zlib.crc32(head))) + head + body
