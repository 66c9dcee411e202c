"""With this folder and tests/support on PYTHONPATH a guard draws predictable noise: for tests that compare two runs of
the same federation. Nothing in silosynth knows of it, so no real silo can be made to."""

import sys
import zlib
from pathlib import Path

if "--config" in sys.orig_argv and any("guard" in word for word in sys.orig_argv):
    from entropies import SeededEntropy  # type: ignore[import-not-found]

    from silosynth.client.guard import entropy

    toml = Path(sys.orig_argv[sys.orig_argv.index("--config") + 1])
    silo = next(line for line in toml.read_text().splitlines() if line.startswith("name = "))
    entropy.SystemEntropy = lambda: SeededEntropy(zlib.crc32(silo.encode()))  # type: ignore[misc,assignment]
