"""Sequencer: runs one engine's instruction stream: check, wait, issue, update, branch."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from amaranth import C, Module, Mux, Signal, Value, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from models.flow import DYNAMIC
from models.isa import (
    CONTROL,
    OPS,
    REGISTERS,
    Cond,
    Engine,
    ErrorCode,
    Opcode,
    RegOp,
    UpdateMode,
    WaitMode,
    dynamic_operands,
)
from rtl.control.fetch import FetchedLayout
from rtl.control.register_file import RegisterFile
from rtl.interfaces import ErrorLayout, IssueLayout, UpdateLayout
from rtl.tiles import TileLibrary

OUTSTANDING_BITS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class SequencerConfig:
    """The engine whose stream it runs, and how many semaphores there are."""

    engine: Engine
    semaphores: int


class Sequencer(wiring.Component):
    """Members
    -------
    start, stop: one cycle each. `stop` (or `halted`, by itself) also tells the fetch to forget what it has.
    address: 64-bit PROGRAM address, for the addresses of fetch errors; looked at in the cycle of `start` only.
    fetched: FetchedLayout stream.
    engine: IssueLayout stream to the engine, `engine_done` pulses with each of its updates. dma, dma_done: the same for DMA.
    update: UpdateLayout stream of what is not issued.
    wait_sem, wait_value: the semaphore looked at, and its value.
    jump, jump_to: a branch was taken: the fetch must go on with this instruction.
    spinning: since a branch was taken nothing has been issued.
    running; halted: a pulse with HALT's end; waiting: a semaphore is not there yet; index: of the instruction to issue next.
    error_valid, error: one cycle. The sequencer then does nothing until `stop`.

    An instruction takes 4 cycles when nothing holds it up; after a taken branch it may wait for the fetch. HALT waits for the engine's
    instructions and DMAs that this stream issued, a NOP, REGISTER or BRANCH with an update for the engine's instructions alone.
    """

    def __init__(self, config: SequencerConfig, *, tiles: TileLibrary):
        self.config, self.tiles = config, tiles
        super().__init__(
            {
                "start": In(1),
                "stop": In(1),
                "address": In(64),
                "fetched": In(stream.Signature(FetchedLayout())),
                "engine": Out(stream.Signature(IssueLayout())),
                "engine_done": In(1),
                "dma": Out(stream.Signature(IssueLayout())),
                "dma_done": In(1),
                "update": Out(stream.Signature(UpdateLayout())),
                "wait_sem": Out((config.semaphores - 1).bit_length()),
                "wait_value": In(signed(32)),
                "running": Out(1),
                "halted": Out(1),
                "waiting": Out(1),
                "spinning": Out(1),
                "jump": Out(1),
                "jump_to": Out(32),
                "index": Out(32),
                "error_valid": Out(1),
                "error": Out(ErrorLayout()),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        head = Signal(FetchedLayout())
        instr = head.instr
        index = Signal(32)
        base = Signal(64)  # the host may write PROGRAM for the next run while this one goes on
        running = Signal()
        engine_left, dma_left = Signal(OUTSTANDING_BITS), Signal(OUTSTANDING_BITS)
        m.submodules.registers = registers = self.tiles.place(RegisterFile, None)
        spinning, taken = Signal(), Signal()
        code = Signal(8)
        to_engine, to_dma = Signal(), Signal()
        m.d.comb += [
            self.running.eq(running),
            self.index.eq(index),
            self.spinning.eq(running & spinning),
            self.jump_to.eq(instr.target),
            registers.instr.eq(instr),
            registers.clear.eq(self.start),
            self.wait_sem.eq(instr.wait_sem),
            code.eq(self._check(instr, head.error)),
            self.error.code.eq(code),
            self.error.engine.eq(self.config.engine.value),
            self.error.index.eq(index),
            self.error.addr.eq(Mux(head.error, (base + (index << 7))[:64], 0)),
            self.update.payload.mode.eq(instr.update_mode),
            self.update.payload.sem.eq(instr.update_sem),
            self.update.payload.value.eq(instr.update_value),
        ]
        for port in (self.engine, self.dma):
            m.d.comb += [
                port.payload.instr.eq(instr),
                port.payload.index.eq(index),
                port.payload.engine.eq(self.config.engine.value),
            ]
        m.d.comb += [
            to_engine.eq(self.engine.valid & self.engine.ready),
            to_dma.eq(self.dma.valid & self.dma.ready),
        ]
        m.d.sync += [
            engine_left.eq(engine_left + to_engine - self.engine_done),
            dma_left.eq(dma_left + to_dma - self.dma_done),
        ]
        with m.FSM():
            with m.State("HEAD"):
                m.d.comb += self.fetched.ready.eq(running & ~self.stop)
                with m.If(self.fetched.valid & self.fetched.ready):
                    m.d.sync += head.eq(self.fetched.payload)
                    m.next = "CHECK"
            with m.State("CHECK"):
                with m.If(self.stop):
                    m.next = "HEAD"
                with m.Elif(code == ErrorCode.NONE):
                    with m.If(~self._any(instr.opcode, CONTROL)):
                        m.d.sync += instr.as_value().eq(registers.indexed)
                    m.next = "WAIT"
                with m.Else():
                    m.d.comb += self.error_valid.eq(1)
                    m.next = "DEAD"
            with m.State("WAIT"):
                met = (instr.wait_mode == WaitMode.NONE) | (self.wait_value >= instr.wait_value)
                m.d.comb += self.waiting.eq(~met)
                with m.If(self.stop):
                    m.next = "HEAD"
                with m.Elif(met):
                    m.next = "ISSUE"
            with m.State("ISSUE"):
                self._issue(m, instr, engine_left, dma_left, registers)
                m.d.sync += taken.eq((instr.opcode == Opcode.BRANCH) & registers.taken)
                with m.If(self.stop):
                    m.next = "HEAD"
            with m.State("NEXT"):
                m.d.sync += index.eq(Mux(taken, instr.target, index + 1))
                with m.If(taken & ~self.stop):
                    m.d.comb += self.jump.eq(1)
                    m.d.sync += spinning.eq(1)
                m.next = "HEAD"
            with m.State("DEAD"):
                m.d.sync += running.eq(0)
                with m.If(self.stop):
                    m.next = "HEAD"
        with m.If(to_engine | to_dma | self.start):
            m.d.sync += spinning.eq(0)
        with m.If(self.halted):
            m.d.sync += running.eq(0)
        with m.If(self.start):
            m.d.sync += [running.eq(1), index.eq(0), base.eq(self.address)]
        with m.If(self.stop):
            m.d.sync += [running.eq(0), engine_left.eq(0), dma_left.eq(0)]
        return m

    def _check(self, instr: Any, fetch_error: Value) -> Value:
        """Header rules of models.machine; the engine checks the rest."""
        mine = [op for op, info in OPS.items() if self.config.engine in info.engines]
        known = reduce(or_, [instr.opcode == op.value for op in mine])
        n = self.config.semaphores

        def sem_ok(mode: Value, sem: Value) -> Value:
            return (mode == 0) | (sem < n) if n < 256 else C(1, 1)

        legal = (
            (instr.wait_mode <= max(WaitMode).value)
            & (instr.update_mode <= max(UpdateMode).value)
            & self._flow_legal(instr)
            & sem_ok(instr.wait_mode, instr.wait_sem)
            & sem_ok(instr.update_mode, instr.update_sem)
        )
        return Mux(
            fetch_error,
            ErrorCode.FETCH_ERROR.value,
            Mux(known, Mux(legal, 0, ErrorCode.ILLEGAL_FIELD.value), ErrorCode.ILLEGAL_OPCODE.value),
        )

    @staticmethod
    def _any(opcode: Value, among: Iterable[Opcode]) -> Value:
        return reduce(or_, [opcode == op.value for op in among])

    def _flow_legal(self, instr: Any) -> Value:
        """models.flow.check."""
        mine = [op for op, info in OPS.items() if self.config.engine in info.engines]
        ok: Value = C(1, 1)
        for name in DYNAMIC:
            able = [op for op in mine if name in dynamic_operands(op)]
            number = instr[f"dyn_{name}"]
            allowed = self._any(instr.opcode, able) & (number < REGISTERS) if able else C(0, 1)
            ok &= (number == 0) | allowed
        sources = (instr.ra < REGISTERS) & (instr.rb < REGISTERS) & (instr.use_imm <= 1)
        target = (instr.reg_op <= max(RegOp).value) & (instr.rd != 0) & (instr.rd < REGISTERS)
        ok &= (instr.opcode != Opcode.REGISTER) | (sources & target)
        ok &= (instr.opcode != Opcode.BRANCH) | (sources & (instr.cond <= max(Cond).value))
        return ok

    def _issue(self, m: Module, instr: Any, engine_left: Signal, dma_left: Signal, registers: Any) -> None:
        full = (1 << OUTSTANDING_BITS) - 1
        quiet = engine_left == 0
        silent = instr.update_mode == UpdateMode.NONE
        with m.Switch(instr.opcode):
            with m.Case(Opcode.DMA.value):
                m.d.comb += self.dma.valid.eq(~self.stop & (dma_left != full))
                with m.If(self.dma.valid & self.dma.ready):
                    m.next = "NEXT"
            with m.Case(Opcode.NOP.value, Opcode.REGISTER.value, Opcode.BRANCH.value):
                m.d.comb += self.update.valid.eq(~silent & quiet & ~self.stop)
                with m.If(silent | (self.update.valid & self.update.ready)):
                    m.d.comb += registers.write.eq((instr.opcode == Opcode.REGISTER) & ~self.stop)
                    m.next = "NEXT"
            with m.Case(Opcode.HALT.value):
                m.d.comb += self.update.valid.eq(quiet & (dma_left == 0) & ~self.stop)
                with m.If(self.update.valid & self.update.ready):
                    m.d.comb += self.halted.eq(1)
                    m.next = "NEXT"
            with m.Default():
                m.d.comb += self.engine.valid.eq(~self.stop & (engine_left != full))
                with m.If(self.engine.valid & self.engine.ready):
                    m.next = "NEXT"
