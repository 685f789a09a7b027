"""Settings in YAML that anyone may have written: plain values come back, bombs and foreign values are refused."""

import time

import pytest

from starling.core.errors import ConfigError, RunDirError
from starling.core.yaml_files import DEEPEST, LARGEST, MOST_BYTES, MOST_NODES, parse_settings, read_settings


def parsed(text):
    return parse_settings(text.encode(), "run.yaml", ConfigError)


def bomb(levels, kind="[{}]"):
    """Each level repeats the one before nine times: 9 ** levels values in a few lines."""
    lines = ["a0: &a0 [x]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} " + kind.format(", ".join([f"*a{level - 1}"] * 9)))
    return "\n".join(lines)


def test_plain_values_come_back():
    text = "{a: 1, b: 1.5, c: [true, null, 'x'], d: {e: -3}, f: .inf, g: 0x10, h: Größe}"
    plain = {"a": 1, "b": 1.5, "c": [True, None, "x"], "d": {"e": -3}, "f": float("inf"), "g": 16, "h": "Größe"}
    assert parsed(text) == plain


def test_aliases_and_merged_mappings_come_back_as_what_they_repeat():
    assert parsed("{a: &a {x: 1}, b: *a, c: {<<: *a, y: 2}}") == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bomb(9), f"line 6: .*more than {MOST_NODES:,} values"),
        (bomb(9, "{{<<: [{}]}}").replace("[x]", "{x: 1}"), f"more than {MOST_NODES:,} values"),
        ("a: &a [*a]", "line 1: the alias a repeats what it is part of"),
        ("&a a: *a\nb: &b {c: {d: *b}}", "line 2: the alias b repeats what it is part of"),
        ("a: *b", "line 1: found undefined alias 'b'"),
        ("a: " + "[" * 5_000, f"line 1: .*deeper than {DEEPEST}"),
        ("a: " + "{b: " * 5_000, f"line 1: .*deeper than {DEEPEST}"),
        ("\n".join(" " * i + "a:" for i in range(500)), f"line {DEEPEST}: .*deeper than {DEEPEST}"),
        ("a: 1\nout: 2020-99-99", "line 2: '2020-99-99' is read as a timestamp.*write it in quotes"),
        ("out: 2020-01-31", "line 1: '2020-01-31' is read as a timestamp.*write it in quotes"),
        ("a: !!binary aGFsbG8=", "'aGFsbG8=' is read as a binary"),
        ("a: !!set {x}", "is read as a set"),
        ("a: !!python/object/apply:os.system ['touch owned']", "python/object/apply:os.system"),
        ("a: !mine 3", "'3' is read as a !mine"),
        ("steps: " + "9" * 5_000, f"line 1: .*beyond {LARGEST:,}"),
        ("steps: 0x" + "f" * 50_000, f"line 1: .*beyond {LARGEST:,}"),
        ("steps: -1" + "0" * 30, f"line 1: .*beyond {LARGEST:,}"),
        ("a: !!int many", "line 1: 'many' is no int"),
        ("a: !!bool 3", "line 1: '3' is no bool"),
        ("a: !!int ''", "line 1: '' is no int"),
        ("a: 0b_", "line 1: '0b_' is no int"),
        ("a: 190" + ":20" * 500 + ".15", "line 1: .* is no float"),
        ("a: [", "line 1: while parsing a flow node, expected the node content"),
        ("a: 1\n--- b", "line 2: expected a single document in the stream, but found another document"),
        ("{[a]: 1}", "line 1: while constructing a mapping, found unhashable key"),
        ("\x00", "special characters are not allowed"),
    ],
)
def test_what_no_setting_is_gets_refused_with_its_line(text, message):
    began = time.perf_counter()
    with pytest.raises(ConfigError, match=rf"(?s)^run\.yaml is not valid YAML: .*{message}"):
        parsed(text)
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize(("text", "kind"), [("", "NoneType"), ("- 1", "list"), ("5", "int")])
def test_what_is_no_mapping_is_refused(text, kind):
    with pytest.raises(ConfigError, match=f"holds {kind}; settings are a mapping"):
        parsed(text)


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(RunDirError, match="is not valid YAML"):
        parse_settings(b"a: \xff\xfe", "config.yaml", RunDirError)


def test_a_file_is_read_as_utf_8(tmp_path):
    (tmp_path / "run.yaml").write_bytes("a: Größe".encode())
    assert read_settings(tmp_path / "run.yaml", ConfigError) == {"a": "Größe"}


def test_a_file_that_is_too_large_is_refused_before_it_is_parsed(tmp_path):
    (tmp_path / "run.yaml").write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(ConfigError, match=rf"run\.yaml has more than {MOST_BYTES:,} bytes"):
        read_settings(tmp_path / "run.yaml", ConfigError)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "cannot read none"),
        (".", "cannot read .: is a directory"),
        ("a\0b", "cannot read a"),
        ("x" * 300, "too long"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(name, message):
    with pytest.raises(ConfigError, match=message):
        read_settings(name, ConfigError)
