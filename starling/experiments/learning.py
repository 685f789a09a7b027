"""The roles of a program that learn: made with what needs a learning backend or a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starling.algorithms.plans import Replay
from starling.core.effects import Checkpoint, Pulse, Report, RoleCode
from starling.executors.base import Start
from starling.experiments.training import Training
from starling.formations import RoleId
from starling.roles.gradients import GradientLearner, Keeper
from starling.roles.learner import Learner
from starling.roles.learning import Feed, ReplayFeed, RolloutFeed, apex_learner, learner
from starling.roles.replay import table_for
from starling.roles.run_counters import Metrics
from starling.roles.serving import Workshop, buffer, parameter_server, worker

if TYPE_CHECKING:
    from starling.experiments.program import Program

__all__ = ["apex_role", "buffer_role", "learner_role", "server_role", "solo_role", "worker_role"]


def metrics_of(program: Program, learner: Learner) -> Metrics:
    """What a learner reports: its metrics under the algorithm's name, and the summaries that were asked for."""
    summaries, name = program.summaries(), program.run.options.algo

    def metrics() -> tuple[dict[str, float], dict[str, Any]]:
        values = {f"{name}.{key}": value for key, value in learner.metrics().items()} | {"updates": learner.version}
        means, histograms = summaries.take(values, learner.recorded)
        return {**values, **means}, histograms

    return metrics


def solo_role(program: Program, start: Start) -> RoleCode:
    """Acts and learns in one role, round by round."""
    training = program.training
    state = program.restored(RoleId("learner", 0), start)
    if state is not None:
        training.restore(state)
    return _solo(program, training, fresh=state is None)


def _solo(program: Program, training: Training, fresh: bool) -> RoleCode:
    summaries, options = program.summaries(), program.run.options
    total, log_every, checkpoint_every = options.steps, options.log_every, options.checkpoint_every

    def report() -> Report:
        values = training.metrics()
        means, histograms = summaries.take(values, training.learner.recorded)
        return Report(training.steps, {**values, **means}, histograms)

    reported = saved = -1 if fresh else training.steps
    if fresh:
        saved = training.steps
        yield Checkpoint(training.steps, training.state)
    report_at = training.steps + log_every
    save_at = (training.steps // checkpoint_every + 1) * checkpoint_every
    while training.steps < total and not (yield Pulse(training.steps)):
        training.round()
        if training.steps >= report_at:
            report_at, reported = training.steps + log_every, training.steps
            yield report()
        if training.steps >= save_at:
            save_at, saved = save_at + checkpoint_every, training.steps
            yield Checkpoint(training.steps, training.state)
    if reported != training.steps:
        yield report()
    if saved != training.steps:
        yield Checkpoint(training.steps, training.state)
    return training.learner.weights()


def learner_role(program: Program, role: RoleId, start: Start) -> RoleCode:
    """Learns from the chunks of its actors."""
    graph, seed = program.graph(program.backends.learn), program.run.options.seed
    learners, lockstep = program.learners, program.formation.lockstep
    patterns = program.patterns()
    who = GradientLearner(graph, seed, patterns, role.index) if learners > 1 else Learner(graph, seed, patterns)
    senders = program.formation.sources(program.formation.edge("experience"), role.index)
    plan = program.algorithm.plan
    feed: Feed
    if isinstance(plan, Replay):
        table = table_for(program.algorithm, seed, learners, role.index)
        feed = ReplayFeed(who, table, plan, len(senders) if lockstep else 1, learners)
    else:
        feed = RolloutFeed(who, len(senders), learners)
    accounts = program.accounts(None if lockstep else program.counts.max_lag)
    state = program.restored(role, start)
    if state is not None:
        who.restore(state["learner"])
        feed.restore(state["feed"])
        accounts.restore(state["accounts"])
    return learner(who, feed, accounts, metrics_of(program, who), senders, lockstep)


def apex_role(program: Program, role: RoleId, start: Start) -> RoleCode:
    """Learns from the samples of buffers."""
    who = Learner(program.graph(program.backends.learn), program.run.options.seed, program.patterns())
    accounts = program.accounts()
    state = program.restored(role, start)
    if state is not None:
        who.restore(state["learner"])
        accounts.restore(state["accounts"])
    plan = program.algorithm.plan
    assert isinstance(plan, Replay)
    ahead, buffers = program.counts.queue or 1, program.formation.count("buffer")
    return apex_learner(
        who,
        accounts,
        metrics_of(program, who),
        buffers,
        plan.batch_size,
        ahead,
        program.publish_every,
        start.unanswered,
    )


def buffer_role(program: Program, role: RoleId, start: Start) -> RoleCode:
    """A shard of the replay table."""
    from starling.data import MinSize, SamplesPerInsert

    plan, shards = program.algorithm.plan, program.formation.count("buffer")
    assert isinstance(plan, Replay)
    table = table_for(program.algorithm, program.run.options.seed, shards, role.index)
    state = program.restored(role, start)
    if state is not None:
        table.restore(state["table"])
    least, ratio = max(plan.batch_size, plan.min_size // shards), program.counts.samples_per_insert
    largest = (program.chunk_length + plan.n_step - 1) * program.acting_envs
    limiter = (
        SamplesPerInsert(ratio, margin=plan.batch_size + ratio * largest, min_size=least) if ratio else MinSize(least)
    )
    ahead = program.counts.queue or 1
    return buffer(table, limiter, plan.batch_size, largest, ahead, program.run.options.checkpoint_every)


def server_role(program: Program, role: RoleId, start: Start) -> RoleCode:
    """A shard of the parameters."""
    keeper = Keeper(program.graph(program.backends.learn), program.shards[role.index])
    accounts = program.accounts()
    state = program.restored(role, start)
    if state is not None:
        keeper.restore(state["keeper"])
        accounts.restore(state["accounts"])
    return parameter_server(keeper, accounts)


def worker_role(program: Program, role: RoleId, start: Start) -> RoleCode:
    """Acts and computes gradients."""
    seed = program.run.options.seed
    policy = program.policy()
    chunks = program.chunks(policy, role, start)
    replays = isinstance(program.algorithm.plan, Replay)
    table = table_for(program.algorithm, seed, program.workers, role.index) if replays else None
    who = GradientLearner(program.graph(program.backends.learn), seed, program.patterns(), role.index)
    return worker(who, policy, Workshop(chunks, table), program.shards, metrics_of(program, who), start.sent)
