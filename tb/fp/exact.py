"""FP32 in Python integers, without any floating-point unit: the oracle for roundings that NumPy has no operation for."""

NAN, INF = 0x7FC00000, 0x7F800000


def is_nan(bits: int) -> bool:
    """Whether FP32 bits are a NaN."""
    return bits & 0x7FFFFFFF > INF


def is_inf(bits: int) -> bool:
    """Whether FP32 bits are an infinity."""
    return bits & 0x7FFFFFFF == INF


def parts(bits: int) -> tuple[int, int]:
    """(signed integer m, exponent e) of a finite number m * 2**e."""
    exp, frac = bits >> 23 & 255, bits & 0x7FFFFF
    mag = frac | (1 << 23 if exp else 0)
    return (-mag if bits >> 31 else mag), max(exp, 1) - 150


def rounded(number: int, exponent: int, zero_sign: int = 0) -> int:
    """FP32 bits of number * 2**exponent, to nearest, ties to even; an exact zero takes `zero_sign`."""
    if number == 0:
        return zero_sign << 31
    sign, mag = int(number < 0) << 31, abs(number)
    last = max(exponent + mag.bit_length() - 24, -149)  # weight of the result's last place
    drop = last - exponent
    if drop <= 0:
        kept = mag << -drop
    else:
        kept, rest, half = mag >> drop, mag & ((1 << drop) - 1), 1 << (drop - 1)
        kept += int(rest > half or (rest == half and kept & 1 == 1))
    if kept == 1 << 24:
        kept, last = 1 << 23, last + 1
    if kept >> 23 == 0:
        return sign | kept  # subnormal: last is -149
    exp = last + 150
    return sign | (INF if exp >= 255 else exp << 23 | kept & 0x7FFFFF)


def sum_rounded(a: int, mag: int, neg: int, exponent: int, inf: int, nan: int) -> int:
    """FP32 bits of a + (-1)**neg * mag * 2**exponent in one rounding, special cases as IEEE 754-2019 has them for a sum."""
    if nan or is_nan(a) or (inf and is_inf(a) and neg != a >> 31):
        return NAN
    if inf or is_inf(a):
        return (a if is_inf(a) else neg << 31) & (1 << 31) | INF
    number, a_exp = parts(a)
    least = min(a_exp, exponent)
    total = (number << (a_exp - least)) + ((-mag if neg else mag) << (exponent - least))
    return rounded(total, least, zero_sign=(a >> 31) & neg if mag == 0 and number == 0 else 0)
