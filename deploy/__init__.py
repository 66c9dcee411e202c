"""The composition root: command line, local process runner, provisioning."""
