"""Certificates of a test, made on the spot: an authority, what it signs, and one that nobody signed."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)
_FOR_SIGNING = x509.KeyUsage(
    digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
    key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
)  # fmt: skip


class Pair(NamedTuple):
    """A certificate and its key, as files."""

    certificate: Path
    key: Path

    def encrypt(self) -> None:
        """Encrypt the key with a passphrase."""
        key = serialization.load_pem_private_key(self.key.read_bytes(), None)
        how = serialization.BestAvailableEncryption(b"passphrase")
        self.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))


class Authority:
    """Signs certificates; its own is `certificate`."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        built = _builder(self._name, self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        built = built.add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        self._signed = built.add_extension(_FOR_SIGNING, critical=True).sign(self._key, hashes.SHA256())
        self.certificate = directory / f"{name}.pem"
        self.certificate.write_bytes(self._signed.public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str) -> Pair:
        """A certificate for `name`, which is also good for 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName(
            [x509.DNSName(name), x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        signed = _builder(_named(name), self._name, key.public_key()).add_extension(names, critical=False)
        # Python's clients ask for it from 3.13 on.
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        signed = signed.add_extension(signer, critical=False)
        pair = Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        pair.certificate.write_bytes(signed.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return pair


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now - _DAY).not_valid_after(now + _DAY)
