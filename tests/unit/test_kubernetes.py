"""The Kubernetes manifests: valid by Kubernetes' own schemas, and the same server as the compose file's."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCUMENTS = list(yaml.safe_load_all((DEPLOY / "kubernetes/server.yml").read_text()))
(POD,) = [document["spec"]["template"]["spec"] for document in DOCUMENTS if document["kind"] == "StatefulSet"]
COMPOSED = yaml.safe_load((DEPLOY / "server/compose.yml").read_text())["services"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document["kind"])
def test_kubernetes_accepts_it(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_its_containers_are_the_parts_of_the_compose_file() -> None:
    commands = {container["name"]: container["args"] for container in POD["containers"]}
    assert commands == {name: service["command"] for name, service in COMPOSED.items() if name != "address"}


def test_no_container_has_root_capabilities_or_a_writable_root() -> None:
    assert POD["securityContext"]["runAsNonRoot"] is True
    for container in POD["containers"]:
        assert container["securityContext"] == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
