"""What everything that adds instructions to a stream rests on."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from models.access import AccessPattern
from models.isa import Opcode


@dataclass(frozen=True, slots=True)
class Register:
    """A register of one stream's sequencer, from 1 to isa.REGISTERS - 1."""

    number: int


class Emitter(ABC):
    """Something that instructions can be appended to."""

    @abstractmethod
    def emit(
        self,
        opcode: Opcode,
        fields: dict[str, int] | None = None,
        aps: dict[str, AccessPattern] | None = None,
        *,
        wait: Any = None,
        update: Any = None,
        dynamic: dict[str, Register] | None = None,
    ) -> int:
        """Append an instruction; returns its index."""
