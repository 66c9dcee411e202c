"""Attacks on simulated federations. They need both sides of a federation, so they live here."""
