"""Databases for tests: SQLite in a file, and PostgreSQL from a real server that is started when it is first needed."""

import atexit
import functools
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
import pytest

KINDS = ("sqlite", "postgresql")
_numbers = itertools.count()


def make_url(kind, folder):
    """The URL of a new, empty database."""
    if kind == "sqlite":
        return f"sqlite:///{folder / 'store.sqlite'}"
    where, name = _server(), f"test{next(_numbers)}"
    with psycopg.connect(host=where, user="postgres", dbname="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"postgresql+psycopg://postgres@/{name}?host={where}"


@functools.cache
def _server():
    """The folder with the socket of a PostgreSQL server, which ends with this process."""
    binaries = next((path.parent for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)), None)
    found = shutil.which("initdb") or (binaries and binaries / "initdb")
    if not found:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    start = []
    if os.geteuid() == 0:  # it does not run as root
        shutil.chown(folder, "postgres", "postgres")
        start = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    subprocess.run([*start, found, "-D", folder / "data", "-A", "trust", "-U", "postgres", "--no-sync"], check=True, **quiet)
    settings = {"listen_addresses": "", "unix_socket_directories": folder, "fsync": "off"}
    options = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
    server = subprocess.Popen([*start, Path(found).with_name("postgres"), "-D", folder / "data", *options], **quiet)
    atexit.register(_stop, server, folder)
    for _ in range(200):
        try:
            psycopg.connect(host=str(folder), user="postgres", dbname="postgres").close()
            return str(folder)
        except psycopg.OperationalError:
            time.sleep(0.1)
    raise RuntimeError("PostgreSQL did not start")


def _stop(server, folder):
    server.terminate()
    server.wait()
    shutil.rmtree(folder, ignore_errors=True)
