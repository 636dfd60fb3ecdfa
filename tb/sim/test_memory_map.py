"""The memory map says what the registers and the packet addresses are, in three forms that agree."""

import re

from models import addressing, registers
from models.config import find
from models.isa import Space
from sim.memory_map import c_header, markdown, memory_map

MINI = find("mini")


def test_every_register_of_every_core_once():
    rows = memory_map(MINI)["registers"]
    names = [r["name"] for r in rows]
    assert len(set(names)) == len(names)
    assert len({r["address"] for r in rows}) == len(rows)
    by_name = {r["name"]: r["address"] for r in rows}
    assert by_name["MAGIC"] == registers.CHIP["MAGIC"]
    for core in range(MINI.cores):
        for r in registers.CORE_REGISTERS:
            assert by_name[f"CORE{core}_{r.name}"] == registers.core_register(core, r.name)


def test_spaces_are_those_of_the_packet_address():
    spaces = {s["name"]: s for s in memory_map(MINI)["spaces"]}
    assert spaces["MEMORY"]["bytes"] == MINI.memory.bytes
    last = spaces[f"CORE{MINI.cores - 1}_SBUF"]
    assert last["bytes"] == MINI.sbuf.bytes_per_partition
    for partition in (0, MINI.partitions - 1):
        want = addressing.core_address(MINI.cores - 1, Space.SBUF, partition, 0)
        assert last["address"] + partition * last["stride"] == want


def test_header_and_page_hold_the_same_addresses():
    rows = memory_map(MINI)["registers"]
    header = dict(re.findall(r"#define TESELA_(\w+) 0x([0-9a-f]+)u$", c_header(MINI), re.MULTILINE))
    page = dict(re.findall(r"^\| `0x([0-9a-f]+)` \| (\w+) \|", markdown(MINI), re.MULTILINE))
    assert {n: int(a, 16) for n, a in header.items()} == {r["name"]: r["address"] for r in rows}
    assert {n: int(a, 16) for a, n in page.items() if n in header} == {r["name"]: r["address"] for r in rows}
