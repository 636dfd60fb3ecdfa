"""What stops a core of the functional model."""

from models.isa import ErrorCode


class Fault(Exception):  # noqa: N818 - the field's word for it
    """An instruction that stops its core: cause and address."""

    def __init__(self, code: ErrorCode, addr: int = 0):
        super().__init__(f"{code.name} at {addr:#x}")
        self.code, self.addr = code, addr


def legal(ok: bool) -> None:
    """Raise Fault ILLEGAL_FIELD unless `ok`."""
    if not ok:
        raise Fault(ErrorCode.ILLEGAL_FIELD)
