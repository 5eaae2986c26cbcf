"""Join the rows of waiting requests into batches, and run them in threads.

    scheduler = Scheduler(threads=2)
    queue = scheduler.queue(run, BatchingConfig())
    queue.submit(BatchTask(batch, rows, "predict", deliver=print))

A thread takes the tasks of one key that wait in a queue, oldest first and up to the
largest batch, and runs them together. With a timeout of 0 it does not wait for more, so
a batch is as large as what arrived while all threads were busy. A queue is bounded: a
task that finds it full is refused at once, instead of being answered too late. A
request of more rows than a batch is cut into pieces, which take turns with the tasks of
other requests.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from estimax.core.errors import EstimaxError
from estimax.input.streams import columns
from estimax.serving.config import BatchingConfig
from estimax.serving.programs import NotCompiledError
from estimax.serving.requests import PendingRows
from estimax.serving.status import Code, ServingError, invalid
from estimax.staging import host_plan as plans

_log = logging.getLogger("estimax.serving")
_WORTH_A_THREAD: Final = 32  # rows that do not wait for a batch that runs
_SOON: Final = 0.001  # seconds
_MOST_APART: Final = 64  # batches that may wait for the compiler
Answers = dict[str, NDArray[Any]]
RequestFeatures = plans.RawBatch | PendingRows
Deliver = Callable[[Answers | Exception], None]
# signature, rows of all tasks, whether to compile for a new shape -> answers
RunBatch = Callable[[str, plans.RawBatch, bool], Answers]
ObserveBatch = Callable[["BatchQueue", Sequence["BatchTask"], float, float], None]


@dataclass(eq=False)
class BatchTask:
    """Rows that wait for their answers.

    Args:
      batch: The rows, at most as many as the largest batch.
      rows: Their number.
      signature: The signature to call. Only tasks of one signature share a batch.
      deliver: Called once, in a thread of the scheduler, with answers or an error.
      deadline: When the answer is no longer wanted, by `time.monotonic`.
      is_wanted: Returns whether anyone still waits for the answer.
    """

    batch: RequestFeatures
    rows: int
    signature: str
    deliver: Deliver
    deadline: float | None = None
    is_wanted: Callable[[], bool] = lambda: True
    arrived: float = field(default_factory=time.monotonic)
    key: tuple[Any, ...] = field(init=False)  # must agree for tasks to be joined
    _is_told: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        batch = self.batch
        values = batch.others if isinstance(batch, PendingRows) else batch
        shapes = (getattr(value, "shape", ())[1:] for value in values.values())
        reader = type(batch.reader) if isinstance(batch, PendingRows) else None
        # The reader too: rows of JSON are Python values and rows of gRPC are bytes,
        # which cannot be converted together.
        self.key = (self.signature, reader, *shapes)

    def tell(self, found: Answers | Exception) -> None:
        """Deliver answers or an error, unless something has been delivered."""
        # One thread at a time has the task, so no lock is needed.
        if not self._is_told:
            self.deliver(found)
            self._is_told = True


class LargeRequest:
    """A request of more rows than a batch, which is cut when its turn comes.

    Args:
      whole: The request as one task.
      piece: The rows of a piece.
    """

    def __init__(self, whole: BatchTask, piece: int) -> None:
        self._whole = whole
        self._piece = piece
        self._next = 0
        self._found: list[Answers] = [{} for _ in range(0, whole.rows, piece)]
        self._missing = len(self._found)
        self._is_over = False
        self._lock = threading.Lock()

    @property
    def rows_left(self) -> int:
        """The rows that no task has yet."""
        is_over = self._is_over or not self._whole.is_wanted()
        return 0 if is_over else self._whole.rows - self._next

    def next_task(self) -> BatchTask:
        """Return a task of the next rows."""
        whole, start = self._whole, self._next
        self._next = stop = min(start + self._piece, whole.rows)
        index = start // self._piece

        def deliver(answers: Answers | Exception) -> None:
            self._receive(index, answers)

        return BatchTask(
            slice_rows(whole.batch, start, stop),
            stop - start,
            whole.signature,
            deliver,
            whole.deadline,
            whole.is_wanted,
        )

    def _receive(self, index: int, answers: Answers | Exception) -> None:
        """Take the answers of a piece; deliver all of them, or the first error."""
        # Pieces of one request may run in several threads at the same time.
        with self._lock:
            if self._is_over:
                return
            if not isinstance(answers, Exception):
                self._found[index] = answers
                self._missing -= 1
            self._is_over = isinstance(answers, Exception) or not self._missing
            if not self._is_over:
                return
        if not isinstance(answers, Exception):
            try:
                answers = concat_answers(self._found)
            except Exception as error:  # widths that differ, or no memory
                answers = error
        # Without the lock: `deliver` runs code of others.
        self._whole.tell(answers)


class BatchQueue:
    """The tasks that wait for one version of a model.

    Args:
      run: Computes the answers of a batch.
      config: The largest batch, the timeout, and how many batches may wait.
      scheduler: Whose threads run the batches.
    """

    def __init__(
        self, run: RunBatch, config: BatchingConfig, scheduler: Scheduler
    ) -> None:
        self._run = run
        self._config = config
        self._scheduler = scheduler
        # All of these belong to the lock of the scheduler, `changed`. `ready_at`,
        # `take` and `end_run` are called with it, `run` without it.
        self._waiting: deque[BatchTask] = deque()
        self._rows = 0
        self._large: deque[LargeRequest] = deque()
        self._is_turn_of_large = False
        self._running = 0  # batches
        self._started = 0.0  # when the last of them began
        self.batches = 0  # that were run
        self.batched_rows = 0
        self.labels: tuple[str, int] | None = None  # model and version, for metrics

    @property
    def waiting_rows(self) -> int:
        """The number of rows that wait in the queue."""
        with self._scheduler.changed:
            return self._rows + sum(large.rows_left for large in self._large)

    def submit(self, task: BatchTask) -> None:
        """Add a request, or raise `ServingError` if the queue is full.

        A large request, which may have more rows than the queue, is taken or refused as
        a whole. Large ones have a queue of their own: they do not keep others out.
        """
        config = self._config
        most = config.max_enqueued_batches * config.max_batch_size
        is_large = task.rows > config.max_batch_size
        with self._scheduler.changed:
            large = sum(large.rows_left for large in self._large)
            rows = large if is_large else self._rows
            if rows >= most:
                raise ServingError(
                    Code.UNAVAILABLE,
                    f"{rows} rows are waiting and at most {most} may; try again "
                    "later, or send requests to another server.",
                )
            if is_large:
                self._large.append(LargeRequest(task, config.piece_size))
                # Every idle thread may take a piece of it.
                self._scheduler.changed.notify_all()
            else:
                self._waiting.append(task)
                self._rows += task.rows
                self._scheduler.changed.notify()

    def ready_at(self, now: float) -> float | None:
        """Return when the next batch may run; None if no task waits."""
        if self._large:
            return now
        if not self._waiting:
            return None
        config = self._config
        if not config.is_enabled or self._rows >= config.max_batch_size:
            return now
        at = self._waiting[0].arrived + config.timeout_micros * 1e-6
        if self._running and self._rows < _WORTH_A_THREAD:
            # A batch of a small model ends within a millisecond. Two threads would only
            # hinder each other meanwhile, with half as many rows each.
            at = max(at, self._started + _SOON)
        return at

    def take(self) -> list[BatchTask]:
        """Remove and return the tasks of the next batch; large requests take turns."""
        self._running += 1
        self._started = time.monotonic()
        if self._large and (self._is_turn_of_large or not self._waiting):
            self._is_turn_of_large = False
            return self._take_piece()
        self._is_turn_of_large = True
        first = self._waiting[0]
        most = self._config.max_batch_size if self._config.is_enabled else first.rows
        taken: list[BatchTask] = []
        left = deque[BatchTask]()
        rows = 0
        while self._waiting:
            task = self._waiting.popleft()
            fits = rows + task.rows <= most and (not taken or task.key == first.key)
            if fits and (self._config.is_enabled or not taken):
                taken.append(task)
                rows += task.rows
            else:
                left.append(task)
                if rows >= most:
                    break
        left.extend(self._waiting)
        self._waiting = left
        self._rows -= rows
        return taken

    def _take_piece(self) -> list[BatchTask]:
        large = self._large.popleft()
        if not large.rows_left:  # it failed, or nobody waits for it
            return []
        task = large.next_task()
        if large.rows_left:
            self._large.append(large)
        return [task]

    def end_run(self) -> None:
        """Note that a batch which `take` returned has been run."""
        self._running -= 1

    def run(self, tasks: Sequence[BatchTask]) -> None:
        """Run tasks together and deliver their answers."""
        late = self._run_compiled(tasks)
        # A new shape takes the compiler's time; other batches do not wait for it.
        if late and not self._scheduler.run_apart(lambda: self._run_alone(late)):
            busy = "too many requests wait for the compiler; try again later."
            for task in late:
                task.tell(ServingError(Code.UNAVAILABLE, busy))

    def _run_compiled(self, tasks: Sequence[BatchTask]) -> list[BatchTask]:
        """Run tasks, as far as this needs no compiler; return the tasks that do."""
        current = [
            task for task in tasks if task.is_wanted() and not _give_up_if_late(task)
        ]
        if not current:
            return []
        try:
            # First all together. Only if that fails is each task run alone, since
            # requests are checked before they are queued and failures are rare.
            answers = self._answers(current, may_compile=False)
        except Exception as error:
            if len(current) > 1:
                # One task is bad or has a new shape; the other tasks get their answers.
                return [late for task in current for late in self._run_compiled([task])]
            if isinstance(error, NotCompiledError):
                return current
            current[0].tell(error)
        else:
            _deliver(current, answers)
        return []

    def _run_alone(self, given: Sequence[BatchTask]) -> None:
        tasks = [
            task for task in given if task.is_wanted() and not _give_up_if_late(task)
        ]
        if not tasks:
            return
        try:
            _deliver(tasks, self._answers(tasks, may_compile=True))
        except Exception as error:
            for task in tasks:
                task.tell(error)

    def _answers(self, tasks: Sequence[BatchTask], *, may_compile: bool) -> Answers:
        # Here and not when a request arrives: one conversion for the rows of all tasks
        # takes a fraction of one for each.
        batch = _concat_features([task.batch for task in tasks])
        self.batches += 1
        self.batched_rows += sum(task.rows for task in tasks)
        return self._run(tasks[0].signature, batch, may_compile)


class Scheduler:
    """The threads that run batches, for all queues in turn.

    Args:
      threads: How many batches run at the same time.
      observe: Called after each batch with its queue and tasks, when it began and how
        long it took.
    """

    def __init__(self, threads: int, observe: ObserveBatch | None = None) -> None:
        self._observe = observe
        self.changed = threading.Condition()
        self._queues: list[BatchQueue] = []
        self._next = 0
        self._is_closed = False
        self._apart: deque[Callable[[], None]] = deque()
        self._apart_lock = threading.Lock()
        self._is_apart_running = False
        self._threads = [
            threading.Thread(target=self._work, name=f"batch-{i}", daemon=True)
            for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def queue(self, run: RunBatch, config: BatchingConfig) -> BatchQueue:
        """Return a new queue, whose batches the threads run with `run`."""
        queue = BatchQueue(run, config, self)
        with self.changed:
            self._queues.append(queue)
        return queue

    def remove(self, queue: BatchQueue) -> None:
        """Forget a queue, which must be empty."""
        with self.changed:
            self._queues.remove(queue)

    def run_apart(self, work: Callable[[], None]) -> bool:
        """Run `work` after earlier such work, in the one thread that has time for it.

        Returns:
          Whether it will run. It will not if too much work waits, or if there is no
          thread to be had.
        """
        with self._apart_lock:
            if len(self._apart) >= _MOST_APART:
                return False
            self._apart.append(work)
            if not self._is_apart_running:
                thread = threading.Thread(
                    target=self._work_apart, name="batch-apart", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # the system has no more threads
                    self._apart.pop()
                    return False
                self._is_apart_running = True
        return True

    def _work_apart(self) -> None:
        while True:
            with self._apart_lock:
                if not self._apart:
                    self._is_apart_running = False
                    return
                work = self._apart.popleft()
            try:
                work()
            except Exception:  # nothing may end the thread: nobody would notice
                _log.exception("delivering the answers of a batch failed")

    def close(self) -> None:
        """End the threads after the batches that they are running."""
        with self.changed:
            self._is_closed = True
            self.changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            taken = self._take()
            if taken is None:
                return
            queue, tasks = taken
            try:
                self._run(queue, tasks)
            except Exception:  # nothing may end the thread: nobody would notice
                _log.exception("observing a batch failed")
            finally:
                with self.changed:
                    queue.end_run()
                    if queue.waiting_rows:  # another thread may have left them to this
                        self.changed.notify()

    def _run(self, queue: BatchQueue, tasks: Sequence[BatchTask]) -> None:
        start = time.monotonic()
        try:
            queue.run(tasks)
        except Exception as error:
            _log.exception("delivering the answers of a batch failed")
            for task in tasks:
                with contextlib.suppress(Exception):
                    task.tell(error)
        if self._observe is not None:
            self._observe(queue, tasks, start, time.monotonic() - start)

    def _take(self) -> tuple[BatchQueue, list[BatchTask]] | None:
        """Wait for a batch and return it with its queue; None when closed."""
        with self.changed:
            # The lock is released while this waits, and while the batch runs.
            while not self._is_closed:
                now = time.monotonic()
                queue, at = self._first_ready(now)
                if queue is not None and at <= now:
                    return queue, queue.take()
                self.changed.wait(None if queue is None else at - now)
            return None

    def _first_ready(self, now: float) -> tuple[BatchQueue | None, float]:
        """Return the queue whose batch is due first; queues take turns."""
        found, earliest = None, 0.0
        for turn in range(len(self._queues)):
            index = (self._next + turn) % len(self._queues)
            at = self._queues[index].ready_at(now)
            if at is not None and at <= now:
                # The search begins behind the queue that was served last, so that a
                # busy model cannot starve the others.
                self._next = index + 1
                return self._queues[index], at
            if at is not None and (found is None or at < earliest):
                found, earliest = self._queues[index], at
        return found, earliest


def _give_up_if_late(task: BatchTask) -> bool:
    """Tell a task whose deadline has passed, and return whether it has."""
    if task.deadline is None or time.monotonic() < task.deadline:
        return False
    task.tell(
        ServingError(
            Code.RESOURCE_EXHAUSTED,
            "the deadline of the request passed while it waited for a batch; the "
            "server is overloaded.",
        )
    )
    return True


def _concat_features(given: Sequence[RequestFeatures]) -> plans.RawBatch:
    """Return the rows of tasks that have the same key as one batch."""
    rows = [batch for batch in given if isinstance(batch, PendingRows)]
    if rows:
        return rows[0].reader.raw_batch(rows)
    batches = [batch for batch in given if not isinstance(batch, PendingRows)]
    if len(batches) == 1:
        return batches[0]
    return {
        origin: columns.join([batch[origin] for batch in batches])
        for origin in batches[0]
    }


def row_count(batch: RequestFeatures) -> int:
    """Return the number of rows of a request."""
    return batch.rows if isinstance(batch, PendingRows) else plans.batch_size(batch)


def slice_rows(features: RequestFeatures, start: int, stop: int) -> RequestFeatures:
    """Return some rows of a request."""
    if isinstance(features, PendingRows):
        return features.slice_rows(start, stop)
    return {
        origin: columns.slice_rows(value, start, stop)
        for origin, value in features.items()
    }


def answer_in_pieces(
    run: RunBatch, signature: str, batch: plans.RawBatch, most: int
) -> Answers:
    """Return the answers for a batch of any size, without a queue."""
    rows = plans.batch_size(batch)
    if rows <= most:
        return run(signature, batch, True)
    pieces = [slice_rows(batch, i, min(i + most, rows)) for i in range(0, rows, most)]
    return concat_answers([run(signature, _concat_features([p]), True) for p in pieces])


def concat_answers(parts: Sequence[Answers]) -> Answers:
    """Return the answers to the pieces of a batch as the answers to the batch."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _deliver(tasks: Sequence[BatchTask], answers: Answers) -> None:
    start = 0
    for task in tasks:
        stop = start + task.rows
        # No copy and no slice for a request that was alone.
        if len(tasks) == 1:
            task.tell(answers)
        else:
            task.tell({name: array[start:stop] for name, array in answers.items()})
        start = stop


def as_serving_error(error: Exception) -> ServingError:
    """Return an error with a status code: errors of estimax are the request's."""
    if isinstance(error, ServingError):
        return error
    # Whatever estimax raises about a request names what the client can change; any
    # other exception is a bug of the server.
    if isinstance(error, EstimaxError):
        return invalid(str(error))
    return ServingError(Code.INTERNAL, f"{type(error).__name__}: {error}")
