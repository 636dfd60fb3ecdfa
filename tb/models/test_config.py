"""Configuration: presets load, and what cannot be built is refused with key, value and what is allowed."""

import pytest

from models import config
from models.config import ConfigError


def base(**changes):
    return {"name": "x", "partitions": 8, "cores": 1} | changes


def test_presets_load_in_order_of_size():
    assert config.presets() == ["nano", "mini", "small", "gen3"]
    gen3 = config.find("gen3")
    assert (gen3.partitions, gen3.cores, gen3.sbuf.bytes_per_partition * 128) == (128, 8, 32 << 20)


def test_round_trip_and_digest():
    for name in config.presets():
        c = config.find(name)
        again = config.from_dict(c.to_dict())
        assert again == c
        assert again.digest() == c.digest()
    digests = {config.find(n).digest() for n in config.presets()}
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": 1}, r"unknown key 'colour'; allowed here: name, partitions, cores"),
        ({"sbuf": {"bank": 8}}, r"unknown key 'sbuf.bank'; allowed here: bytes_per_partition, banks"),
        ({"partitions": 12}, r"partitions must be 8, 16, 32, 64 or 128, not 12"),
        ({"partitions": "8"}, r"partitions must be an integer, not '8'"),
        ({"partitions": True}, r"partitions must be an integer, not True"),
        ({"cores": 0}, r"cores must be from 1 to 16, not 0"),
        (
            {"tensor": {"formats": ["bf17"]}},
            r"tensor.formats: number format must be one of .*bf16.*, not 'bf17'",
        ),
        ({"tensor": {"formats": ["int32"]}}, r"tensor.formats must be made of bf16, .*, not 'int32'"),
        ({"tensor": {"formats": []}}, r"tensor.formats must be a list of at least one format, not \[\]"),
        ({"tensor": {"formats": ["bf16", "bf16"]}}, r"free of repetitions"),
        ({"tensor": {"double_row": ["bf16"]}}, r"tensor.double_row must be made of e4m3, e5m2, not 'bf16'"),
        (
            {"tensor": {"formats": ["bf16", "e4m3"], "double_row": ["e5m2"]}},
            r"tensor.double_row must be made of types in tensor.formats, not 'e5m2'",
        ),
        ({"tensor": {"double_row": ["e4m3", "e4m3"]}}, r"tensor.double_row must be free of repetitions"),
        ({"tensor": {"double_row": "e4m3"}}, r"tensor.double_row must be a list of names, not 'e4m3'"),
        ({"tensor": 3}, r"tensor must be a table, not 3"),
        (
            {"sbuf": {"bytes_per_partition": 3000}},
            r"sbuf.bytes_per_partition must be a power of two from 1024 to 1048576, not 3000",
        ),
        ({"psum": {"bank_bytes": 100}}, r"psum.bank_bytes must be a power of two from 256 to 4096, not 100"),
        ({"memory": {"channels": 3}}, r"memory.channels must be 1, 2, 4 or 8, not 3"),
        ({"memory": {"bytes": 1000}}, r"memory.bytes must be a power of two"),
        ({"name": "1 2"}, r"name must be letters, digits"),
    ],
)
def test_bad_values_name_key_value_and_choice(change, message):
    with pytest.raises(ConfigError, match=message):
        config.from_dict(base(**change))


def test_missing_key():
    with pytest.raises(ConfigError, match=r"missing key 'cores'"):
        config.from_dict({"name": "x", "partitions": 8})


def test_unknown_preset_lists_the_presets():
    with pytest.raises(
        ConfigError,
        match=r"preset must be one of nano, mini, small, gen3 or a path to a .toml file, not 'huge'",
    ):
        config.find("huge")
    with pytest.raises(ConfigError, match=r"cannot read configuration 'no/such.toml'"):
        config.find("no/such.toml")


def test_file_errors_name_the_file(tmp_path):
    path = tmp_path / "odd.toml"
    path.write_text("partitions = 8\ncores = 1\nspeed = 3\n")
    with pytest.raises(ConfigError, match=r"odd.toml: unknown key 'speed'"):
        config.find(str(path))
    path.write_text("partitions = = 8\n")
    with pytest.raises(ConfigError, match=r"odd.toml: not TOML"):
        config.find(str(path))
    path.write_text("partitions = 8\ncores = 1\n")
    assert config.find(str(path)).name == "odd"
