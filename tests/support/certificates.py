"""Certificates no authority would issue."""

from __future__ import annotations

from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from silosynth.deploy.provision import Authority, Identity


def dated(authority: Authority, identity: Identity, begins: datetime, ends: datetime) -> Identity:
    """The same certificate, signed by the same authority, but for other days."""
    certificate, key = identity
    builder = x509.CertificateBuilder(
        certificate.issuer,
        certificate.subject,
        certificate.public_key(),
        certificate.serial_number,
        begins,
        ends,
        list(certificate.extensions),
    )
    return builder.sign(authority.key, hashes.SHA256()), key
