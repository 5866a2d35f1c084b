"""Files are written whole or not at all, and nothing but a file is replaced by one."""

import os
import stat
import subprocess
import sys
import threading

import pytest

from onco_gym.cli import main
from onco_gym.cli.arguments import output_file
from onco_gym.foundation.files import replacing


def write(path, text="new"):
    with replacing(path) as temporary:
        temporary.write_text(text)


def test_what_goes_wrong_changes_nothing(tmp_path):
    path = tmp_path / "out.json"
    path.write_text("old")
    with pytest.raises(TypeError):
        write(path, None)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_follows_the_umask_and_an_old_one_keeps_its_mode(tmp_path):
    before = os.umask(0o027)
    try:
        write(tmp_path / "new.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new.json").stat().st_mode) == 0o640
    for mode in (0o600, 0o444, 0o664):
        (tmp_path / "new.json").chmod(mode)
        write(tmp_path / "new.json", f"{mode}")
        assert stat.S_IMODE((tmp_path / "new.json").stat().st_mode) == mode
        assert (tmp_path / "new.json").read_text() == f"{mode}"


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_target_is_replaced(tmp_path, there):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    if there:
        (folder / "real.json").write_text("old")
    link = tmp_path / "link.json"
    link.symlink_to("elsewhere/real.json")
    write(link)
    assert link.is_symlink()
    assert (folder / "real.json").read_text() == link.read_text() == "new"
    assert [path.name for path in folder.iterdir()] == ["real.json"]


def test_a_pipe_is_written_to(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    assert output_file()(str(pipe)) == pipe
    write(pipe)
    reader.join(10)
    assert read == ["new"]
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_device_is_written_to():
    main_end, device = os.openpty()  # one of our own: if it were replaced, no other program would miss it
    write(os.ttyname(device))
    assert os.read(main_end, 10) == b"new"
    assert stat.S_ISCHR(os.stat(os.ttyname(device)).st_mode)
    os.close(main_end)
    os.close(device)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd/1"), reason="needs /proc")
@pytest.mark.parametrize("piped", [True, False])
def test_standard_output_is_written_to_and_keeps_what_was_printed(tmp_path, piped):
    stdout = tmp_path / "stdout"
    stdout.symlink_to("/proc/self/fd/1")  # as /dev/stdout is
    code = "import sys; from onco_gym.foundation.files import replacing\nprint('before')\n"
    code += "with replacing(sys.argv[1]) as file: file.write_text('new\\n')\nprint('after')"
    path = tmp_path / "out.txt"
    with path.open("wb") as into:
        done = subprocess.run([sys.executable, "-c", code, stdout], stdout=subprocess.PIPE if piped else into, check=True)
    assert (done.stdout or path.read_bytes()) == b"before\nnew\nafter\n"
    assert stdout.is_symlink()


def test_a_folder_or_a_missing_one_is_one_clear_error(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "lost").symlink_to("nowhere/file")
    wrong = {".": "directory", "nowhere/out.json": "No such file", "file/out.json": "Not a directory", "loop": "symbolic links"}
    for name, why in {**wrong, "lost": "No such file"}.items():
        with pytest.raises(OSError, match=why) as error:
            write(tmp_path / name)
        assert error.value.filename == str(tmp_path / name)
        assert main(["rollout", "guideline", "--env", "NSCLC", "--json", str(tmp_path / name)]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert str(tmp_path / name) in said
    assert len(list(tmp_path.iterdir())) == 3
