"""Networks drawn from a seed. Both sides draw the same ones, so none are ever stored or sent."""
