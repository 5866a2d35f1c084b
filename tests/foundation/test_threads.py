"""Work that threads share."""

import threading
import time

import pytest

from onco_gym.foundation.threads import Threads


def test_results_come_in_order_whoever_made_them(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    who = set()

    def work(item):
        time.sleep(0.02 if item % 2 else 0.0)
        who.add(threading.get_ident())
        return item * item

    threads = Threads(8)
    assert threads.share(work, range(8)) == [0, 1, 4, 9, 16, 25, 36, 49]
    assert threads.share(work, []) == []
    assert 2 <= len(who) <= 3
    assert threading.get_ident() in who


@pytest.mark.parametrize("bad", [0, 7])
def test_an_error_in_any_thread_is_raised_when_all_have_stopped(monkeypatch, bad):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    at_work = []

    def work(item):
        at_work.append(item)
        time.sleep(0.01)
        at_work.remove(item)
        if item == bad:
            raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match=f"item {bad}"):
        Threads(2).share(work, range(8))
    assert at_work == []
