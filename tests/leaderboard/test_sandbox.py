"""The sandbox: what runs in it can do nothing but compute, and whatever it does ends in one clear error."""

import ctypes
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from policy_files import CHOICES, FEATURES, file, recurrent

from onco_gym.agents import AgentError, OnnxAgent, rollout, save_mlp_onnx
from onco_gym.interfaces.engine import make_engine
from onco_gym.leaderboard import processes
from onco_gym.leaderboard.confinement import WALLS
from onco_gym.leaderboard.judging import questions
from onco_gym.leaderboard.processes import SandboxError
from onco_gym.leaderboard.sandbox import BATCH, Confined
from onco_gym.leaderboard.validating import validate

linux = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the attacks are numbered as on this machine"
)


@pytest.fixture(scope="module")
def engine():
    return make_engine("nsclc", terms=("outcome",), horizon=8, split="validation")


# The walls, tried from inside

ATTACKS = r"""
import ctypes, json, os, resource, signal, socket, struct, subprocess, sys
from onco_gym.leaderboard import confinement

secret, missing = sys.argv[1:3]
parent, port, inherited, address = map(int, sys.argv[3:])
for wall in missing.split():
    if wall == "root":
        os.setuid(65534)  # nobody
    else:
        setattr(confinement, "_" + wall, lambda libc: False)
libc = ctypes.CDLL(None, use_errno=True)
before = os.read(0, 1)
walls = confinement.confine(2 * 2**30, 60)

def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

def peek():
    buffer = ctypes.create_string_buffer(6)
    ours, theirs = struct.pack("QQ", ctypes.addressof(buffer), 6), struct.pack("QQ", address, 6)
    call(310, parent, ours, ctypes.c_ulong(1), theirs, ctypes.c_ulong(1), ctypes.c_ulong(0))

def reach(family, address):
    with socket.socket(family) as one:
        one.connect(address)

attacks = {
    "read a file": lambda: open(secret).read(),
    "write a file": lambda: open(secret + ".new", "w").write("x"),
    "list a folder": lambda: os.listdir("/"),
    "remove a file": lambda: os.remove(secret),
    "make a folder": lambda: os.mkdir(secret + ".folder"),
    "read what was open before": lambda: os.read(inherited, 10),
    "read the parent's memory": lambda: open(f"/proc/{parent}/mem", "rb").read(1),
    "read the parent's settings": lambda: open(f"/proc/{parent}/environ", "rb").read(1),
    "connect": lambda: reach(socket.AF_INET, ("127.0.0.1", port)),
    "connect outside": lambda: reach(socket.AF_INET, ("192.0.2.1", 80)),
    "abstract socket": lambda: reach(socket.AF_UNIX, "\0onco" + str(port)),
    "memory": lambda: bytearray(8 * 2**30),
    "shared memory": lambda: os.close(os.memfd_create("x")),
    "kill the parent": lambda: os.kill(parent, 0),
    "run a program": lambda: os.execv("/bin/true", ["true"]),
    "start a program": lambda: subprocess.run(["/bin/true"]),
    "trace the parent": lambda: call(101, 0x4206, parent, 0, 0),
    "read the parent's memory by a call": peek,
    "io_uring": lambda: call(425, 4, ctypes.create_string_buffer(256)),
    "bpf": lambda: call(321, 0, ctypes.create_string_buffer(64), 64),
    "user namespace": lambda: call(272, 0x10000000),
    "mount": lambda: call(165, b"none", b"/tmp", b"tmpfs", 0, 0),
    "more memory than allowed": lambda: resource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40)),
    "other numbering of calls": lambda: call(0x40000000 + 39),
    "fork": lambda: os.fork() or os._exit(0),
}
if not {"seccomp", "landlock"} & set(walls):
    del attacks["run a program"]  # it would end this one
done = {}
for name, attack in attacks.items():
    try:
        attack()
        done[name] = ""
    except (OSError, MemoryError, ValueError) as error:
        done[name] = type(error).__name__
os.write(1, json.dumps({"walls": walls, "done": done}).encode())
"""


