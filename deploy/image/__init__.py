"""How the images are made."""
