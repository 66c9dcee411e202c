"""Certificates and keys of a federation: one CA, one server certificate, one identity per silo.

Our own services use mutual TLS with these; Flower uses the same CA for TLS and a P-384 key per node.
Which folders they go to is the matter of kits.py.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from silosynth.common.errors import ConfigError

Identity = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]

_AUTHORITY_DAYS, _IDENTITY_DAYS = 3650, 825


@dataclass(frozen=True)
class Authority:
    """The consortium's certificate authority."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        builder = (
            _builder(subject, subject, key.public_key(), _AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(certificate_sign=True), critical=True)
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, folder: Path) -> Authority:
        """The authority whose ca.crt and ca.key lie in `folder`."""
        try:
            certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
            key = load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
        except FileNotFoundError as error:
            raise ConfigError(
                f"{error.filename}: no such file: bring the authority's folder back to {folder}"
            ) from error
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"{folder}: the authority cannot be read: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise ConfigError(f"{folder}: ca.key is not the key of ca.crt: restore both from one backup")
        return cls(certificate, key)

    def issue(self, name: str, hosts: list[str], *, server: bool) -> Identity:
        """A certificate for a server (with the names and addresses silos dial) or for a silo."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            _builder(_name(name), self.certificate.subject, key.public_key(), _IDENTITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts or [name]]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        return builder.sign(self.key, hashes.SHA256()), key


def write_identity(folder: Path, stem: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    """`stem`.crt and `stem`.key in `folder`; the key readable by its owner alone."""
    (folder / f"{stem}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    write_secret(folder / f"{stem}.key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def write_node_key(folder: Path, stem: str = "node") -> None:
    """The key pair by which Flower knows a SuperNode: P-384 in OpenSSH format."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_secret(folder / f"{stem}.key", key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    (folder / f"{stem}.pub").write_bytes(public + b"\n")


def write_secret(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def fingerprint(certificate: x509.Certificate) -> str:
    """By which the exchange knows a silo's certificate: a name alone would outlive the certificate's revocation."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, digital_signature: bool = False, certificate_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=certificate_sign,
        crl_sign=certificate_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
