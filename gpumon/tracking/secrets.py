"""Masking what looks like a secret before it reaches a board: others on the machine can read it there.

A guess, by names and by shapes; too much is masked rather than too little.
"""

from __future__ import annotations

import re
from itertools import pairwise

from gpumon.model.run import Parameter

MASK = "***"
_LOOKED_AT = 4096
"""Letters of a text that are looked at; what is kept of it is shorter."""
_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_SECRET = frozenset(
    ("token", "password", "passwd", "passphrase", "pwd", "pw", "secret", "secrets", "credential", "credentials")
) | {"auth", "authorization", "apikey", "bearer", "cookie", "jwt", "accesskey", "privatekey", "authtoken"}
_NUMBERS_PASS = frozenset(("token", "auth"))
"""As in `max_token`: a number under such a name alone is none."""
_KEYS = frozenset(
    ("api", "access", "private", "secret", "ssh", "encryption", "account", "license", "service", "signing", "webhook")
)
"""Words that make a key one that is secret."""
_MAYBE = frozenset(("key", "keys", "tokens", "pass"))
"""Names under which a long random text is a secret."""
_RANDOM = re.compile(r"(?=[^\s]*\d)(?=[^\s]*[A-Za-z])[\w+/=.~-]{16,}")
_PLACEHOLDER = re.compile(r"<.{1,24}>|\[.{1,24}\]")
"""Of a tokenizer, such as <pad> under `pad_token`."""
_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk[-_](?=[\w-]*[0-9A-Z])[\w-]{8,}|gh[pousr]_\w{8,}|github_pat_\w{8,}|hf_(?=\w*[0-9A-Z])\w{8,}|glpat-[\w-]{8,}|"
    r"xox[a-z]-[\w-]{8,}|A[KS]IA[0-9A-Z]{12,}|AIza[\w-]{16,}|ya29\.[\w-]{8,}|npm_\w{16,}|pypi-[\w-]{16,}|"
    r"eyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?|(?i:bearer|basic)\s{1,4}(?=\S*[0-9A-Z])[\w+/=.~-]{12,}"
    r")"
)
_LOGIN = re.compile(r"(?<![\w+.-])([A-Za-z][\w+.-]{0,31}://)[^\s/@]{1,512}@")
_SIGNED = re.compile(r"""(?<=[?&;#])((?:sig|[\w.-]{0,32}signature)=)[^\s&;#,"']+""", re.IGNORECASE)
"""The signature of an address, with which everybody may read what lies there: storage in clouds has such ones."""
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----.*", re.DOTALL)
_GIVEN = re.compile(r"""(?<![\w.-])([\w.-]{1,64})["']?\s{0,4}[=:]\s{0,4}""")
_OPTION = re.compile(r"(?<![\w-])(--?[\w-]{1,64})\s{1,4}")
_VALUE = re.compile(r"""(?:bearer|basic)\s{1,4}\S+|"[^"]*"?|'[^']*'?|[^\s&;,}"']+""", re.IGNORECASE)
"""The value behind a name within a text, as in a command line, an address or JSON."""


def is_secret_name(name: str) -> bool:
    """Whether what has this name is kept to itself, whatever it is."""
    return bool(_secret_words(name))


def masked(name: str, value: Parameter) -> Parameter:
    """`value` of the parameter `name`, without what looks like a secret."""
    if value is None or isinstance(value, bool) or value == "":
        return value
    secret = _secret_words(name)
    if not isinstance(value, str):
        return MASK if secret - _NUMBERS_PASS else value
    if secret:
        return value if secret <= _NUMBERS_PASS and _PLACEHOLDER.fullmatch(value) else MASK
    if not _MAYBE.isdisjoint(_words(name)) and _RANDOM.fullmatch(value[:_LOOKED_AT]):
        return MASK
    return masked_text(value)


def masked_text(text: str) -> str:
    """`text` without the parts of it that look like secrets."""
    text = _PRIVATE_KEY.sub(MASK, text[:_LOOKED_AT])
    text = _LOGIN.sub(rf"\1{MASK}@", text)
    text = _SIGNED.sub(rf"\1{MASK}", text)
    text = _SHAPES.sub(MASK, text)
    return _without_values(_without_values(text, _GIVEN), _OPTION)


def _without_values(text: str, names: re.Pattern[str]) -> str:
    """`text` without the values that follow secret names."""
    kept, at = "", 0
    for found in names.finditer(text):
        if found.start() >= at and is_secret_name(found[1]) and (value := _VALUE.match(text, found.end())):
            kept, at = kept + text[at : found.end()] + MASK, value.end()
    return kept + text[at:]


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name[:_LOOKED_AT])]


def _secret_words(name: str) -> set[str]:
    words = _words(name)
    found = {word for word in words if word in _SECRET}
    for before, word in pairwise(words):
        if word in ("key", "keys") and before in _KEYS:
            found.add(f"{before} {word}")
    return found
