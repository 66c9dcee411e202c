"""The three images, built from silosynth's source where that is at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from silosynth.common.errors import ConfigError

if TYPE_CHECKING:
    from docker import DockerClient

PARTS = ("courier", "guard", "server")
_DOCKERFILE = "deploy/image/Dockerfile"


def image(part: str) -> str:
    return f"silosynth-{part}:{version('silosynth')}"


def ensure(
    client: DockerClient, source: Path, arguments: Mapping[str, str], network: str | None, tell: Callable[[str], None]
) -> dict[str, int]:
    """Build what has changed since the last time; without a source the images must be there. Bytes of each."""
    if (source / _DOCKERFILE).exists():
        for part in PARTS:
            tell(f"Building the image {image(part)}")
            _build(client, source, part, arguments, network)
    return {part: _size(client, part) for part in PARTS}


def _build(client: DockerClient, source: Path, part: str, arguments: Mapping[str, str], network: str | None) -> None:
    from docker.errors import BuildError

    try:
        client.images.build(
            path=str(source),
            dockerfile=_DOCKERFILE,
            target=part,
            tag=image(part),
            buildargs=dict(arguments),
            network_mode=network,
            rm=True,
        )
    except BuildError as error:
        said = "".join(str(line.get("stream", "")) for line in error.build_log)[-3000:]
        raise ConfigError(f"{image(part)} could not be built: {error}\n{said}") from error


def _size(client: DockerClient, part: str) -> int:
    from docker.errors import ImageNotFound

    try:
        return int(client.images.get(image(part)).attrs["Size"])
    except ImageNotFound as error:
        raise ConfigError(
            f"the engine has no image {image(part)}: run this in silosynth's source folder, where it is built"
        ) from error
