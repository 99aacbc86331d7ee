"""Checks that a delivery was signed with the webhook secret, over the exact bytes, before anything is parsed.

It never says why a signature is wrong, and takes the same time whatever the cause (GW-R-048, GW-R-065).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from urllib.parse import unquote_to_bytes

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"

# The same digest under the names of every family: Forgejo sends its own beside Gitea's, both send those of Gogs and of
# GitHub, and a proxy may keep only one. The first that is there decides, also when it is empty.
_SIGNATURES = ("x-gitea-signature", "x-forgejo-signature", "x-gogs-signature", "x-hub-signature-256")
_PREFIX = "sha256="
_ABSENT = "0" * 64


def lowered(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers under lower-case names, without surrounding blanks; the first of equal names wins."""
    result: dict[str, str] = {}
    for name, value in headers.items():
        result.setdefault(name.lower(), value.strip())
    return result


def media_type(headers: Mapping[str, str]) -> str:
    """Returns the lower-case media type without parameters; empty when absent."""
    return lowered(headers).get("content-type", "").partition(";")[0].strip().lower()


def content(headers: Mapping[str, str], body: bytes) -> bytes | None:
    """Returns the bytes that are signed and hold the JSON: the body, or a form's decoded `payload` field.

    None when a form has no such field or several: the sender's signature could then cover another one than we read.
    """
    if media_type(headers) != FORM:
        return body
    values = [value for name, _, value in (part.partition(b"=") for part in body.split(b"&")) if name == b"payload"]
    if len(values) != 1:
        return None
    return unquote_to_bytes(values[0].replace(b"+", b" "))


def header(headers: Mapping[str, str]) -> str:
    """Returns the signature sent; empty when none was, and also when the first one present is empty."""
    have = lowered(headers)
    for name in _SIGNATURES:
        if name in have:
            return have[name].removeprefix(_PREFIX) if name == "x-hub-signature-256" else have[name]
    return ""


def sign(secret: bytes, signed: bytes) -> str:
    """Computes the signature Gitea sends: bare lower-case hex of HMAC-SHA256."""
    return hmac.new(secret, signed, hashlib.sha256).hexdigest()


def valid(signed: bytes, signature: str, secrets: Sequence[bytes]) -> bool:
    """Tells whether `signature` was made over `signed` with one of `secrets`; an empty secret accepts nothing."""
    given = (signature or _ABSENT).lower().encode("utf-8", "replace")
    found = False
    for secret in secrets:
        # No early end: the number of comparisons says nothing about which secret fits.
        same = hmac.compare_digest(sign(secret, signed).encode(), given)
        found |= same and bool(secret) and bool(signature)
    return found


def secret_of(headers: Mapping[str, str], body: bytes, secrets: Sequence[bytes]) -> int | None:
    """Returns which of `secrets` a genuine delivery was signed with, the first being 0; None for any other."""
    signed = content(headers, body)
    raw = body if signed is None else signed
    fits = [valid(raw, header(headers), [secret]) for secret in secrets]
    return fits.index(True) if any(fits) else None


def verified(headers: Mapping[str, str], body: bytes, secrets: Sequence[bytes]) -> bytes | None:
    """Returns the signed JSON bytes of a genuine delivery, or None."""
    signed = content(headers, body)
    genuine = valid(body if signed is None else signed, header(headers), secrets)
    return signed if genuine else None
