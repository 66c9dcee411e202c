"""Networks and ImageNet weights of torchvision, which are downloaded where the internet is."""

from __future__ import annotations

from urllib.error import URLError

from torch import Tensor, nn

from silosynth.common.backbones.torchvision_import import import_torchvision
from silosynth.common.errors import ConfigError


def torchvision_network(name: str, _channels: int, classes: int) -> nn.Module:
    network: nn.Module = import_torchvision("torchvision.models").get_model(name, weights=None, num_classes=classes)
    return network


def torchvision_weights(name: str) -> dict[str, Tensor]:
    """ImageNet weights by their published hash; the file is a pickle, read by torch's restricted reader."""
    weights = import_torchvision("torchvision.models").get_model_weights(name).DEFAULT
    try:
        state: dict[str, Tensor] = weights.get_state_dict(progress=False, check_hash=True, weights_only=True)
    except (URLError, OSError) as error:
        raise ConfigError(
            f"the weights of {name} cannot be downloaded ({error}): fetch {weights.url} where there is internet, put "
            "the file into the folder hub/checkpoints of TORCH_HOME, and try again"
        ) from error
    return state
