"""Starling: distributed reinforcement learning; one algorithm, any formation."""
