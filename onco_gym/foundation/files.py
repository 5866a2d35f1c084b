"""Files are written whole or not at all."""

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
    """A temporary file to write to; it takes the place of ``path`` if nothing went wrong.

    A new file follows the umask, and one that was there keeps its mode. A link stays: the file that it points to is replaced.
    A pipe, a device and the file that standard output goes to are not replaced, but written to.

    Raises:
        OSError: if ``path`` is a folder, is in none, or cannot be written.
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
    """Write plain values as JSON, whole or not at all. Numbers must be finite."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def replaced(path: str | os.PathLike[str]) -> Path | None:
    """What :func:`replacing` puts a file in the place of, links followed; None where it writes to what is there."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    return Path(os.path.realpath(path)) if (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) and _stream(path) is None else None


def _stream(path: str | os.PathLike[str]) -> int | None:
    """Standard output or standard error, if ``path`` is what it goes to, as /dev/stdout always is."""
    for handle in (1, 2):
        with suppress(OSError):  # it may be closed, and there need not be anything at the path
            if os.path.samestat(os.stat(path), os.fstat(handle)):
                return handle
    return None


def _copy(source: Path, path: str | os.PathLike[str]) -> None:
    stream = _stream(path)  # a file that were opened anew would lose what was printed
    if stream is not None and sys.stdout is not None:
        sys.stdout.flush()
    try:
        with source.open("rb") as content, open(path if stream is None else stream, "wb", closefd=stream is None) as into:
            shutil.copyfileobj(content, into)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
