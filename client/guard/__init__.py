"""The guard: policy, ledger and noise. It alone reads records, and imports neither Flower nor torch."""
