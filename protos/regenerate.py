"""Regenerate the stubs from the .proto files: python -m silosynth.protos.regenerate [output folder]."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def regenerate(output: Path) -> None:
    """Write the stubs of every .proto file into `output`, importable as silosynth.protos.v1."""
    with tempfile.TemporaryDirectory() as scratch:
        protos = sorted(str(p.relative_to(HERE)) for p in (HERE / "silosynth/v1").glob("*.proto"))
        outs = [f"--{kind}_out={scratch}" for kind in ("python", "pyi", "grpc_python")]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I.", *outs, *protos], cwd=HERE, check=True)
        output.mkdir(parents=True, exist_ok=True)
        for stub in sorted(Path(scratch).rglob("*_pb2*")):
            (output / stub.name).write_text(_rehome(stub.read_text()))


def _rehome(source: str) -> str:
    """Our package is silosynth.protos.v1, while protoc derives silosynth.v1 from the path."""
    return re.sub(r"\bfrom silosynth\.v1 import", "from silosynth.protos.v1 import", source)


if __name__ == "__main__":
    regenerate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "v1")
