"""What hardware needs to know about element types."""

from amaranth import Cat, Value

from models.formats import DType, dtype_bytes


def log2_bytes(code: Value) -> Value:
    """log2 of the bytes of the element type with DType code `code`: 0, 1 or 2; unknown codes give 0."""
    bits = []
    for bit in (0, 1):
        hits = [code == d.value for d in DType if dtype_bytes(d).bit_length() - 1 >> bit & 1]
        bits.append(Cat(hits).any())
    return Cat(bits)
