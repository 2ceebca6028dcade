"""Masks values that look like secrets before they are written to a board, which other users can read.

A secret is recognized by the name of the value or by its form. In case of doubt, a value is masked.
"""

from __future__ import annotations

import re
from itertools import pairwise

from gpumon.model.run import Parameter

MASK = "***"
_MAX_LENGTH = 4096
"""Number of characters at the start of a string that are searched for secrets. The stored string is shorter."""
_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_SECRET = frozenset(
    ("token", "password", "passwd", "passphrase", "pwd", "pw", "secret", "secrets", "credential", "credentials")
) | {"auth", "authorization", "apikey", "bearer", "cookie", "jwt", "accesskey", "privatekey", "authtoken"}
_NUMBERS_PASS = frozenset(("token", "auth"))
"""Words that name a secret, unless the value is a number, as in `max_token`."""
_KEYS = frozenset(
    ("api", "access", "private", "secret", "ssh", "encryption", "account", "license", "service", "signing", "webhook")
)
"""Words which, before the word `key`, form the name of a secret."""
_MAYBE = frozenset(("key", "keys", "tokens", "pass"))
"""If a name contains one of these words, a long random string is masked as a secret."""
_RANDOM = re.compile(r"(?=[^\s]*\d)(?=[^\s]*[A-Za-z])[\w+/=.~-]{16,}")
_PLACEHOLDER = re.compile(r"<.{1,24}>|\[.{1,24}\]")
"""Special tokens of a tokenizer, such as <pad> under `pad_token`."""
_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk[-_](?=[\w-]*[0-9A-Z])[\w-]{8,}|gh[pousr]_\w{8,}|github_pat_\w{8,}|hf_(?=\w*[0-9A-Z])\w{8,}|glpat-[\w-]{8,}|"
    r"xox[a-z]-[\w-]{8,}|A[KS]IA[0-9A-Z]{12,}|AIza[\w-]{16,}|ya29\.[\w-]{8,}|npm_\w{16,}|pypi-[\w-]{16,}|"
    r"eyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?|(?i:bearer|basic)\s{1,4}(?=\S*[0-9A-Z])[\w+/=.~-]{12,}"
    r")"
)
_LOGIN = re.compile(r"(?<![\w+.-])([A-Za-z][\w+.-]{0,31}://)[^\s/@]{1,512}@")
_SIGNED = re.compile(r"""(?<=[?&;#])((?:sig|[\w.-]{0,32}signature)=)[^\s&;#,"']+""", re.IGNORECASE)
"""The signature in a URL of cloud storage. Anyone who has it can read the object."""
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----.*", re.DOTALL)
_ASSIGNMENT = re.compile(r"""(?<![\w.-])([\w.-]{1,64})["']?\s{0,4}[=:]\s{0,4}""")
_OPTION = re.compile(r"(?<![\w-])(--?[\w-]{1,64})\s{1,4}")
_VALUE = re.compile(r"""(?:bearer|basic)\s{1,4}\S+|"[^"]*"?|'[^']*'?|[^\s&;,}"']+""", re.IGNORECASE)
"""Pattern of the value that follows a name in a command line, a URL or JSON."""


def is_secret_name(name: str) -> bool:
    """Return whether a value with this name is always a secret."""
    return bool(_secret_words(name))


def masked(name: str, value: Parameter) -> Parameter:
    """Return the value of the parameter `name`, with all parts that look like secrets masked."""
    if value is None or isinstance(value, bool) or value == "":
        return value
    secret = _secret_words(name)
    if not isinstance(value, str):
        return MASK if secret - _NUMBERS_PASS else value
    if secret:
        return value if secret <= _NUMBERS_PASS and _PLACEHOLDER.fullmatch(value) else MASK
    if not _MAYBE.isdisjoint(_words(name)) and _RANDOM.fullmatch(value[:_MAX_LENGTH]):
        return MASK
    return masked_text(value)


def masked_text(text: str) -> str:
    """Return `text` with all parts that look like secrets masked."""
    text = _PRIVATE_KEY.sub(MASK, text[:_MAX_LENGTH])
    text = _LOGIN.sub(rf"\1{MASK}@", text)
    text = _SIGNED.sub(rf"\1{MASK}", text)
    text = _SHAPES.sub(MASK, text)
    return _mask_values(_mask_values(text, _ASSIGNMENT), _OPTION)


def _mask_values(text: str, names: re.Pattern[str]) -> str:
    """Return `text` with the values that follow names of secrets masked."""
    result, position = "", 0
    for name in names.finditer(text):
        if name.start() >= position and is_secret_name(name[1]) and (value := _VALUE.match(text, name.end())):
            result, position = result + text[position : name.end()] + MASK, value.end()
    return result + text[position:]


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name[:_MAX_LENGTH])]


def _secret_words(name: str) -> set[str]:
    words = _words(name)
    secret = {word for word in words if word in _SECRET}
    for previous, word in pairwise(words):
        if word in ("key", "keys") and previous in _KEYS:
            secret.add(f"{previous} {word}")
    return secret
