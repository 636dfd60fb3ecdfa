"""Channels: latency, a beat a cycle, answers in order, in turn, one channel at a time for a port."""

from models.config import find
from models.timing.clock import ACT, Clock
from models.timing.memory import PAGE, Memory


def bursts(requests, channels_of="mini", beats=8):
    """(port, first cycle) of the bursts of [(port, cycle, address)], in the order of their first beats."""
    clock, seen = Clock(10_000), []
    memory = Memory(find(channels_of), clock, 20)
    ports = [memory.port() for _ in range(3)]

    def deliver(port):
        def call(first, ends):
            seen.append((port, first))
            ends(first + beats - 1)

        return call

    for port, cycle, address in requests:
        clock.at(cycle, ACT, lambda p=port, a=address: ports[p].request(clock.now, a, deliver(p)))
    clock.run()
    return seen


def test_one_after_the_other():
    assert bursts([(0, 5, 0), (0, 5, 128)]) == [(0, 25), (0, 33)]


def test_in_turn():
    assert bursts([(0, 5, 0), (0, 5, 128), (1, 5, 256), (2, 5, 512)]) == [(0, 25), (1, 33), (2, 41), (0, 49)]


def test_channels_work_side_by_side():
    assert bursts([(0, 5, 0), (1, 5, PAGE)]) == [(0, 25), (1, 25)]


def test_a_port_waits_before_it_turns_to_another_channel():
    assert bursts([(0, 5, 0), (0, 5, PAGE)]) == [(0, 25), (0, 53)]
    assert bursts([(0, 5, 0), (0, 5, PAGE)], "nano") == [(0, 25), (0, 33)]