@pytest.fixture
def attack(tmp_path):
    """What attacks come to when some walls are missing: the walls that stand, and the attacks that succeeded."""
    secret, memory = tmp_path / "secret", ctypes.create_string_buffer(b"secret")

    def run(missing=""):
        secret.write_text("the secret of the season")
        with socket.socket() as server, socket.socket(socket.AF_UNIX) as local, secret.open() as opened:
            server.bind(("127.0.0.1", 0))
            server.listen()
            port = server.getsockname()[1]
            local.bind(f"\0onco{port}")
            local.listen()
            arguments = [secret, missing, *map(str, (os.getpid(), port, opened.fileno(), ctypes.addressof(memory)))]
            done = subprocess.run(
                [sys.executable, "-I", "-c", ATTACKS, *arguments],
                input=b"\0",
                capture_output=True,
                pass_fds=[opened.fileno()],
                env=processes.ENVIRONMENT,
                timeout=60,
            )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        return set(told["walls"]), {name for name, error in told["done"].items() if not error}

    return run


@linux
def test_nothing_can_be_done_from_inside(attack, tmp_path):
    walls, succeeded = attack()
    assert walls == set(WALLS), "a kernel without one of them is no place for a season's secret"
    assert not succeeded
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


FILES = {"read a file", "write a file", "list a folder"}
NETWORK = {"connect", "connect outside", "abstract socket"}
OTHERS = {"read the parent's memory", "read the parent's settings", "trace the parent", "read the parent's memory by a call"}
ALWAYS = {"read what was open before", "memory", "more memory than allowed"}


@linux
@pytest.mark.parametrize(
    ("missing", "kept"),
    [
        ("seccomp", FILES | NETWORK | OTHERS | ALWAYS | {"remove a file", "make a folder", "kill the parent"}),
        ("landlock", None),
        ("namespaces", None),
        pytest.param("root", None, marks=pytest.mark.skipif(os.getuid() != 0, reason="we are not root")),
        ("seccomp landlock", FILES | NETWORK | OTHERS | ALWAYS),
    ],
)
def test_each_wall_stands_by_itself(missing, kept, attack):
    """The others keep in what one lets out."""
    walls, succeeded = attack(missing)
    assert walls == set(WALLS) - set(missing.split())
    assert not succeeded if kept is None else not succeeded & kept


# Processes that do not do what they should

