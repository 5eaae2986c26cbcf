"""Requests are asked for in signal handlers too, which interrupt anything."""

import threading

from estimax.parallel.requests import SAVE, STOP, Requests


class Interrupted(str):
    """A request during whose handling a signal asks for another one."""

    def __new__(cls, text, requests):
        made = super().__new__(cls, text)
        made.left, made.requests = 1, requests
        return made

    def __hash__(self):
        if self.left:
            self.left -= 1
            self.requests.ask(STOP)
        return super().__hash__()


def test_a_signal_may_ask_while_its_thread_asks_or_takes():
    requests, taken = Requests(), []

    def work():
        requests.ask(Interrupted(SAVE, requests))
        taken.extend(requests.take())
        taken.extend(requests.take())

    # In a thread of its own, because a lock that is not reentrant waits for ever.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(timeout=30)
    assert taken == [SAVE, STOP]


def test_a_request_is_sent_once():
    requests = Requests()
    requests.ask(SAVE)
    requests.ask(SAVE)
    requests.ask(STOP)
    assert requests.take() == [SAVE, STOP]
    assert requests.take() == []
