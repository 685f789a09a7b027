"""Experience: what environments and data together give."""
