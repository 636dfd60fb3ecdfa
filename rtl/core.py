"""One core: memories, engines, DMA, sequencers and control, composed. No arithmetic here."""

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out, connect, flipped

from models.config import ChipConfig
from models.isa import Engine
from rtl.control.errors import ErrorConfig, ErrorUnit
from rtl.control.fetch import FetchConfig, InstructionFetch
from rtl.control.registers import CoreRegisters
from rtl.control.semaphores import SemaphoreConfig, SemaphoreUnit
from rtl.control.sequencer import Sequencer, SequencerConfig
from rtl.dma.engine import DmaEngine
from rtl.interfaces import BurstReadSignature, BurstWriteSignature, CoreControlSignature
from rtl.lib.arbiter import StreamArbiter
from rtl.memory.psum import Psum
from rtl.memory.sbuf import Sbuf
from rtl.tensor.engine import TensorEngine
from rtl.tiles import ClockedTile, TileLibrary
from rtl.vector.engine import VectorEngine

READERS = len(Engine) + 1
"""Burst read ports of a core: one instruction fetch an engine, then DMA."""
WRITERS = 1
"""Burst write ports of a core: DMA."""
