"""Which partition a key belongs to: the formula of Java's default partitioner."""

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of `key` among so many."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, with Kafka's seed."""
    state = (0x9747B28C ^ len(data)) & _MASK
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        state = state * _MULTIPLIER & _MASK ^ word
    if len(data) > whole:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    state = (state ^ state >> 13) * _MULTIPLIER & _MASK
    return state ^ state >> 15
