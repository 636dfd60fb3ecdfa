"""Channels: latency, a beat a cycle, answers in order, in turn, one channel at a time for a port."""

from models.config import find
from models.timing.clock import ACT, Clock
from models.timing.memory import PAGE, Memory, Write, Writes


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


def test_what_is_shown_stays_while_a_channel_takes_no_more():
    """15 bursts of port 2 and one of port 0 fill the channel; then it would be the turn of port 0, but port 1 has been shown before."""
    early = [(2, 1, 128 * i) for i in range(15)] + [(0, 1, 0)]
    assert [p for p, _ in bursts([*early, (0, 24, 0), (1, 26, 0)])[16:]] == [0, 1]
    assert [p for p, _ in bursts([*early, (1, 24, 0), (0, 26, 0)])[16:]] == [1, 0]


def writes(asked, beats=8):
    """(port, first cycle in which its beats may go) of write bursts [(port, cycle of its address)], in the order of their turns."""
    clock, seen = Clock(10_000), []
    channel = Writes(clock)

    def ask(port, cycle):
        def opened():
            seen.append((port, write.open))
            clock.at(max(clock.now, write.open), ACT, lambda: channel.over(write.open + beats - 1))

        write = Write(port, opened)
        channel.request(cycle, write)

    for port, cycle in asked:
        ask(port, cycle)
    clock.run()
    return seen


def test_data_goes_in_the_order_of_the_addresses():
    assert writes([(0, 5), (1, 8), (0, 9)]) == [(0, 7), (1, 15), (0, 23)]
    assert writes([(1, 5), (0, 40)]) == [(1, 7), (0, 42)]


def test_addresses_of_one_cycle_go_in_turn():
    assert writes([(1, 5), (0, 5), (2, 5)]) == [(0, 7), (1, 15), (2, 23)]
    assert [p for p, _ in writes([(1, 2), (0, 5), (2, 5), (1, 5)])] == [1, 2, 0, 1]
