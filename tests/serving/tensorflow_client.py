"""A client made of the real tensorflow-serving-api; prints what the server answered.

    python tensorflow_client.py PORT

Run by test_tensorflow_client.py in an environment that has TensorFlow.
"""

import json
import sys

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)


def main(port, base_path):
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    prediction = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    model = model_service_pb2_grpc.ModelServiceStub(channel)
    found = {
        "predict": predict(prediction),
        "predict_examples": predict_examples(prediction),
        "classify": classify(prediction),
        "regress": regress(prediction),
        "multi_inference": multi_inference(prediction),
        "metadata": metadata(prediction),
        "status": status(model),
        "reload": reload_config(model, base_path),
    }
    print(json.dumps(found))


def example():
    feature = tf.train.Feature
    return tf.train.Example(
        features=tf.train.Features(
            feature={
                "age": feature(float_list=tf.train.FloatList(value=[1.5])),
                "hours": feature(int64_list=tf.train.Int64List(value=[2])),
                "city": feature(bytes_list=tf.train.BytesList(value=[b"Oslo"])),
                "tags": feature(bytes_list=tf.train.BytesList(value=[b"a"])),
            }
        )
    )


def predict(stub):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "clicks"
    request.model_spec.signature_name = "predict"
    for name, values in {
        "age": np.array([1.5, 2.5], np.float32),
        "hours": np.array([2, 3], np.int64),
        "city": np.array([b"Oslo", b"Rome"]),
        "tags": np.array([[b"a", b""], [b"b", b"c"]]),
    }.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
    response = stub.Predict(request, 60)
    return {
        "version": response.model_spec.version.value,
        **{n: tf.make_ndarray(t).tolist() for n, t in numeric(response.outputs)},
        "classes": [
            w.decode() for w in tf.make_ndarray(response.outputs["classes"])[:, 0]
        ],
    }


def numeric(outputs):
    return [
        (name, t)
        for name, t in outputs.items()
        if t.dtype != tf.string.as_datatype_enum
    ]


def predict_examples(stub):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "clicks"
    request.model_spec.signature_name = "predict"
    serialized = [example().SerializeToString()]
    request.inputs["examples"].CopyFrom(tf.make_tensor_proto(serialized))
    return tf.make_ndarray(stub.Predict(request, 60).outputs["logistic"]).tolist()


def classify(stub):
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "clicks"
    request.input.example_list.examples.append(example())
    response = stub.Classify(request, 60)
    return [[c.label, c.score] for c in response.result.classifications[0].classes]


def regress(stub):
    request = regression_pb2.RegressionRequest()
    request.model_spec.name = "clicks"
    request.model_spec.signature_name = "regression"
    request.input.example_list.examples.append(example())
    return [r.value for r in stub.Regress(request, 60).result.regressions]


def multi_inference(stub):
    request = inference_pb2.MultiInferenceRequest()
    request.input.example_list.examples.append(example())
    for signature, method in (
        ("classification", "classify"),
        ("regression", "regress"),
    ):
        task = request.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.name, task.model_spec.signature_name = "clicks", signature
    return [r.WhichOneof("result") for r in stub.MultiInference(request, 60).results]


def metadata(stub):
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = "clicks"
    request.metadata_field.append("signature_def")
    packed = stub.GetModelMetadata(request, 60).metadata["signature_def"]
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert packed.Unpack(signatures)
    return sorted(signatures.signature_def)


def status(stub):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "clicks"
    response = stub.GetModelStatus(request, 60)
    return [[s.version, s.state] for s in response.model_version_status]


def reload_config(stub, base_path):
    request = model_management_pb2.ReloadConfigRequest()
    for name in ("clicks", "again"):
        request.config.model_config_list.config.add(
            name=name, base_path=base_path, model_platform="tensorflow"
        )
    response = stub.HandleReloadConfigRequest(request, 120)
    again = get_model_status_pb2.GetModelStatusRequest()
    again.model_spec.name = "again"
    states = stub.GetModelStatus(again, 60).model_version_status
    return [response.status.error_code, [s.state for s in states]]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
