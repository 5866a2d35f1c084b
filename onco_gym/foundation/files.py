"""Atomic files: a file is written completely or not at all."""

import errno
import json
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary file that replaces ``path`` if the block succeeds.

    A new file follows the umask; an existing one keeps its mode. A link stays, and the file it points to is replaced.
    Pipes, devices and the file behind standard output are written to, not replaced.

    Raises:
        OSError: if ``path`` is a folder, its folder does not exist, or it cannot be written.
    """
    target = replaced(path)
    if target is None:
        with tempfile.TemporaryDirectory() as folder:
            temporary = Path(folder) / "content"
            temporary.touch()
            yield temporary
            _copy(temporary, path)
        return
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    try:
        temporary.touch(0o666 if mode is None else 0o600, exist_ok=False)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        yield temporary
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write plain values as JSON, atomically. Numbers must be finite."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def replaced(path: str | os.PathLike[str]) -> Path | None:
    """The file that :func:`replacing` would replace, with links resolved; None if it would write to ``path`` directly."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    return Path(os.path.realpath(path)) if (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) and _stream(path) is None else None


def _stream(path: str | os.PathLike[str]) -> int | None:
    """The handle of standard output or standard error if it writes to ``path``, as it does to /dev/stdout; else None."""
    for handle in (1, 2):
        with suppress(OSError):  # the stream may be closed, and the path may not exist
            if os.path.samestat(os.stat(path), os.fstat(handle)):
                return handle
    return None


def _copy(source: Path, path: str | os.PathLike[str]) -> None:
    stream = _stream(path)  # reopening the file would overwrite what was printed
    if stream is not None and sys.stdout is not None:
        sys.stdout.flush()
    try:
        with source.open("rb") as content, open(path if stream is None else stream, "wb", closefd=stream is None) as into:
            shutil.copyfileobj(content, into)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