FAKE = """
import os, signal, struct, sys, time
def send(kind, content, length=None):
    os.write(1, struct.pack("<I", 1 + len(content) if length is None else length) + kind + content)
def read(size):
    found = b""
    while len(found) < size:
        more = os.read(0, size - len(found))
        if not more: sys.exit()
        found += more
    return found
def receive():
    return read(struct.unpack("<I", read(4))[0])
def load(memory=0):
    receive(), receive()
    send(b"L", struct.pack("<QQQQ", memory, 1, 1, 1))
"""
SCORES = 4 * CHOICES * 2  # bytes of an answer about two patients
LATE = r"takes too long: expected at most 0\.7 s for a call"
STARTS = {
    "it cannot start": ("sys.exit('no module named numpy')", "ended with code 1: no module named numpy"),
    "it says nothing": ("time.sleep(60)", LATE),
    "it says something else": ("send(b'A', b'limits')", "answers with nonsense"),
    "it is another program": ("print('hello' * 1000)", "answers with 1819043176 bytes"),
}
LOADS = {
    "it does not read": ("time.sleep(60)", LATE),
    "it talks without end": ("while True: os.write(1, b'RRRR')", LATE),
    "it says that the file is bad, with tricks": (
        "receive(); receive(); send(b'X', b'no \\x1b[2J\\n\\0 policy')",
        r"^no \?\[2J \? policy$",
    ),
    "it says that it remembers all": ("load(2**60)", "says that it remembers 1152921504606846976 numbers"),
    "it crashes": ("receive(); os.kill(os.getpid(), signal.SIGSEGV)", "the policy's process ended by signal 11 .Segmentation"),
    "it computes without end": ("while True: pass", LATE),
    "it is killed": ("receive(); os.kill(os.getpid(), signal.SIGKILL)", "the policy's process ended by signal 9 .Killed"),
}
ANSWERS = {
    "it hangs": ("time.sleep(60)", LATE),
    "it answers little by little": (f"send(b'A', b'', 1 + {SCORES})\nwhile True: os.write(1, b' '), time.sleep(.2)", LATE),
    "it closes its output": ("os.close(1), time.sleep(60)", "the policy's process closed its output"),
    "it promises gigabytes": ("send(b'A', b'', 2**32 - 1)", "answers with 4294967295 bytes, expected 169"),
    "it promises nothing": ("send(b'', b'', 0)", "answers with 0 bytes"),
    "too little": ("send(b'A', b'1234')", "answers with nonsense"),
    "too much": (f"send(b'A', bytes({SCORES + 4}))", "answers with nonsense"),
    "another kind": (f"send(b'L', bytes({SCORES}))", "answers with nonsense"),
    "no numbers": (f"send(b'A', b'\\xff' * {SCORES})", "answers with numbers that are not finite"),
    "the end": ("sys.exit()", "the policy's process ended with code 0"),
}


@pytest.fixture
def fake(monkeypatch):
    """A process that says it is ready, and then does something else."""

    def use(does, ready="send(b'R', b'limits other')\n"):
        monkeypatch.setattr(processes, "COMMAND", (sys.executable, "-S", "-c", FAKE + ready + does))

    return use


def at_fault(name, said):
    """A process that was killed, or did not compute in its time, was kept from it by the machine."""
    return SandboxError if "killed" in name or (said == LATE and "computes" not in name) else AgentError


@pytest.mark.parametrize("name", STARTS)
def test_a_sandbox_that_does_not_start_is_our_fault(name, fake, engine, monkeypatch):
    does, said = STARTS[name]
    if said == LATE:
        monkeypatch.setattr(processes, "CALL_SECONDS", 0.7)
    fake(does, ready="")
    with pytest.raises(SandboxError, match=f"the sandbox does not start: the policy's process {said}"):
        Confined(engine, b"")


@pytest.mark.parametrize("name", LOADS)
def test_a_process_that_does_not_load(name, fake, engine, monkeypatch):
    does, said = LOADS[name]
    if said == LATE:
        monkeypatch.setattr(processes, "CALL_SECONDS", 0.7)
        monkeypatch.setattr(processes, "SHARE", 0.2)  # of this machine, which may be busy
    fake(does)
    with pytest.raises(at_fault(name, said), match=said):
        Confined(engine, bytes(2**20))  # more than a pipe holds


@pytest.mark.parametrize("name", ANSWERS)
def test_a_process_that_does_not_answer(name, fake, engine, monkeypatch):
    does, said = ANSWERS[name]
    fake("load()\nreceive()\n" + does)
    begun = time.monotonic()
    with Confined(engine, b"") as policy:
        assert policy.walls == ("limits",), "only walls that we know"
        if said == LATE:
            monkeypatch.setattr(processes, "CALL_SECONDS", 0.7)
        with pytest.raises(at_fault(name, said), match=said):
            policy.scores(np.zeros((2, FEATURES), np.float32))
        with pytest.raises(AgentError, match="the policy's process has ended"):
            policy.scores(np.zeros((2, FEATURES), np.float32))
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize(
    ("walls", "enough"),
    [
        ("limits seccomp", True),
        ("limits namespaces landlock", True),
        ("limits namespaces capabilities", False),
        ("limits capabilities landlock", False),
        ("limits", False),
    ],
)
def test_secret_patients_are_shown_behind_enough_walls_only(walls, enough, fake, engine):
    fake("load()", ready=f"send(b'R', b'{walls}')\n")
    Confined(engine, b"").close()
    if enough:
        Confined(engine, b"", secret=True).close()
    else:
        with pytest.raises(SandboxError, match=f"too weak here for secret patients, with {walls.replace(' ', ' and ')} around"):
            Confined(engine, b"", secret=True)


