"""Roles: what acts, what learns, and what flows between them."""
