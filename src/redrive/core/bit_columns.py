"""
Rows of whole numbers in as few bytes as their spread allows, without loss.

Each column is stored as what its values exceed its least one by, in Rice's code: the low bits as they are, the rest counted
out in ones. It takes about two bits more than the mean needs and, unlike a fixed width, one value far out costs only itself.
"""

from collections.abc import Sequence

_COUNT_BITS = 24
_WIDTH_BITS = 6
#: Values are below this.
VALUE_LIMIT = 1 << 63


def pack_columns(columns: Sequence[Sequence[int]]) -> bytes:
    """Pack columns of one length, 1 to 16 million, of values in [0, 2^63). Raises ValueError for others."""
    count = len(columns[0])
    if not 0 < count < 1 << _COUNT_BITS or any(
        min(column) < 0 or max(column) >= VALUE_LIMIT for column in columns
    ):
        raise ValueError("too many rows, or a value below 0 or above 63 bits")
    # The leading one keeps zeros that follow it.
    bits = ["1", f"{count:0{_COUNT_BITS}b}"]
    for column in columns:
        least = min(column)
        shift = max(1, (sum(column) - least * count) // count).bit_length() - 1
        bits.append(f"{least.bit_length():0{_WIDTH_BITS}b}{least:b}{shift:0{_WIDTH_BITS}b}")
        for value in column:
            high, low = divmod(value - least, 1 << shift)
            bits.append("1" * high + (f"0{low:0{shift}b}" if shift else "0"))
    text = "".join(bits)
    return int(text, 2).to_bytes((len(text) + 7) // 8, "big")


def unpack_columns(packed: bytes, columns: int) -> list[list[int]]:
    """Give so many `columns` back. Raises ValueError when `packed` isn't what was packed."""
    bits = bin(int.from_bytes(packed, "big"))[3:]
    at = 0

    def take(width: int) -> int:
        nonlocal at
        at += width
        if at > len(bits):
            raise ValueError("cut off")
        return int(bits[at - width : at], 2) if width else 0

    found = []
    count = take(_COUNT_BITS)
    for _ in range(columns):
        least = take(max(1, take(_WIDTH_BITS)))
        shift = take(_WIDTH_BITS)
        column = []
        for _ in range(count):
            high = bits.index("0", at) - at
            at += high + 1
            column.append(least + (high << shift | take(shift)))
        found.append(column)
    if at != len(bits) or any(max(column) >= VALUE_LIMIT for column in found):
        raise ValueError("not what was packed")
    return found
