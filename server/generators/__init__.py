"""Generators: from a few noisy answers of the silos to a pool of labelled synthetic images, of any size."""
