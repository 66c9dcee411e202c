"""Releases: what a run hands to the world, and how the world gets it."""
