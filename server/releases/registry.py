"""The OpenDP differential-privacy deployments registry's record, tier 3, as a frozen model: the schema check.

Fields, enumerations and formats are those of the registry's published schema (github.com/opendp/
deployments-registry-data, schemas/deployments-schema.yaml, July 2026). The registry asks only for some of them; here
every field of tiers 1 to 3 must be filled in.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

import yaml
from pydantic import AfterValidator, Field

from silosynth.common.config import Section, parse
from silosynth.common.errors import VerificationFailed


def _is_date(text: str) -> str:
    date.fromisoformat(text)
    return text


Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[tuple[Text, ...], Field(min_length=1)]
Date = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$"), AfterValidator(_is_date)]
Sector = Literal["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"]


class Basic(Section):
    name: Text
    data_curators: Texts
    intended_use: Text
    data_product_type: Literal[
        "Summary statistics", "Machine learning model", "Dataset", "Synthetic data", "Interactive API", "SQL queries"
    ]
    data_product_region: Text
    description: Text
    publication_date: Date
    data_product_sector: Sector | None = None


class Variant(Section):
    variant_name: Literal["Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"]
    data_domain: Text
    unprotected_quantities: Text


class Parameters(Section):
    epsilon: float
    delta: float


class PrivacyLoss(Section):
    privacy_unit: Text
    privacy_unit_details: Text
    privacy_parameters: Parameters
    privacy_parameters_details: Text


class DeploymentModel(Section):
    model_name: Literal["Local", "Central", "Shuffle", "Federated", "Varies"]
    model_name_details: Text
    actors: Text
    release_type: Literal["One release", "Many releases"]
    release_type_details: Text
    data_source_type: Literal["Static", "Dynamic"]
    data_source_type_details: Text
    access_type: Literal["Interactive", "Non-interactive"]
    access_type_details: Text


class Accounting(Section):
    post_processing: Text
    composition: Text


class Implementation(Section):
    preprocessing_and_hyperparameter_tuning: Text
    mechanisms: Text
    justification: Text


class Administrative(Section):
    sources: Text
    notes: Text
    registry_authors: Texts


class Deployment(Section):
    basic: Basic
    dp_variant: Variant
    privacy_loss: PrivacyLoss
    deployment_model: DeploymentModel
    accounting: Accounting
    implementation: Implementation
    administrative: Administrative


class RegistryRecord(Section):
    url_slug: Annotated[str, Field(pattern="^[a-z0-9]+(-[a-z0-9]+)*$")]
    status: Literal["Draft"] = "Draft"
    tier: Literal[3] = 3
    deployment: Deployment

    def to_yaml(self) -> str:
        document = self.model_dump(mode="python", exclude_none=True)
        return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)

    @classmethod
    def from_yaml(cls, text: str) -> RegistryRecord:
        """ConfigError names every field that the registry would not take."""
        try:
            document = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise VerificationFailed(f"privacy-card.yaml is not YAML: {error}") from error
        return parse(cls, document, "privacy-card.yaml")


_LONG = 80


class _Dumper(yaml.SafeDumper):
    """Long texts as blocks, so that people can read them."""


def _block_where_long(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else ">" if len(text) > _LONG else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _block_where_long)
_Dumper.add_representer(tuple, lambda dumper, items: dumper.represent_list(items))
