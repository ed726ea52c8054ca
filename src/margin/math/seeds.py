"""Seeds: one integer from several, so that randomness is a function of (seed, purpose, step).

The finalizer of MurmurHash3 (Appleby, 2011) mixes each word in.
"""


def mix(*words: int) -> int:
    """A 32-bit seed from integers, a bijection of the last: no two steps of a run share a seed.

    Torch's CPU generator reads 32 bits of a seed and drops the rest.
    """
    h = 0x9E3779B9
    for word in words:
        h ^= word & 0xFFFFFFFF
        h = ((h ^ (h >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
        h = ((h ^ (h >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
        h ^= h >> 16
    return h
