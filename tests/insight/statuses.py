"""Statuses of runs made by hand, in the form in which the processes executor writes them."""

from __future__ import annotations

from typing import Any

from starling.executors.waits import Wait
from starling.insight.evidence import Evidence
from starling.insight.measures import measure


def role(
    name: str, busy: float, waits: dict[str, float] | None = None, waiting: Wait | None = None, **more: Any
) -> dict[str, Any]:
    """A role's line; it waits now where ``waiting`` says for what."""
    return {
        "role": name,
        "state": "waiting" if waiting else "working",
        "waiting": waiting and waiting.to_mapping(),
        "for_seconds": 0.5,
        "silent_seconds": 0.1,
        "busy_seconds": busy,
        "waited_seconds": {**(waits or {}), "other": 0.0},
        "passed": {},
        "steps": 0,
        "restarts": 0,
        "pid": 0,
        **more,
    }


def queue(name: str, source: str, target: str, sent: int, held: int = 0, depth: int = 1) -> dict[str, Any]:
    return {"edge": name, "kind": "queue", "from": source, "to": target, "sent": sent, "held": held, "depth": depth}


def broadcast(name: str, source: str, target: str, published: int) -> dict[str, Any]:
    return {"edge": name, "kind": "broadcast", "from": source, "to": target, "published": published}


def status(formation: str, roles: list[dict[str, Any]], edges: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    ends = "server" if any(each["role"].startswith("server") for each in roles) else "learner"
    return {"formation": formation, "ends": ends, "seconds": 100.0, "roles": roles, "edges": edges, **more}


def actors_and_learner(
    learner: tuple[float, float], actor: tuple[float, float, float], formation: str = "actor_learner"
) -> dict[str, Any]:
    """Two actors and a learner: (busy, waits for experience), (busy, blocked on experience, waits for weights)."""
    waits = {"experience": actor[1], "weights": actor[2]}
    return status(
        formation,
        [
            role("learner-0", learner[0], {"experience": learner[1], "weights": 0.0}),
            *(role(f"actor-{i}", actor[0], waits) for i in range(2)),
        ],
        [
            *(queue("experience", f"actor-{i}", "learner-0", 400 + 100 * i, 1) for i in range(2)),
            broadcast("weights", "learner-0", "actor", 450),
        ],
    )


def evidence(status: dict[str, Any] | None = None, before: dict[str, Any] | None = None, **more: Any) -> Evidence:
    """A live run with eight processors, looked at once ``before`` perhaps; ``more`` changes it."""
    known: dict[str, Any] = {
        "run": "runs/one",
        "alive": True,
        "manifest": {"algo": "impala", "env": "CartPole-v1"},
        "status": status,
        "status_age": 0.5,
        "measures": measure(status, before),
        "processors": 8,
        "settings": {"steps": 1_000_000, "formation": "actor_learner" if status is None else status["formation"]},
    }
    return Evidence(**known | more)


def reports(*rows: tuple[int, float], **more: float) -> list[dict[str, Any]]:
    """Rows of metrics: (steps, seconds), and values that all have."""
    return [{"env_steps": steps, "seconds": seconds, **more} for steps, seconds in rows]
