"""The flags of `tensorflow_model_server`, so that its start scripts work unchanged.

    translate(["--enable_batching=true", "--num_unload_threads=4"], {"enable-batching"})
    # ["--enable-batching"], and a note: --num_unload_threads does nothing: ...

Most flags are options of `estimax serve` by the same name. Those that have nothing to
set here are accepted, with one line that says why.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any, Final

import typer
from typer.core import TyperCommand

from estimax.core.errors import ConfigError

WORKER: Final = "ESTIMAX_SERVE_WORKER"  # set in the processes of --workers
_NO_GRAPH: Final = "a bundle has no TensorFlow graph"
_NO_SESSION: Final = "there is no TensorFlow session; see --batching-parameters-file"
_NO_TFLITE: Final = "there are no TensorFlow Lite models here"
_XLA: Final = "programs are always compiled by XLA"
DOES_NOTHING: Final = {
    "rest-api-num-threads": "one event loop reads all requests; see --workers",
    "grpc-max-threads": "one event loop reads all requests; see --workers",
    "num-unload-threads": "versions are unloaded beside the requests anyway",
    "flush-filesystem-caches": "the files of a bundle are read once",
    "tensorflow-session-parallelism": _NO_SESSION,
    "tensorflow-session-config-file": _NO_SESSION,
    "tensorflow-intra-op-parallelism": _NO_SESSION,
    "tensorflow-inter-op-parallelism": _NO_SESSION,
    "thread-pool-factory-config-file": _NO_SESSION,
    "platform-config-file": "there is one platform, estimax",
    "saved-model-tags": _NO_GRAPH,
    "remove-unused-fields-from-bundle-metagraph": _NO_GRAPH,
    "mixed-precision": "the dtypes of a bundle are chosen when it is exported",
    "prefer-tflite-model": _NO_TFLITE,
    "use-tflite-model": _NO_TFLITE,
    "num-tflite-pools": _NO_TFLITE,
    "num-tflite-interpreters-per-pool": _NO_TFLITE,
    "num-request-iterations-for-warmup": "one run is enough: a program is compiled "
    "before its version is available",
    "enable-signature-method-name-check": "every signature is checked by its inputs",
    "xla-cpu-compilation-enabled": _XLA,
    "xla-gpu-compilation-enabled": _XLA,
    "enable-profiler": "there is no profiler service; see the guide on serving for "
    "metrics",
    "skip-initialize-tpu": "jax finds the devices",
    "enable-grpc-healthcheck-service": "the health service is always on",
}
_SWITCHES: Final = frozenset(  # of those, the ones that take no value
    {
        "flush-filesystem-caches",
        "remove-unused-fields-from-bundle-metagraph",
        "prefer-tflite-model",
        "use-tflite-model",
        "enable-signature-method-name-check",
        "xla-cpu-compilation-enabled",
        "xla-gpu-compilation-enabled",
        "enable-profiler",
        "skip-initialize-tpu",
        "enable-grpc-healthcheck-service",
    }
)
_TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}


class ServeCommand(TyperCommand):
    """`estimax serve`: takes the flags of TensorFlow Serving as they are written."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line after the flags have been translated."""
        switches = {
            name.removeprefix("--")
            for option in self.params
            if getattr(option, "is_flag", False)
            for name in option.opts
        }
        taken, notes = translate(args, switches)
        if WORKER not in os.environ:  # said once, and not by every worker
            for note in notes:
                typer.echo(note, err=True)
        return super().parse_args(ctx, taken)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help without a table, whose columns would cut the long names."""
        self.rich_markup_mode = None
        super().format_help(ctx, formatter)


def translate(
    args: Sequence[str], switches: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return the arguments for the parser, and a note for each flag left out.

    Args:
      args: The arguments as they were typed.
      switches: The options without a value, such as "enable-batching".

    Raises:
      ConfigError: The value of a switch is not a boolean, or a flag asks for something
        that cannot be left out.
    """
    taken: list[str] = []
    notes: list[str] = []
    waiting = list(reversed(args))
    while waiting:
        arg = waiting.pop()
        if arg == "--":
            return [*taken, arg, *reversed(waiting)], notes
        given, equals, value = arg.partition("=")
        name = given.removeprefix("--").replace("_", "-")
        if not given.startswith("--"):
            taken.append(arg)
        elif name == "use-alts-credentials":
            if not equals or _truth(given, value):
                raise ConfigError(
                    f"{given}: ALTS is not available here. Use TLS: --ssl-key and "
                    "--ssl-certificate, or --ssl-config-file."
                )
        elif name in DOES_NOTHING:
            notes.append(f"{given} does nothing: {DOES_NOTHING[name]}")
            if not equals and name not in _SWITCHES and waiting:
                waiting.pop()  # its value
        elif equals and name in switches:
            taken.append(f"--{name}" if _truth(given, value) else f"--no-{name}")
        else:
            taken.append(arg)
    return taken, notes


def _truth(flag: str, value: str) -> bool:
    try:
        return _TRUTH[value.lower()]
    except KeyError:
        raise ConfigError(f"{flag}: expected true or false, found {value!r}.") from None
