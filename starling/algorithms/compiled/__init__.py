"""An algorithm on a backend, for whoever runs it: the policy that acts, the learner that updates."""
