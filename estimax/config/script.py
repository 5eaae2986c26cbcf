"""Write a run as a Python script that trains the same model.

    print(script_of(loaded))

The script is printed from the same expressions that `build` evaluates. Numbers that the
run takes from the data, such as means and vocabularies, are written out.
"""

from __future__ import annotations

from estimax.config.build import Plan, plan
from estimax.config.expressions import Call, Script
from estimax.config.load import LoadedRun


def script_of(loaded: LoadedRun) -> str:
    """Return a script that trains and evaluates the model of a run.

    Reads the train source if features need its statistics.
    """
    made = plan(loaded)
    script = Script()
    last = script.text(_last(made))
    title = f'"""{loaded.run.name}, written by `estimax python {loaded.path.name}`."""'
    imports = "\n".join([*sorted(script.imports), "import estimax as ex"])
    body = _joined(script.lines)
    end = f'if __name__ == "__main__":\n    {_indented(last)}'
    return f"{title}\n\n{imports}\n\n{body}\n\n\n{end}\n"


def _last(made: Plan) -> Call:
    """Return the call that trains: `train_and_evaluate`, or `train` without eval."""
    train = made.train_spec()
    specs = made.eval_specs()
    if not specs:
        return Call("train", train.named, train.positional, of=made.model)
    train = Call(train.path, train.named, train.positional, name="train_spec")
    first = specs[0]
    one = Call(first.path, first.named, first.positional, name="eval_spec")
    given = (made.model, train, one if len(specs) == 1 else [one, *specs[1:]])
    return Call("estimax.estimator.train_and_evaluate", {}, given)


def _joined(lines: list[str]) -> str:
    """Return statements with two empty lines around functions and none elsewhere."""
    text = "\n".join(lines).strip("\n")
    while "\n\n\n\n" in text:
        text = text.replace("\n\n\n\n", "\n\n\n")
    return text


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")
