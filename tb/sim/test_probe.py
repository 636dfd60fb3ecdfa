"""A job under cocotb, with memories of cocotbext-axi: the same outputs as in process."""

from models.formats import DType
from sim.probe import run_under_cocotb
from sim.probe_bench import PAGE, ChannelView
from sim.run import run_image
from tb.sim.images import NANO, gemm_job


def test_the_same_outputs_as_in_process():
    image = gemm_job(DType.BF16, (13, 5, 3), 1)[0].image
    done = run_under_cocotb(NANO, image)
    here = run_image(NANO, image)
    assert done.outputs == b"".join(data for _, data in here.outputs.segments)
    assert here.cycles / 2 < done.cycles < here.cycles * 2
    assert done.rate > 0


def test_channels_take_turns():

    data = bytearray(range(256)) * (4 * PAGE // 256)
    views = [ChannelView(data, c, 2) for c in range(2)]
    assert len(views[0]) == 2 * PAGE
    views[1][PAGE + 3 : PAGE + 5] = b"\xaa\xbb"
    assert data[3 * PAGE + 3 : 3 * PAGE + 5] == b"\xaa\xbb"
    assert views[1][PAGE + 2 : PAGE + 6] == bytes([2, 0xAA, 0xBB, 5])
    assert views[0][PAGE : PAGE + 2] == bytes(data[2 * PAGE : 2 * PAGE + 2])
