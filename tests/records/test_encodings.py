"""Text is read and written as UTF-8, whatever the locale."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "starling"


def unspecified(source):
    """The lines of calls that open, read or write text without naming an encoding."""
    found = []
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        owner = getattr(getattr(call.func, "value", None), "id", "")
        if any(keyword.arg == "encoding" for keyword in call.keywords) or owner == "webbrowser":
            continue
        if name in ("read_text", "write_text") or (name in ("open", "fdopen") and is_text(call, owner)):
            found.append(call.lineno)
    return found


def is_text(call, owner):
    """Whether what is opened is text; ``os.open`` and the like of other classes open bytes."""
    if owner == "os" and call.func.attr == "open":
        return False
    modes = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    modes += [keyword.value.value for keyword in call.keywords if keyword.arg == "mode"]
    if owner[:1].isupper():  # a class of ours, such as RunDir
        return False
    return not any("b" in mode and len(mode) <= 3 for mode in modes)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("open(path)", 1),
        ("open(path, 'w')", 1),
        ("open(path, mode='w')", 1),
        ("open(path, 'rb')", 0),
        ("open(path, 'w', encoding='utf-8')", 0),
        ("path.open()", 1),
        ("path.open('ab')", 0),
        ("os.open(path, flags)", 0),
        ("os.fdopen(fd, 'w', buffering=1)", 1),
        ("os.fdopen(fd, 'rb')", 0),
        ("(folder / name).read_text()", 1),
        ("path.write_text(text, encoding='utf-8')", 0),
        ("RunDir.open(path)", 0),
    ],
)
def test_the_search_finds_what_it_should(source, count):
    assert len(unspecified(source)) == count


def test_every_text_file_has_an_encoding():
    found = {str(path.relative_to(ROOT)): unspecified(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines} == {}
