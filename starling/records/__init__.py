"""What a run leaves behind: checkpoints, run directories, metrics, curves, progress, statistics."""
