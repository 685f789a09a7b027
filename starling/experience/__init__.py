"""Experience: what an algorithm learns from, and when. One module per plan."""
