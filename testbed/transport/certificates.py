# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The certificate authority of one run, and its certificates. Keys are never written to files."""

import os
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from testbed.core.node import NodeId
from testbed.transport.interface import Identity

LIFETIME = timedelta(days=30)


def identities(clients: int) -> list[Identity]:
    """Identities for the base station (first) and every UAV, from a new authority.

    Ed25519 keys and names of equal length make all certificates, and so all handshakes, equally
    long.
    """
    authority = _key()
    name = _name("testbed run")
    root = (
        _begin(name, name, authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority, None)
    )
    found = []
    for client in range(clients + 1):
        key = _key()
        host = NodeId(client).host_name
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            _begin(_name(host), name, key, serial=1000 + client)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .sign(authority, None)
        )
        found.append(
            Identity(
                authority=_pem(root),
                certificate=_pem(certificate),
                key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
            )
        )
    return found


def _key() -> Ed25519PrivateKey:
    """A key from the kernel's random numbers, which are repeatable in virtual time; OpenSSL's would
    also depend on the time."""
    return Ed25519PrivateKey.from_private_bytes(os.urandom(32))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _begin(
    subject: x509.Name, issuer: x509.Name, key: Ed25519PrivateKey, serial: int = 1
) -> x509.CertificateBuilder:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + LIFETIME)
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
