"""The chip's configuration: frozen dataclasses, one per block, loaded from TOML and checked once.

`ChipConfig` is what RTL, models, simulators and docs are parametrised from. Presets lie in `models/presets/*.toml`.
"""

import dataclasses
import hashlib
import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models import addressing
from models.formats import DOUBLE_ROWS, MAC_DTYPES, MX_ROWS, DType, dtype_by_name

PRESET_DIR = Path(__file__).parent / "presets"


class ConfigError(ValueError):
    """A configuration that cannot be built; the text names the key, the value and what is allowed."""


def _need(ok: bool, key: str, allowed: str, value: object) -> None:
    if not ok:
        raise ConfigError(f"{key} must be {allowed}, not {value!r}")


def _power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorConfig:
    """Tensor engine. `formats`: operand types that the multiplier bank is built for; `double_row`: those of which it also takes two rows at a time."""

    formats: tuple[DType, ...] = MAC_DTYPES
    double_row: tuple[DType, ...] = ()

    def __post_init__(self) -> None:
        _need(len(self.formats) > 0, "tensor.formats", "a list of at least one format", list(self.formats))
        for f in self.formats:
            allowed = ", ".join(d.name.lower() for d in MAC_DTYPES)
            _need(f in MAC_DTYPES, "tensor.formats", f"made of {allowed}", f.name.lower())
        for f in self.double_row:
            allowed = ", ".join(d.name.lower() for d in DOUBLE_ROWS)
            _need(f in DOUBLE_ROWS, "tensor.double_row", f"made of {allowed}", f.name.lower())
            _need(f in self.formats, "tensor.double_row", "made of types in tensor.formats", f.name.lower())
        for key, types in (("formats", self.formats), ("double_row", self.double_row)):
            names = [f.name.lower() for f in types]
            _need(len(set(types)) == len(types), f"tensor.{key}", "free of repetitions", names)


@dataclass(frozen=True, kw_only=True, slots=True)
class SbufConfig:
    """SBUF: bytes a partition, and banks (32-bit words interleaved over them)."""

    bytes_per_partition: int = 64 * 1024
    banks: int = 8

    def __post_init__(self) -> None:
        b = self.bytes_per_partition
        _need(
            _power_of_two(b) and 1024 <= b <= addressing.SBUF_PARTITION_STRIDE,
            "sbuf.bytes_per_partition",
            "a power of two from 1024 to 1048576",
            b,
        )
        _need(self.banks in (4, 8, 16), "sbuf.banks", "4, 8 or 16", self.banks)


