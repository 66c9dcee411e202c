"""Releases on the receiving side: asked for, pulled, verified, kept, loaded."""
