import optax
import pytest
from table_models import Table, batch_of, device_ids, host_ids, model_of, program_of

from estimax import optimizers, training
from estimax.core.errors import SpecError
from estimax.core.spec import ModeKeys
from estimax.training.updates import UpdateKind, UpdatePlan


def plan_training(net, train_op, batch=None):
    batch = batch or batch_of([[0, 1]])
    recording = training.record(model_of(net, train_op), batch, ModeKeys.TRAIN)
    return UpdatePlan.from_recording(recording)


def by_host(features):
    return Table(name="t")(host_ids(features))


def by_device(features):
    return Table(name="t")(device_ids(features))


@pytest.mark.parametrize(
    ("net", "optimizer", "way"),
    [
        (by_host, optimizers.Adagrad(0.1), UpdateKind.ROWS),
        (by_host, optimizers.Adam(0.1), UpdateKind.ROWS),
        (by_host, optax.adagrad(0.1), UpdateKind.WHOLE),
        (by_device, optimizers.Adagrad(0.1), UpdateKind.MASKED),
        (by_device, optimizers.Adam(0.1), UpdateKind.WHOLE),
        (by_host, optimizers.minimize("SGD", var_list="other/"), UpdateKind.FROZEN),
    ],
)
def test_ids_and_optimizer_choose_how_a_table_is_updated(net, optimizer, way):
    def with_other(features):
        return net(features) + Table(name="other")(host_ids(features))

    planned = plan_training(with_other, optimizer)
    assert planned.tables["t/rows"].kind is way


def test_a_table_that_is_not_trainable_is_frozen():
    def net(features):
        frozen = Table(trainable=False, name="frozen")(host_ids(features))
        return frozen + Table(name="trained")(host_ids(features))

    planned = plan_training(net, optimizers.Adagrad(0.1))
    assert planned.tables["frozen/rows"].kind is UpdateKind.FROZEN
    assert planned.tables["trained/rows"].kind is UpdateKind.ROWS


def test_tables_looked_up_by_the_same_ids_share_one_list_of_unique_ids():
    def net(features):
        ids = host_ids(features)
        return Table(name="one")(ids) + Table(name="two")(ids)

    planned = plan_training(net, optimizers.Adagrad(0.1))
    assert len(planned.plan.groups) == 1
    assert planned.tables["one/rows"].rows == planned.tables["two/rows"].rows


def test_ids_of_one_table_from_two_features_are_made_unique_together():
    def net(features):
        table = Table(name="shared")
        return table(host_ids(features, "a")) + table(host_ids(features, "b"))

    batch = batch_of([[0], [1]], [[1], [4]])
    planned = plan_training(net, optimizers.Adagrad(0.1), batch)
    (group,) = planned.plan.groups
    assert group.calls == ("a", "b")
    assert planned.plan.prepare(batch).unique[group.name].tolist() == [0, 1, 4, 6]


def test_a_train_op_that_matches_nothing_is_told_what_there_is():
    with pytest.raises(SpecError, match="no trainable variable matches 'tt/'"):
        plan_training(by_host, optimizers.minimize("SGD", var_list="tt/"))


def test_a_program_keeps_its_training():
    model = model_of(by_host, optimizers.SGD(0.1))
    program = program_of(model, batch_of([[0, 1]]))
    assert program.updates["t/rows"].kind is UpdateKind.ROWS
