"""Who the silo is to the server: certificates, keys, and the clock they are measured by."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key, load_ssh_public_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from silosynth.client.config import CourierConfig
from silosynth.deploy.findings import Finding, ok, problem, too_open, unusable, warning

_NEW_KIT = "ask whoever provisioned the federation for a new kit: the old one must be removed there first"
_RESTORE = "restore it from the kit you were sent, or ask for a new one"
_SOON = timedelta(days=30)
_SKEW = timedelta(minutes=5)
_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm)


def examine_identity(config: CourierConfig) -> Iterator[Finding]:
    folder = config.certificate.parent
    yield too_open("courier folder", folder, "700") or ok("courier folder", str(folder))
    authority, certificate = _certificate("ca", config.ca), _certificate("certificate", config.certificate)
    yield from (item for item in (authority, certificate) if isinstance(item, Finding))
    if isinstance(authority, x509.Certificate) and isinstance(certificate, x509.Certificate):
        yield from _chain(authority, certificate, config)
        yield _clock(certificate, config.certificate)
    key = _private_key("key", config.key)
    if isinstance(key, Finding):
        yield key
    elif isinstance(certificate, x509.Certificate):
        yield _pair(key, certificate, config)
    yield _node_key(config.node_key)


def _certificate(check: str, path: Path) -> x509.Certificate | Finding:
    trouble = unusable(check, path, _RESTORE)
    if trouble is not None:
        return trouble
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        return problem(check, f"{path} is no certificate in PEM form", _RESTORE)


def _chain(authority: x509.Certificate, certificate: x509.Certificate, config: CourierConfig) -> Iterator[Finding]:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        text = f"{config.certificate} was not issued by the authority of {config.ca}: two kits were mixed"
        yield problem("certificate", text, _RESTORE)
        return
    names = [name.value for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if names != [config.silo]:
        text = f"the certificate is for {', '.join(map(str, names))}, courier.toml says silo = {config.silo!r}"
        yield problem("certificate", text, "set `silo` to the certificate's name, here and in silo.toml")
    if not _for_clients(certificate):
        yield problem("certificate", "the certificate is not one for a silo (client authentication)", _RESTORE)
    yield _validity("ca", authority)
    yield _validity("certificate", certificate)


def _for_clients(certificate: x509.Certificate) -> bool:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    return ExtendedKeyUsageOID.CLIENT_AUTH in usage


def _validity(check: str, certificate: x509.Certificate) -> Finding:
    now, until = datetime.now(UTC), certificate.not_valid_after_utc
    if now < certificate.not_valid_before_utc:
        text = f"not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        return problem(check, text, f"set this machine's clock, which says {now:%Y-%m-%d %H:%M} UTC")
    if now > until:
        return problem(check, f"expired on {until:%Y-%m-%d}; this machine's clock says {now:%Y-%m-%d}", _NEW_KIT)
    if until - now < _SOON:
        return warning(check, f"expires on {until:%Y-%m-%d}", _NEW_KIT)
    return ok(check, f"valid until {until:%Y-%m-%d}")


def _clock(certificate: x509.Certificate, path: Path) -> Finding:
    """A kit that was written in the future means that this clock is behind."""
    now = datetime.now(UTC)
    written = max(certificate.not_valid_before_utc, datetime.fromtimestamp(path.stat().st_mtime, UTC))
    if written > now + _SKEW:
        text = f"this machine says {now:%Y-%m-%d %H:%M} UTC, but the kit was written {written:%Y-%m-%d %H:%M} UTC"
        return warning("clock", text, "set the clock, best by NTP: certificates are judged by it")
    return ok("clock", f"{now:%Y-%m-%d %H:%M} UTC: compare it with another clock")


def _private_key(check: str, path: Path) -> object | Finding:
    trouble = unusable(check, path, _RESTORE) or too_open(check, path, "600")
    if trouble is not None:
        return trouble
    try:
        return load_pem_private_key(path.read_bytes(), password=None)
    except _UNREADABLE:
        return problem(check, f"{path} is no unencrypted private key in PEM form", _RESTORE)


def _pair(key: object, certificate: x509.Certificate, config: CourierConfig) -> Finding:
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return problem("key", f"{config.key} does not belong to {config.certificate}: two kits were mixed", _RESTORE)
    return ok("key", "belongs to the certificate, readable by its owner alone")


def _node_key(path: Path) -> Finding:
    """Flower takes keys on NIST curves in OpenSSH form."""
    trouble = unusable("node key", path, _RESTORE) or too_open("node key", path, "600")
    if trouble is not None:
        return trouble
    try:
        key = load_ssh_private_key(path.read_bytes(), password=None)
    except _UNREADABLE:
        return problem("node key", f"{path} is no unencrypted private key in OpenSSH form", _RESTORE)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        return problem("node key", f"{path} is not of the kind Flower takes (ECDSA, P-384)", _RESTORE)
    public = path.with_suffix(".pub")
    if public.exists() and load_ssh_public_key(public.read_bytes()) != key.public_key():
        return problem("node key", f"{public} is not the public half of {path}: two kits were mixed", _RESTORE)
    return ok("node key", "of the kind Flower takes, readable by its owner alone")