@dataclass(frozen=True, kw_only=True, slots=True)
class PsumConfig:
    """PSUM: `banks` of `bank_bytes` a partition; a matmul's result must fit one bank."""

    banks: int = 8
    bank_bytes: int = 2048

    def __post_init__(self) -> None:
        _need(self.banks in (2, 4, 8, 16), "psum.banks", "2, 4, 8 or 16", self.banks)
        _need(
            _power_of_two(self.bank_bytes) and 256 <= self.bank_bytes <= 4096,
            "psum.bank_bytes",
            "a power of two from 256 to 4096",
            self.bank_bytes,
        )

    @property
    def bytes_per_partition(self) -> int:
        """Bytes of PSUM in one partition."""
        return self.banks * self.bank_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreConfig:
    """Control of a core: semaphores, instructions prefetched per engine, latest instructions kept for branches back (a power of two), cycles before the SRAM arbiter promotes a waiting port."""

    semaphores: int = 64
    prefetch: int = 4
    loop_buffer: int = 16
    starvation_limit: int = 64

    def __post_init__(self) -> None:
        _need(self.semaphores in (64, 128, 256), "core.semaphores", "64, 128 or 256", self.semaphores)
        _need(2 <= self.prefetch <= 16, "core.prefetch", "from 2 to 16", self.prefetch)
        _need(
            self.loop_buffer in (4, 8, 16, 32, 64) and self.loop_buffer >= 2 * self.prefetch,
            "core.loop_buffer",
            "4, 8, 16, 32 or 64, and at least twice core.prefetch",
            self.loop_buffer,
        )
        _need(
            8 <= self.starvation_limit <= 1024,
            "core.starvation_limit",
            "from 8 to 1024",
            self.starvation_limit,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryConfig:
    """Memory channels at the chip's edge (AXI4 masters); addresses interleave over them every 4 KiB."""

    channels: int = 1
    data_width: int = 128
    id_width: int = 8
    bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        _need(self.channels in (1, 2, 4, 8), "memory.channels", "1, 2, 4 or 8", self.channels)
        _need(self.data_width == 128, "memory.data_width", "128", self.data_width)
        _need(6 <= self.id_width <= 16, "memory.id_width", "from 6 to 16", self.id_width)
        _need(
            _power_of_two(self.bytes) and 65536 <= self.bytes <= 1 << 39,
            "memory.bytes",
            "a power of two from 65536 to 549755813888",
            self.bytes,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ChipConfig:
    """A whole chip: `partitions` is P (partitions = PE rows = PE columns), `cores` NeuronCore-class cores."""

    name: str
    partitions: int
    cores: int
    tensor: TensorConfig = field(default_factory=TensorConfig)
    sbuf: SbufConfig = field(default_factory=SbufConfig)
    psum: PsumConfig = field(default_factory=PsumConfig)
    core: CoreConfig = field(default_factory=CoreConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)

    def __post_init__(self) -> None:
        _need(
            self.name.replace("-", "_").isidentifier(),
            "name",
            "letters, digits, '-' and '_', not starting with a digit",
            self.name,
        )
        _need(self.partitions in (8, 16, 32, 64, 128), "partitions", "8, 16, 32, 64 or 128", self.partitions)
        _need(1 <= self.cores <= 16, "cores", "from 1 to 16", self.cores)

    @property
    def quadrant(self) -> int:
        """Partitions of an MX quadrant: min(32, P)."""
        return min(32, self.partitions)

    @property
    def scale_groups(self) -> int:
        """MX scale groups of 8 partitions each."""
        return self.partitions // MX_ROWS

    def to_dict(self) -> dict[str, Any]:
        """The configuration as nested plain values, formats by name; `from_dict` is its inverse."""
        out = dataclasses.asdict(self)
        for key in _TYPE_LISTS:
            out["tensor"][key] = [f.name.lower() for f in getattr(self.tensor, key)]
        return out

    def digest(self) -> str:
        """SHA-256 over the canonical JSON of everything but the name, in hex."""
        plain = self.to_dict()
        del plain["name"]
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


_TYPE_LISTS = ("formats", "double_row")
_BLOCKS: dict[str, type] = {
    "tensor": TensorConfig,
    "sbuf": SbufConfig,
    "psum": PsumConfig,
    "core": CoreConfig,
    "memory": MemoryConfig,
}


def _build(cls: type, data: dict[str, Any], prefix: str) -> Any:
    allowed = [f.name for f in dataclasses.fields(cls)]
    kwargs: dict[str, Any] = {}
    for key, value in data.items():
        path = prefix + key
        if key not in allowed:
            raise ConfigError(f"unknown key {path!r}; allowed here: {', '.join(allowed)}")
        if key in _BLOCKS and cls is ChipConfig:
            _need(isinstance(value, dict), path, "a table", value)
            kwargs[key] = _build(_BLOCKS[key], value, f"{path}.")
        elif key in _TYPE_LISTS:
            _need(
                isinstance(value, list) and all(isinstance(v, str) for v in value),
                path,
                "a list of names",
                value,
            )
            try:
                kwargs[key] = tuple(dtype_by_name(v) for v in value)
            except ValueError as e:
                raise ConfigError(f"{path}: {e}") from None
        elif key == "name":
            _need(isinstance(value, str), path, "a string", value)
            kwargs[key] = value
        else:
            _need(isinstance(value, int) and not isinstance(value, bool), path, "an integer", value)
            kwargs[key] = value
    for f in dataclasses.fields(cls):
        if (
            f.name not in kwargs
            and f.default is dataclasses.MISSING
            and f.default_factory is dataclasses.MISSING
        ):
            raise ConfigError(f"missing key {prefix + f.name!r}")
    return cls(**kwargs)


def from_dict(data: dict[str, Any]) -> ChipConfig:
    """Build a ChipConfig from nested plain values. Raises ConfigError naming the key, the value and what is allowed."""
    config = _build(ChipConfig, data, "")
    assert isinstance(config, ChipConfig)
    return config


def load(path: Path) -> ChipConfig:
    """Load a TOML file; `name` defaults to the file's stem. Raises ConfigError, prefixed with the file's name."""
    try:
        data = tomllib.loads(path.read_text())
    except OSError as e:
        raise ConfigError(f"cannot read configuration {str(path)!r}: {e.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path.name}: not TOML: {e}") from None
    data.setdefault("name", path.stem)
    try:
        return from_dict(data)
    except ConfigError as e:
        raise ConfigError(f"{path.name}: {e}") from None


def presets() -> list[str]:
    """Names of the presets that ship with the project, smallest chip first."""
    found = [(c.partitions * c.partitions * c.cores, c.name) for c in map(load, PRESET_DIR.glob("*.toml"))]
    return [name for _, name in sorted(found)]


def find(name: str) -> ChipConfig:
    """A preset by name, or a TOML file by path (anything that ends in .toml). Raises ConfigError listing the presets."""
    if name.endswith(".toml"):
        return load(Path(name))
    path = PRESET_DIR / f"{name}.toml"
    if "/" in name or not path.is_file():
        raise ConfigError(
            f"preset must be one of {', '.join(presets())} or a path to a .toml file, not {name!r}"
        )
    return load(path)