def test_old_packages_are_refused(engine, monkeypatch):
    monkeypatch.setattr(processes, "NEEDED", {"onnxruntime": (99, 1)})
    with pytest.raises(SandboxError, match=r"the sandbox needs onnxruntime 99\.1 or newer, and this is \d.*known holes"):
        Confined(engine, file())
    monkeypatch.setattr(processes, "NEEDED", {"no-such-package": (1,)})
    with pytest.raises(SandboxError, match=r"the sandbox needs no-such-package 1 or newer: pip install"):
        Confined(engine, file())


# Policies

BASELINES = sorted((Path(__file__).parents[2] / "baselines" / "policies" / "NSCLC-v0").glob("*ppo-0.onnx"))


@pytest.mark.parametrize("path", BASELINES[:1], ids=lambda path: path.stem)
def test_a_confined_policy_treats_patients_as_the_same_policy_does_here(path, engine):
    """To the digit."""
    with Confined(engine, path.read_bytes()) as confined:
        ours, theirs = (rollout(engine, agent, 48, seed=5) for agent in (OnnxAgent(engine, path), confined))
        assert confined.work > 100_000
    np.testing.assert_array_equal(ours.actions, theirs.actions)
    np.testing.assert_array_equal(ours.returns, theirs.returns)


def test_a_recurrent_policy_remembers_its_patients_and_nobody_elses(engine):
    """Here and in the sandbox, and as the numbers say."""
    content = recurrent()
    seen = np.random.default_rng(0).random((3, 5, FEATURES), np.float32)
    cycle = next(field.index for field in engine.kind.fields if field.name == "cycle")
    seen[0, :, cycle], seen[1:, :, cycle] = 0, 0.5
    held = {one.name: onnx.numpy_helper.to_array(one) for one in onnx.ModelProto.FromString(content).graph.initializer}
    state, expected = np.zeros((5, 4)), []
    for one in seen:
        expected.append(one @ held["weights"] + state @ held["from_state"])
        state = np.tanh(state + one @ held["to_state"])
    here = OnnxAgent(engine, content)
    with Confined(engine, content) as there:
        assert here.remembers
        assert there.remembers
        assert there.facts.memory == 4
        for agent in (here, there):
            for _ in range(2):  # a new episode begins where the cycle is 0
                answers = [agent.scores(one) for one in seen]
                np.testing.assert_allclose(answers, expected, atol=1e-3)
            agent.restart()
            np.testing.assert_allclose(agent.scores(seen[1]), seen[1] @ held["weights"], atol=1e-3)
            mixed = seen[2].copy()
            mixed[3, cycle] = 0  # only the fourth patient is new
            second = agent.scores(mixed)
            np.testing.assert_allclose(second[3], mixed[3] @ held["weights"], atol=1e-3)
            assert not np.allclose(second[2], mixed[2] @ held["weights"], atol=1e-3)
        ours, theirs = (rollout(engine, agent, 40, keep_steps=True) for agent in (here, there))
    np.testing.assert_array_equal(ours.actions, theirs.actions)
    assert ours.steps.probabilities is None, "asking again would be another visit"
    forgetful = rollout(engine, _Forgetful(OnnxAgent(engine, content)), 40)
    assert (forgetful.actions[:4] != ours.actions[:4]).any()


class _Forgetful:
    def __init__(self, agent):
        self.agent = agent

    def act(self, observation, mask):
        self.agent.restart()
        return self.agent.act(observation, mask)


