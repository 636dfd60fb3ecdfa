"""A core's registers: models.registers.CORE_REGISTERS and the semaphore windows."""

from typing import Any

from amaranth import Cat, Module, Signal, signed, unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from models import registers
from models.config import ChipConfig
from models.isa import Engine, UpdateMode
from models.registers import CORE
from rtl.interfaces import CoreControlSignature, ErrorLayout, UpdateLayout
from rtl.tiles import ClockedTile, TileLibrary

COUNTERS = ("CYCLES", "COLUMNS", "DMA_BUSY", *(f"BUSY_{e.name}" for e in Engine))
WINDOWS = {
    registers.SEM_READ: None,
    registers.SEM_SET: UpdateMode.SET,
    registers.SEM_ADD: UpdateMode.ADD,
    registers.SEM_SUB: UpdateMode.SUB,
}
ENGINES = len(Engine)


def counter_offsets(name: str) -> tuple[int, int]:
    """Offsets of a 64-bit counter's low and high word."""
    stem, _, engine = name.partition("_") if name.startswith("BUSY") else (name, "", "")
    low, high = (f"{stem}_{part}_{engine}" if engine else f"{name}_{part}" for part in ("LO", "HI"))
    return CORE[low], CORE[high]


class CoreRegisters(ClockedTile):
    """Members
    -------
    control: CoreControlSignature: one access at a time, answered 2 cycles later, updates of semaphores when they have been made.
    start: a bit an engine, one cycle, of those that stood still. program: the PROGRAM addresses. watchdog: its limit.
    clear, clear_semaphores: one cycle each.
    running, index: of each sequencer. dma_busy, busy (any engine or DMA, or fetch bursts under way), failed, first: state shown.
    count: counters that go up this cycle, in the order of COUNTERS after CYCLES.
    sem, sem_value: semaphore looked at. update: host's semaphore operation (stream).
    """

    def __init__(self, config: ChipConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        sem_bits = (config.core.semaphores - 1).bit_length()
        super().__init__(
            {
                "control": Out(CoreControlSignature()),
                "start": Out(ENGINES),
                "program": Out(data.ArrayLayout(unsigned(64), ENGINES)),
                "watchdog": Out(32),
                "clear": Out(1),
                "clear_semaphores": Out(1),
                "running": In(ENGINES),
                "index": In(data.ArrayLayout(unsigned(32), ENGINES)),
                "dma_busy": In(1),
                "busy": In(1),
                "failed": In(1),
                "first": In(ErrorLayout()),
                "count": In(len(COUNTERS) - 1),
                "sem": Out(sem_bits),
                "sem_value": In(signed(32)),
                "update": Out(stream.Signature(UpdateLayout())),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        req = Signal(self.control.req.payload.shape())
        core_runs, was_running, started = Signal(), Signal(), Signal()
        m.d.comb += [
            core_runs.eq(self.running.any() | self.busy),
            self.control.running.eq(core_runs),
            self.control.error.eq(self.failed),
        ]
        m.d.sync += was_running.eq(core_runs)

        write, read = Signal(), Signal()  # an access that is being done, in one cycle
        strobe_ok = req.strb == 0xF
        clear_counters = Signal()
        program = Signal(data.ArrayLayout(unsigned(64), ENGINES))
        watchdog = Signal(32)
        m.d.comb += [self.program.eq(program), self.watchdog.eq(watchdog)]
        with m.If(self.start.any()):
            m.d.sync += started.eq(1)
        with m.If(self.clear):
            m.d.sync += started.eq(0)

        value, known = Signal(32), Signal()
        status = Cat(
            self.running,
            Signal(8 - ENGINES),
            self.dma_busy,
            Signal(7),
            self.failed,
            started & ~core_runs & ~self.failed,
        )
        latched = self._counters(m, core_runs, was_running, clear_counters, req, read)
        first = self.first
        readable: dict[str, Any] = {
            "STATUS": status,
            "WATCHDOG": watchdog,
            "ERR_CODE": first.code,
            "ERR_ENGINE": first.engine,
            "ERR_INDEX": first.index,
            "ERR_ADDR_LO": first.addr[:32],
            "ERR_ADDR_HI": first.addr[32:],
        }
        for e in Engine:
            readable |= {
                f"PROGRAM_LO_{e.name}": program[e][:32],
                f"PROGRAM_HI_{e.name}": program[e][32:],
                f"INDEX_{e.name}": self.index[e],
            }
        writable = [r.name for r in registers.CORE_REGISTERS if r.access in ("rw", "wo")]
        page = req.addr >> 12
        sem_window, sem_number = Signal(), req.addr[2:12]
        m.d.comb += [
            self.sem.eq(sem_number),
            sem_window.eq((page >= 1) & (page <= len(WINDOWS)) & (sem_number < self.config.core.semaphores)),
        ]
        aligned = req.addr[:2] == 0
        with m.If(~req.write):
            with m.If(sem_window):
                m.d.comb += [value.eq(self.sem_value), known.eq(aligned)]
            with m.Else(), m.Switch(req.addr):
                for name, source in readable.items():
                    with m.Case(CORE[name]):
                        m.d.comb += [value.eq(source), known.eq(1)]
                for name in ("DOORBELL", "CLEAR"):
                    with m.Case(CORE[name]):
                        m.d.comb += known.eq(1)
                for name, (low, high) in latched.items():
                    for half, part in zip(counter_offsets(name), (low, high), strict=True):
                        with m.Case(half):
                            m.d.comb += [value.eq(part), known.eq(1)]
        with m.Else():
            with m.If(sem_window):
                m.d.comb += known.eq(aligned & (page != 1) & strobe_ok)
            with m.Else(), m.Switch(req.addr):
                with m.Case(*(CORE[name] for name in writable)):
                    m.d.comb += known.eq(strobe_ok)
        with m.If(write & known):
            with m.Switch(req.addr):
                with m.Case(CORE["DOORBELL"]):
                    m.d.comb += self.start.eq(
                        req.data[:ENGINES] & ~self.running & ~self.failed.replicate(ENGINES)
                    )
                with m.Case(CORE["CLEAR"]):
                    m.d.comb += [
                        self.clear.eq(req.data[0]),
                        clear_counters.eq(req.data[1]),
                        self.clear_semaphores.eq(req.data[2]),
                    ]
                with m.Case(CORE["WATCHDOG"]):
                    m.d.sync += watchdog.eq(req.data)
                for e in Engine:
                    with m.Case(CORE[f"PROGRAM_LO_{e.name}"]):
                        m.d.sync += program[e][:32].eq(req.data)
                    with m.Case(CORE[f"PROGRAM_HI_{e.name}"]):
                        m.d.sync += program[e][32:].eq(req.data)
        self._access(m, req, write, read, value, known, sem_window, page)
        return m

    def _access(
        self,
        m: Module,
        req: Any,
        write: Signal,
        read: Signal,
        value: Signal,
        known: Signal,
        sem_window: Signal,
        page: Any,
    ) -> None:
        """One access at a time: take it, do it, answer."""
        control = self.control
        rsp = Signal(control.rsp.payload.shape())
        m.d.comb += [
            control.rsp.payload.eq(rsp),
            self.update.payload.sem.eq(self.sem),
            self.update.payload.value.eq(req.data),
        ]
        with m.Switch(page):
            for offset, mode in WINDOWS.items():
                if mode is not None:
                    with m.Case(offset >> 12):
                        m.d.comb += self.update.payload.mode.eq(mode)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += control.req.ready.eq(1)
                with m.If(control.req.valid):
                    m.d.sync += req.eq(control.req.payload)
                    m.next = "DO"
            with m.State("DO"):
                operate = req.write & sem_window & known
                m.d.comb += [
                    write.eq(req.write & ~sem_window),
                    read.eq(~req.write),
                    self.update.valid.eq(operate),
                ]
                m.d.sync += [rsp.data.eq(value), rsp.error.eq(~known)]
                with m.If(~operate | self.update.ready):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += control.rsp.valid.eq(1)
                with m.If(control.rsp.ready):
                    m.next = "IDLE"

    def _counters(
        self, m: Module, core_runs: Signal, was_running: Signal, clear: Signal, req: Any, read: Signal
    ) -> dict[str, tuple[Any, Any]]:
        """64-bit counters; reading a low word keeps the high one for the next read."""
        out = {}
        ticks = [core_runs, *(self.count[i] for i in range(len(COUNTERS) - 1))]
        for name, tick in zip(COUNTERS, ticks, strict=True):
            counter = Signal(64, name=f"counter_{name.lower()}")
            high = Signal(32, name=f"high_{name.lower()}")
            with m.If(clear):
                m.d.sync += counter.eq(0)
            with m.Elif(tick):
                if name == "CYCLES":
                    with m.If(was_running):
                        m.d.sync += counter.eq(counter + 1)
                    with m.Else():
                        m.d.sync += counter.eq(1)
                else:
                    m.d.sync += counter.eq(counter + 1)
            # only in the cycle that takes the low word: `req` keeps its address until the next access
            with m.If(read & (req.addr == counter_offsets(name)[0])):
                m.d.sync += high.eq(counter[32:])
            out[name] = (counter[:32], high)
        return out
