"""The rules that the engines enforce on operands, for whoever builds a program."""

from models.access import AccessPattern
from models.config import ChipConfig
from models.formats import FLOATS, INTS, PACKED, DType, dtype_bytes
from models.isa import Space


class ProgramError(ValueError):
    """An instruction that the hardware would refuse; the text names engine, index, operand, value and what is allowed."""


class Checker:
    """The rules that the engines enforce, so that a program is refused before it runs."""

    def __init__(self, config: ChipConfig):
        self.config = config

    def parts(self, key: str, value: int) -> None:
        """A number of partitions or columns."""
        if not 1 <= value <= self.config.partitions:
            raise ValueError(f"{key} must be from 1 to {self.config.partitions}, not {value!r}")

    def pattern(
        self, key: str, ap: AccessPattern, parts: int, *, spaces: tuple[Space, ...] = tuple(Space)
    ) -> None:
        """Space, alignment, partitions and address range of a pattern."""
        cfg = self.config
        if ap.space not in spaces:
            raise ValueError(f"{key} must lie in {' or '.join(s.name for s in spaces)}, not {ap.space.name}")
        if ap.addr % dtype_bytes(ap.dtype):
            raise ValueError(
                f"{key}.addr must be a multiple of {dtype_bytes(ap.dtype)} for {ap.dtype.name}, not {ap.addr:#x}"
            )
        if ap.part % (cfg.partitions // 4):
            raise ValueError(f"{key}.part must be a multiple of {cfg.partitions // 4}, not {ap.part}")
        if ap.part + parts > cfg.partitions:
            raise ValueError(
                f"{key}: partitions {ap.part} to {ap.part + parts - 1} must be below {cfg.partitions}"
            )
        self.range(key, ap)

    def range(self, key: str, ap: AccessPattern) -> None:
        """All addresses of the pattern lie in its partition."""
        size = (
            self.config.sbuf.bytes_per_partition
            if ap.space == Space.SBUF
            else self.config.psum.bytes_per_partition
        )
        if ap.size:
            addresses = ap.addresses()
            low, high = int(addresses.min()), int(addresses.max()) + dtype_bytes(ap.dtype)
            if low < 0 or high > size:
                raise ValueError(
                    f"{key} spans bytes {low} to {high - 1} of {ap.space.name}, which has {size} a partition"
                )

    def operand(
        self, key: str, ap: AccessPattern, parts: int, scale: AccessPattern | None, count: int | None
    ) -> None:
        """A stationary or moving operand with its MX scales."""
        if ap.dtype not in self.config.tensor.formats:
            names = ", ".join(d.name for d in self.config.tensor.formats)
            raise ValueError(f"{key}.dtype must be one of {names} in this configuration, not {ap.dtype.name}")
        self.pattern(key, ap, parts, spaces=(Space.SBUF,))
        if count is not None and ap.size != count:
            raise ValueError(f"{key} must have {count} elements, not {ap.size}")
        if (scale is not None) != (ap.dtype in PACKED):
            raise ValueError(f"{key} of {ap.dtype.name} {'needs' if scale is None else 'takes no'} scales")
        if scale is not None:
            self.scale(f"{key}_scale", ap, scale)

    def double_row(self, key: str, ap: AccessPattern, parts: int, second: AccessPattern) -> None:
        """Second rows of an operand: as many elements of the same type, in any partitions."""
        types = self.config.tensor.double_row
        if not types:
            raise ValueError(
                f"{key} must be left out: this configuration has no double row (tensor.double_row)"
            )
        if ap.dtype not in types:
            names = ", ".join(d.name for d in types)
            raise ValueError(f"{key} goes with {names} in this configuration, not with {ap.dtype.name}")
        if second.dtype != ap.dtype or second.size != ap.size:
            raise ValueError(
                f"{key} must have {ap.size} elements of {ap.dtype.name}, not {second.size} of {second.dtype.name}"
            )
        self.pattern(key, second, parts, spaces=(Space.SBUF,))

    def scale(self, key: str, ap: AccessPattern, scale: AccessPattern) -> None:
        """MX scales: E8M0 in SBUF, quadrant offsets, one a column."""
        offsets = (0, 4, 8, 12) if self.config.partitions >= 32 else (0,)
        if scale.dtype != DType.E8M0 or scale.space != Space.SBUF:
            raise ValueError(f"{key} must be E8M0 in SBUF, not {scale.dtype.name} in {scale.space.name}")
        if scale.part not in offsets:
            raise ValueError(f"{key}.part must be one of {offsets}, not {scale.part}")
        if ap.part % self.config.quadrant:
            raise ValueError(f"MX operand's part must be a multiple of {self.config.quadrant}, not {ap.part}")
        if scale.size != ap.size:
            raise ValueError(f"{key} must have {ap.size} elements, not {scale.size}")
        self.range(key, scale)

    def vector(self, dst: AccessPattern, srcs: dict[str, AccessPattern], parts: int, *, copy: bool) -> None:
        """Operands of a vector instruction."""
        self.parts("parts", parts)
        raw = copy and all(s.dtype == dst.dtype for s in srcs.values())
        element = {*FLOATS, *INTS}
        if not raw:
            if dst.dtype not in element:
                raise ValueError(f"dst.dtype must be a float or integer type, not {dst.dtype.name}")
            for key, s in srcs.items():
                if s.dtype not in element | {DType.E8M0}:
                    raise ValueError(f"{key}.dtype must be a float, integer or E8M0 type, not {s.dtype.name}")
        self.pattern("dst", dst, parts)
        for key, s in srcs.items():
            self.pattern(key, s, parts)
