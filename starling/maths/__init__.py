"""Pure functions over arrays: returns, errors, losses, distributions, schedules.

Each is written once, against the namespace of its arguments, ``xp = ops(x)``; it holds no state and draws no random
numbers. Sequences are time-major, [T, B]. Names carry time: the step from ``t-1`` to ``t`` takes ``a_tm1`` and gives
``r_t`` and ``discount_t``, which is zero where the episode terminated.
"""