@pytest.mark.parametrize("kind", ["dose", "workflow"])
def test_doses_and_workflows(kind, tmp_path):
    engine = make_engine("nsclc", kind=kind, terms=("outcome",), horizon=2, split="validation")
    rng, sizes = np.random.default_rng(0), (len(engine.kind.fields), engine.kind.mask_size)
    save_mlp_onnx(tmp_path / "policy.onnx", engine, [(rng.normal(size=sizes), np.zeros(sizes[1]))])
    seen, mask = rng.random((7, sizes[0]), np.float32), np.ones((7, sizes[1]), bool)
    with Confined(engine, (tmp_path / "policy.onnx").read_bytes()) as policy:
        action = policy.act(seen, mask)
    engine.kind.checked(action, 7)
    np.testing.assert_array_equal(action, OnnxAgent(engine, tmp_path / "policy.onnx").act(seen, mask))


def test_batches_of_every_size(engine):
    seen = np.random.default_rng(0).random((BATCH + 5, FEATURES), np.float32)
    with Confined(engine, file()) as policy:
        whole = policy.scores(seen)
        for some in (seen[:0], seen[:1], seen[-7:]):
            answer = policy.scores(some)
            assert answer.shape == (len(some), CHOICES)
            np.testing.assert_allclose(
                answer, whole[len(whole) - len(some) :] if len(some) > 1 else whole[: len(some)], atol=1e-4
            )


def test_a_process_that_is_killed_while_it_waits(engine):
    with Confined(engine, file()) as policy:
        os.kill(policy._process._process.pid, signal.SIGKILL)
        with pytest.raises(SandboxError, match=r"the policy's process ended by signal 9 .Killed"):
            policy.scores(np.zeros((2, FEATURES), np.float32))


def test_a_validated_policy(engine):
    found = validate(engine, recurrent(), 2000)
    assert not found.reason
    assert found.size == len(recurrent())
    assert found.facts.memory == 4
    assert found.facts.operators == 6 + 1
    assert found.facts.numbers == FEATURES * (CHOICES + 4) + 4 * CHOICES
    assert set(found.walls) <= set(WALLS)
    assert 0 < found.microseconds < 1e5
    assert 0 < found.judgement < 600
    assert validate(engine, b"", 2000).facts is None


def test_a_policy_whose_judgement_would_take_too_long_is_refused_before(engine, monkeypatch):
    quick = validate(engine, file(), 2000).judgement
    monkeypatch.setattr(processes, "ALL_SECONDS", quick / 10)
    found = validate(engine, file(), 2000)
    assert re.search(r"a judgement would take [\d,]+ s, [\d,]+ µs for each of about [\d,]+ decisions, expected", found.reason)
    assert found.judgement is None


def test_the_number_of_decisions_in_a_judgement(engine, monkeypatch):
    asked = [questions(engine, patients, 8, 5.0, False) for patients in (2000, 3000)]
    twins = sum(len(levels) - 1 for _, levels in engine.scenario.groups)
    populations = 4 + 1
    assert asked[0] == 8 * (2000 + populations * 500 + 48) + 500 * (8 + 5 * (1 + twins))
    assert asked[1] - asked[0] == 8 * 1000
    assert questions(engine, 2000, 8, 5.0, True) == 8 * (2000 + populations * 500 + 48)


@linux
def test_a_process_does_not_outlive_ours():
    """Also if we are killed while it computes."""
    script = """if True:
        import os, signal
        from onco_gym.leaderboard import processes
        found = processes.PolicyProcess()
        os.kill(found._process.pid, signal.SIGSTOP)  # it does not notice the end of its input
        print(found._process.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGKILL
    status, deadline = Path(f"/proc/{int(done.stdout)}/status"), time.monotonic() + 10
    while status.exists() and "\nState:\tZ" not in status.read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert time.monotonic() < deadline
