"""Numbers from a ring that a view may calculate with.

A stranger's ring, or a damaged one whose CRC is right all the same, may hold infinities and numbers of three hundred
digits. No metric comes near `LARGEST`; what does is missing when it is read, so that no view overflows.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpumon.common.numbers import LARGEST, NAN

# The two highest bytes of a float64 are its sign, its exponent and four bits more: 44 00 for LARGEST, 7F F8 for NaN.
# So a few passes in C show that nothing is wrong, which is nearly always the case.
_EXPONENT = bytes(high & 0x7F > 0x43 and high != 0x7F for high in range(256))
_HIGHEST = bytes(high == 0x7F for high in range(256))
_NOT_NAN = bytes(second != 0xF8 for second in range(256))


def believable(values: Iterable[float]) -> tuple[float, ...]:
    """The values, NaN in place of what is infinite or beyond reason."""
    least, most, missing = -LARGEST, LARGEST, NAN  # locals, and a list first: it is done for each process
    return tuple([value if least < value < most else missing for value in values])


def is_doubtful(raw: bytes | bytearray, offsets: Iterable[int] = (0,), stride: int = 8) -> bool:
    """Whether a little-endian float64 at one of `offsets` in a record of `stride` bytes might not be believable."""
    highest = b"".join([raw[at + 7 :: stride] for at in offsets])
    second = b"".join([raw[at + 6 :: stride] for at in offsets])
    if highest.translate(_EXPONENT).find(1) >= 0:
        return True
    infinite = int.from_bytes(highest.translate(_HIGHEST), "little")
    return bool(infinite & int.from_bytes(second.translate(_NOT_NAN), "little"))


_EXPONENT_SINGLE = bytes(high & 0x7F > 0x5F and high != 0x7F for high in range(256))
_NOT_NAN_SINGLE = bytes(second != 0xC0 for second in range(256))


def is_doubtful_single(raw: bytes | bytearray) -> bool:
    """Whether one of little-endian float32 values might not be believable."""
    highest = raw[3::4]
    if highest.translate(_EXPONENT_SINGLE).find(1) >= 0:
        return True
    infinite = int.from_bytes(highest.translate(_HIGHEST), "little")
    return bool(infinite & int.from_bytes(raw[2::4].translate(_NOT_NAN_SINGLE), "little"))
