"""Walls around a process that runs a stranger's model: what it could do before, it can do no more.

A process walls itself in, with what the kernel offers; no privileges are needed. Resource limits are there on every system that
we run on, the other walls on Linux only. :func:`confine` says which ones stand.
"""

import ctypes
import os
import platform
import struct
import sys

if sys.platform != "win32":
    import resource

WALLS = {
    "limits": "memory, time, files and processes are limited",
    "namespaces": "no network, and no user, mount or message queue of the machine",
    "capabilities": "none, not even root's",
    "landlock": "no file can be opened, made or removed",
    "seccomp": "no system calls but those for computing, memory and pipes that are open",
}
"""The kinds of wall, and what each is for."""
ENOUGH = (frozenset({"seccomp"}), frozenset({"namespaces", "landlock"}))
"""Walls of which one group at least must stand around a policy that sees secret patients."""
_NEW_USER, _NEW_REST = 0x10000000, 0x40000000 | 0x08000000 | 0x04000000 | 0x02000000 | 0x00020000  # net, ipc, uts, cgroup, mount
_NO_NEW_PRIVILEGES, _DIE_WITH_PARENT, _KILL = 38, 1, 9
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # how many there are, by Landlock's version; 16 from version 5
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # the column below, and the kernel's name for it
_INSTALL = (317, 277)  # the call that installs a filter
# The system calls that are allowed. None opens anything, names another process, or starts one.
_ALLOWED = {
    **{"read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62)},
    **{"mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216), "madvise": (28, 233)},
    **{"rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132)},
    **{"clock_gettime": (228, 113), "clock_nanosleep": (230, 115), "restart_syscall": (219, 128), "sched_yield": (24, 124)},
    **{"sched_getaffinity": (204, 123), "getcpu": (309, 168), "getpid": (39, 172), "gettid": (186, 178), "futex": (202, 98)},
    **{"getrandom": (318, 278), "getrusage": (98, 165), "exit": (60, 93), "exit_group": (231, 94)},
}
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_ABOVE, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1  # the call fails with EPERM


def confine(memory: int, seconds: int) -> list[str]:
    """Wall in this process for good, and close all its files but the first three.

    Args:
        memory: bytes of address space that it may have.
        seconds: of processor time.

    Returns:
        The walls that stand, of :data:`WALLS`.
    """
    os.closerange(3, 2**16)
    walls, libc = dict[str, bool](), None
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_DIE_WITH_PARENT, _KILL, 0, 0, 0)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        walls["namespaces"] = _namespaces(libc)
        walls["capabilities"] = libc.capset(struct.pack("Ii", 0x20080522, 0), bytes(24)) == 0
        walls["landlock"] = _landlock(libc)
    walls["limits"] = _limit(memory, seconds)  # from here on no file can be opened, even by us
    walls["seccomp"] = libc is not None and _seccomp(libc)
    return [name for name in WALLS if walls.get(name)]


def _limit(memory: int, seconds: int) -> bool:
    limits = dict.fromkeys(("FSIZE", "CORE", "NPROC", "MEMLOCK", "MSGQUEUE"), 0) | {"AS": memory, "CPU": seconds, "NOFILE": 3}
    done = []
    for name, value in limits.items():
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is not None:
            try:
                resource.setrlimit(number, (value, value))
                done.append(name)
            except (ValueError, OSError):  # macOS refuses some of them
                continue
    return {"AS", "CPU", "FSIZE"} <= set(done)


def _namespaces(libc: ctypes.CDLL) -> bool:
    """Leave those of the machine: as any user where the kernel allows it, else as root only."""
    return bool(libc.unshare(_NEW_USER | _NEW_REST) == 0 or libc.unshare(_NEW_REST) == 0)


def _landlock(libc: ctypes.CDLL) -> bool:
    """Take away every right to files, to the network, and to reach other processes that this kernel's Landlock knows."""
    version = libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return False
    files = 2 ** _FILE_RIGHTS.get(version, 16) - 1
    rights = struct.pack("QQQ", files, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    rules = libc.syscall(_LANDLOCK_CREATE, rights, ctypes.c_size_t(8 if version < 4 else 16 if version < 6 else 24), 0)
    if rules < 0:
        return False
    done = libc.syscall(_LANDLOCK_RESTRICT, rules, 0) == 0
    os.close(rules)
    return bool(done)


def _seccomp(libc: ctypes.CDLL) -> bool:
    """Let every system call fail that is not in the list."""
    if platform.machine() not in _MACHINES or struct.calcsize("P") != 8:
        return False
    column, architecture = _MACHINES[platform.machine()]
    count = len(_ALLOWED)
    lines = [
        (_LOAD, 0, 0, 4),
        (_JUMP_IF_EQUAL, 0, count + 2, architecture),  # else refuse
        (_LOAD, 0, 0, 0),
        (_JUMP_IF_ABOVE, count, 0, 0x40000000),  # the other numbering of x86
        *((_JUMP_IF_EQUAL, count - place, 0, numbers[column]) for place, numbers in enumerate(_ALLOWED.values())),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = struct.pack("HP", len(lines), ctypes.addressof(code))
    return bool(libc.syscall(_INSTALL[column], 1, 1, program) == 0)  # for all threads
