"""A container engine for tests: the one at hand, or one started for them on a machine without a registry."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker import DockerClient
from docker.errors import APIError, DockerException, ImageNotFound

BASE, BUILD = "silosynth-test-base", "silosynth-test-build"
_PACKAGES = ("docker.io", "docker-compose", "debootstrap", "iptables")
_PROGRAMS = ("dockerd", "debootstrap", "iptables")
_CERTIFICATES = Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))


@contextlib.contextmanager
def engine() -> Iterator[DockerClient]:
    """DOCKER_HOST names it meanwhile. Skips, with the reason, where none can be had."""
    if at_hand := _at_hand():
        with contextlib.closing(at_hand) as client:
            yield client
        return
    with _started() as host, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", host)
        with contextlib.closing(docker.from_env(timeout=1800)) as client:
            yield client


def _at_hand() -> DockerClient | None:
    try:
        client = docker.from_env(timeout=1800)
        client.ping()
    except DockerException:
        return None
    return client


def build_arguments(client: DockerClient) -> dict[str, str]:
    """For the Dockerfile: a base without registry, packages from where this machine's pip has them."""
    for name, make in ((BASE, _make_base), (BUILD, _make_build)):
        try:
            client.images.get(name)
        except ImageNotFound:
            make(client)
    return {"BASE_IMAGE": BASE, "BUILD_IMAGE": BUILD, "TORCH_INDEX": ""}


@contextlib.contextmanager
def _started() -> Iterator[str]:
    if os.getuid() != 0:
        pytest.skip("no container engine runs here, and only root can start one")
    if not all(shutil.which(program) for program in _PROGRAMS):
        command = ["apt-get", "install", "--yes", "--quiet", *_PACKAGES]
        if not shutil.which("apt-get") or subprocess.run(command, capture_output=True).returncode != 0:
            pytest.skip(f"no container engine runs here, and {', '.join(_PACKAGES)} cannot be installed")
    folder = Path(tempfile.mkdtemp(prefix="silosynth-engine-"))
    host = f"unix://{folder}/docker.sock"
    places = ("--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["dockerd", "--host", host, *places], stdout=log, stderr=log)
    try:
        _wait_for(host, process, folder / "log")
        yield host
    finally:
        process.terminate()
        process.wait(60)
        subprocess.run(["umount", "--recursive", "--quiet", f"{folder}/data"], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(host: str, process: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + 120
    while time.monotonic() < ends and process.poll() is None:
        with contextlib.suppress(DockerException), contextlib.closing(docker.DockerClient(host)) as client:
            client.ping()
            return
        time.sleep(0.5)
    pytest.skip(f"dockerd does not start here: {log.read_text(errors='replace')[-500:]}")


def _make_base(client: DockerClient) -> None:
    with contextlib.suppress(APIError):  # where a registry can be reached, what users get
        client.images.pull("python", "3.11-slim").tag(BASE)
        return
    with tempfile.TemporaryDirectory(prefix="silosynth-base-") as folder:
        packages = "--include=python3,python3-venv,python3-pip,ca-certificates"
        subprocess.run(
            ["debootstrap", "--variant=minbase", packages, "bookworm", folder], check=True, capture_output=True
        )
        for waste in (
            "var/cache/apt/archives",
            "var/lib/apt/lists",
            "usr/share/doc",
            "usr/share/locale",
            "usr/share/man",
        ):
            shutil.rmtree(Path(folder) / waste)
        with tempfile.TemporaryFile() as archive:
            with tarfile.open(fileobj=archive, mode="w") as tar:
                tar.add(folder, arcname=".")
            archive.seek(0)
            client.api.import_image_from_data(archive, repository=BASE)


def _make_build(client: DockerClient) -> None:
    """The base with this machine's certificates and the wheels that its pip finds in folders."""
    folders = [Path(place) for place in _find_links() if Path(place).is_dir()]
    dockerfile = f"FROM {BASE}\nCOPY certificates /etc/ssl/certs/ca-certificates.crt\nCOPY wheels /wheels\n"
    dockerfile += "ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_FIND_LINKS=/wheels PIP_DEFAULT_TIMEOUT=180\n"
    with tempfile.TemporaryFile() as context:
        with tarfile.open(fileobj=context, mode="w") as tar:
            for wheel in (wheel for folder in folders for wheel in folder.glob("*.whl")):
                tar.add(wheel, arcname=f"wheels/{wheel.name}")
            tar.add(_CERTIFICATES.resolve(), arcname="certificates")
            _add(tar, "wheels/.keep", b"")
            _add(tar, "Dockerfile", dockerfile.encode())
        context.seek(0)
        client.images.build(fileobj=context, custom_context=True, tag=BUILD, rm=True)


def _find_links() -> list[str]:
    done = subprocess.run(["pip", "config", "get", "global.find-links"], capture_output=True, text=True)
    return [*done.stdout.split(), *os.environ.get("PIP_FIND_LINKS", "").split()]


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
