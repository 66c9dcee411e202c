"""`silosynth bench`: many simulated runs, their rows, and a page of results."""
