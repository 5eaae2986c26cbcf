"""How the processes of a cluster find each other, with threads as processes."""

import socket
from concurrent.futures import ThreadPoolExecutor

from parallel.cluster_jobs import free_port

from estimax.core.errors import ClusterError
from estimax.parallel.cluster import Cluster
from estimax.parallel.meeting import Member, meeting


def members_of(*tasks, port=None):
    address = f"127.0.0.1:{port or free_port()}"
    return [
        Member(address, process, count, Cluster().name_of) for process, count in tasks
    ]


def come(member, limit_secs=60.0):
    """Come to the meeting; return the error in words, or "" if all are there."""
    try:
        with meeting(member, limit_secs):
            if member.process == 0:  # as JAX's service, which the others wait for
                with socket.create_server(("127.0.0.1", port_of(member))) as server:
                    for _ in range(1, member.count):
                        server.accept()[0].close()
    except ClusterError as error:
        return str(error)
    return ""


def port_of(member):
    return int(member.address.rpartition(":")[2])


def all_come(members, limit_secs=60.0):
    with ThreadPoolExecutor(len(members)) as pool:
        return list(pool.map(lambda one: come(one, limit_secs), members))


def test_all_go_on_when_the_last_has_come():
    assert all_come(members_of((2, 3), (1, 3), (0, 3))) == ["", "", ""]


def test_a_missing_process_is_named_in_all_others():
    problems = all_come(members_of((0, 4), (2, 4)), limit_secs=0.5)
    for problem in problems:
        assert problem.startswith(
            "worker 0 (process 1 of 4), worker 2 (process 3 of 4) did not connect"
        )


def test_different_numbers_of_processes_are_told_with_both():
    for problem in all_come(members_of((0, 2), (1, 3))):
        assert "differently: 2 and 3" in problem


def test_two_processes_with_one_number_are_refused():
    one, *others = members_of((0, 3), (1, 3), (1, 3))
    problems = all_come([one, *others])
    assert "two processes say that they are worker 0 (process 1 of 3)" in problems[0]
    assert all(problem == problems[0] for problem in problems[1:])


def test_a_second_chief_is_told_that_the_address_is_taken():
    (chief,) = members_of((0, 2))
    with socket.create_server(("127.0.0.1", port_of(chief))):
        assert "a second one that was started as the chief" in come(chief)


def test_others_at_the_port_do_not_disturb_the_meeting():
    chief, worker = members_of((0, 2), (1, 2))
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(come, chief)
        for text in (b"", b"GET / HTTP/1.1\r\n\r\n", b'{"process": "x"}\n', b"[]\n"):
            probe(port_of(chief), text)
        assert come(worker) == ""
        assert waiting.result() == ""


def probe(port, text):
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(text)
            return
        except ConnectionRefusedError:  # the chief does not listen yet
            continue


def test_a_chief_that_does_not_answer_in_time_is_not_said_to_have_ended(monkeypatch):
    monkeypatch.setattr("estimax.parallel.meeting._HELLO_SECS", 0.0)
    monkeypatch.setattr("estimax.parallel.meeting._SLICE_SECS", 0.05)
    (worker,) = members_of((1, 2))
    with socket.create_server(("127.0.0.1", port_of(worker))):  # which never answers
        problem = come(worker, limit_secs=0.1)
    assert "ended" not in problem
    assert "within 0.1 seconds (session_creation_timeout_secs)" in problem
