"""What to write for the rest of TensorFlow: programs, input, files and devices.

`table.py` describes the format. `tf.train.X` and `tf.estimator.X` are looked up as `X`
if they have no row of their own.
"""

ADVICE = """
__version__ VERSION version.* GIT_VERSION COMPILER_VERSION GRAPH_DEF_VERSION
  GRAPH_DEF_VERSION_MIN_CONSUMER GRAPH_DEF_VERSION_MIN_PRODUCER CXX11_ABI_FLAG
  CXX_VERSION MONOLITHIC_BUILD: there is one version to support: remove the comparison,
  and keep the branch of TensorFlow 2. ex.__version__ is the version of estimax
compat.*: v1's names are here and in ex.feature_columns.v1, ex.metrics.v1,
  ex.optimizers.v1 and ex.losses; canned models have the argument compat="v1"
compat.as_bytes compat.as_str_any compat.as_text compat.as_str: = text.encode() or
  text.decode()
python.estimator.canned.head.*: = ex.heads.BaseHead, the class of heads
python.estimator.canned.optimizers.*: = ex.optimizers.as_optimizer("Ftrl"), or pass the
  name to ex.minimize
core.* pywrap_tensorflow: tensorflow.core has the messages of TensorFlow's own
  protocols; estimax has none of them, leave it out
python.*: tensorflow.python is private to TensorFlow; write the public name, and look
  for that in the guide "Migrate a tf.estimator program"
raw_ops.* user_ops.* load_op_library load_library load_file_system_library: TensorFlow's
  operations do not run in JAX; write them in jax.numpy, or call native code with
  jax.ffi.ffi_call
Module: = class Mine(nn.Module) of flax.linen
Tensor: = jax.Array
TensorSpec TypeSpec BoundedTensorSpec type_spec_from_value: = ex.input.TensorSpec(shape,
  dtype)
OptionalSpec resource variant: leave it out; arrays and bytes are the only values
contrib: tf.contrib is in parts. data is ex.input and ex.input.experimental; predictor
  is ex.export.load(path); layers are Flax layers, xavier_initializer is
  jax.nn.initializers.glorot_uniform(), l2_regularizer is ex.optimizers.l2, and
  optimize_loss is train_op=ex.optimizers.Adam(rate); eager is not needed; tpu is
  ex.Estimator, and distribute ex.RunConfig(devices=…); crf is ex.crf, lookup is
  ex.lookup; feature columns, heads, metrics and hooks are in ex.feature_columns,
  ex.heads, ex.metrics and ex.hooks. "estimax port FILE.py" names the counterpart of
  each
contrib.*: this module of tf.contrib has no counterpart; look for its purpose in the
  guide "Migrate a tf.estimator program": models are a model_fn with Flax layers for
  ex.Estimator

Session InteractiveSession Graph GraphDef GraphOptions MetaGraphDef NodeDef Operation
  AttrValue NameAttrList RunMetadata RunOptions OptimizerOptions LogMessage SessionLog
  Event get_default_graph get_default_session reset_default_graph get_session_handle
  get_session_tensor delete_session_tensor import_graph_def MonitoredTrainingSession
  MonitoredSession SingularMonitoredSession Supervisor SessionManager SessionCreator
  ChiefSessionCreator WorkerSessionCreator Coordinator LooperThread
  global_variables_initializer local_variables_initializer variables_initializer
  initialize_all_tables initialize_all_variables initialize_local_variables
  initialize_variables basic_train_loop graph_util.* container colocate_with init_scope
  wrap_function assert_equal_graph_def get_graph_from_inputs
  initializers.global_variables initializers.local_variables initializers.variables
  write_graph export_meta_graph import_meta_graph guarantee_const op AggregationMethod
  UnconnectedGradients RegisterGradient NoGradient NotDifferentiable no_gradient
  CriticalSection get_static_value smart_constant_value constant_value fuse_op
  register_tensor_conversion_function control_flow_v2_enabled inside_function
  executing_eagerly_outside_functions nondifferentiable_batch_function
  wait_for_new_checkpoint evaluate_once evaluate_repeatedly create_train_op: there are
  no sessions and graphs; the Estimator runs the model, and a hook reads values with
  context.fetch([name])
ConfigProto GPUOptions: there are no sessions to configure; choose devices with
  ex.RunConfig(devices=…), and the memory of a GPU with the environment variable
  XLA_PYTHON_CLIENT_MEM_FRACTION
DeviceSpec device device_fn replica_device_setter VariableDeviceChooser: leave it out;
  choose devices with ex.RunConfig(devices=…)
control_dependencies: operations run in the order that their values need; use ex.assign
  for variables, and nothing for statistics of batches
GraphKeys get_collection get_collection_ref add_to_collection add_to_collections: write
  ex.get_collection(ex.GraphKeys.TRAINABLE_VARIABLES, scope), and for losses
  ex.losses.add_loss(loss, collection); statistics of batches are updated by themselves
  (UPDATE_OPS)
placeholder placeholder_with_default get_placeholders: there are no placeholders; an
  input_fn yields features and labels, and an export takes the rows of
  ex.export.build_raw_serving_input_receiver_fn
function defun autograph.*: leave it out; estimax compiles the model. Write jax.jit(f)
  for your own functions
executing_eagerly in_eager_mode: = False
run_functions_eagerly functions_run_eagerly experimental_run_functions_eagerly
  experimental_functions_run_eagerly: = ex.RunConfig(debug=True), which runs the model
  line by line
disable_v2_behavior enable_v2_behavior disable_eager_execution enable_eager_execution
  disable_control_flow_v2 enable_control_flow_v2 disable_resource_variables
  enable_resource_variables resource_variables_enabled disable_tensor_equality
  enable_tensor_equality disable_v2_tensorshape enable_v2_tensorshape
  enable_remote_eager_execution enable_all disable_all: leave it out; there are no
  graphs
contrib.eager.*: eager execution is not needed; leave it out, or write
  ex.RunConfig(debug=True) to run the model line by line
tables_initializer initializers.tables_initializer: leave it out; nothing is
  initialized. Words and ids are in ex.lookup
get_logger logging.*: = logging.info(…) of Python's logging
logging.set_verbosity: leave it out; progress is shown. For less, write
  logging.getLogger("estimax").setLevel("ERROR")
logging.DEBUG logging.INFO logging.WARN logging.ERROR logging.FATAL: = logging.INFO of
  Python's logging
gfile.GFile gfile.FastGFile gfile.Open: = open(path)
gfile.Exists gfile.exists: = os.path.exists(path)
gfile.Glob gfile.glob: = glob.glob(pattern)
gfile.MakeDirs gfile.MkDir gfile.makedirs gfile.mkdir: = os.makedirs(path,
  exist_ok=True)
gfile.DeleteRecursively gfile.rmtree: = shutil.rmtree(path)
gfile.Remove gfile.remove: = os.remove(path)
gfile.ListDirectory gfile.listdir: = os.listdir(path)
gfile.IsDirectory gfile.isdir: = os.path.isdir(path)
gfile.Copy gfile.copy: = shutil.copy(source, target)
gfile.Rename gfile.rename: = os.rename(source, target)
gfile.Walk gfile.walk: = os.walk(path)
config.set_memory_growth config.get_memory_growth
  config.set_virtual_device_configuration config.set_logical_device_configuration
  config.VirtualDeviceConfiguration config.LogicalDeviceConfiguration: =
  XLA_PYTHON_CLIENT_PREALLOCATE=false, or XLA_PYTHON_CLIENT_MEM_FRACTION=0.5, in the
  environment
config.set_visible_devices: = ex.RunConfig(devices=…)
debugging.*: = ex.RunConfig(debug=True), which runs the model line by line
dtypes.*: dtypes are those of jax.numpy, or their names: "float32"
framework.* training.*: the names of this module are in the rest of TensorFlow; "estimax
  port FILE.py" names the counterpart of each
LazyLoader: leave it out; it is private to TensorFlow
logging: = Python's logging: logging.basicConfig(level="INFO") shows what estimax logs
app.* flags.*: = argparse, or the package absl-py with the same names: from absl import
  app, flags
resource_loader.* sysconfig.*: = pathlib.Path(__file__).parent
nest.*: = jax.tree.map(f, x), jax.tree.leaves(x)
test.*: = pytest or unittest, and NumPy's np.testing.assert_allclose
test.is_gpu_available test.gpu_device_name config.list_physical_devices
  config.list_logical_devices config.experimental_list_devices
  config.get_visible_devices list_devices num_gpus test.is_built_with_cuda
  test.is_built_with_gpu_support: = jax.devices()
errors.* OpError: = estimax.core.errors; the end of the input raises no error, and
  ex.NanLossDuringTrainingError is that of a loss that is not a number
errors.OutOfRangeError: leave it out; train and evaluate end with the data
profiler.*: = ex.ProfilerHook(save_steps=100, output_dir="profile")
xla.*: leave it out; every model is compiled by XLA
experimental.* mlir.* lite.* autodiff dtensor types.* tsl tools security.*: this module
  of TensorFlow is not for Estimators; leave it out
config.*: devices are chosen with ex.RunConfig(devices=…)
config.set_soft_device_placement config.get_soft_device_placement: leave it out
saved_model.*: there is no builder: write estimator.export_saved_model(folder), and
  ex.export.load(path) to read it; the arguments of a builder are export_outputs of
  ex.EstimatorSpec, such as ex.PredictOutput(predictions)
saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
  saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY: = "serving_default"
saved_model.PREDICT_METHOD_NAME saved_model.signature_constants.PREDICT_METHOD_NAME: =
  ex.export.PREDICT
saved_model.CLASSIFY_METHOD_NAME saved_model.signature_constants.CLASSIFY_METHOD_NAME: =
  ex.export.CLASSIFY
saved_model.REGRESS_METHOD_NAME saved_model.signature_constants.REGRESS_METHOD_NAME: =
  ex.export.REGRESS
saved_model.SERVING saved_model.tag_constants.*: leave it out; a bundle has no tags
saved_model.load_v2 saved_model.loader.* predictor.* contrib.predictor.*: =
  ex.export.load(path).predict(features); from an Estimator, estimator.predict(input_fn)
TensorInfo: = ex.export.TensorInfo

estimator: its names are at the top: write ex.Estimator, ex.DNNClassifier
estimator.*: names of tf.estimator are at the top of estimax: ex.Estimator,
  ex.DNNClassifier
estimator.boosted_trees_classifier_train_in_memory
  estimator.boosted_trees_regressor_train_in_memory contrib.boosted_trees
  contrib.boosted_trees.*: write ex.BoostedTreesClassifier(feature_columns) or
  ex.BoostedTreesRegressor(feature_columns), which train in memory
contrib.tensor_forest.*: write ex.RandomForestClassifier(feature_columns) or
  ex.RandomForestRegressor(feature_columns)
CheckpointInputPipelineHook: checkpoints include the position of the input; leave it
  out, unless ex.RunConfig(resume_input="restart")
FeedFnHook: there are no placeholders to feed; yield the values from the input_fn, as
  features
LinearSDCA contrib.linear_optimizer.* sdca_fprint sdca_optimizer sdca_shrink_l1: there
  is no dual solver. The same optimum: optimizer= ex.optimizers.ProximalAdagrad(0.1,
  l1_regularization_strength=l1 / n, l2_regularization_strength=l2 / n), with l1 and l2
  of LinearSDCA and n the number of training examples (the sum of their weights)
Scaffold: there is no graph to finish; load with Estimator(warm_start_from=…) what
  init_fn loads: ex.WarmStartSettings(path)
TPUEstimatorSpec: = ex.EstimatorSpec; metrics are values, such as
  eval_metric_ops={"auc": ex.metrics.auc(labels, scores)}
TPUConfig TPUEstimator InputPipelineConfig AsyncCheckpointSaverHook TPUInMemoryEvalHook
  tpu.* estimator.tpu.* contrib.tpu TPUDistributionStrategy: the same program runs on
  CPU, GPU and TPU; use ex.Estimator with params={"batch_size": n} in place of
  train_batch_size, and ex.RunConfig(iterations_per_loop=n) for n steps in each compiled
  call
tpu.CrossShardOptimizer: = the optimizer itself; gradients are summed over all devices
tpu.cross_replica_sum: leave it out; losses and gradients are summed over all devices
tpu.bfloat16_scope: = ex.RunConfig(precision="bfloat16")
EvalOutput TrainOutput: signatures predict: return ex.PredictOutput,
  ex.ClassificationOutput or ex.RegressionOutput. Evaluate with estimator.evaluate, or
  with the bundle that estimator.experimental_export_all_saved_models writes
DNNClassifierWithLayerAnnotations DNNRegressorWithLayerAnnotations: = ex.DNNClassifier
  or ex.DNNRegressor
SavedModelEstimator: = ex.export.load(path).predict(features)
binary_classification_head logistic_regression_head: = ex.BinaryClassHead() or
  ex.LogisticRegressionHead()
multi_class_head: = ex.MultiClassHead(n)
multi_head: = ex.MultiHead(heads)
multi_label_head: = ex.MultiLabelHead(n)
poisson_regression_head: = ex.PoissonRegressionHead()
regression_head: = ex.RegressionHead()
binary_svm_head: = ex.BinaryClassHead(loss_fn=f), with f of ex.losses.hinge_loss
replicate_model_fn TowerOptimizer: = ex.RunConfig(devices=…); a model_fn is the same for
  one device and several
export_all_saved_models export_saved_model_for_mode: =
  estimator.experimental_export_all_saved_models(folder, receivers)
build_supervised_input_receiver_fn_from_input_fn: =
  ex.experimental.build_raw_supervised_input_receiver_fn(features, labels)
contrib.learn.*: tf.contrib.learn became tf.estimator, whose names are at the top:
  ex.Estimator, ex.DNNClassifier, ex.RunConfig
contrib.learn.Experiment contrib.learn.learn_runner: = ex.train_and_evaluate(estimator,
  ex.TrainSpec(input_fn), ex.EvalSpec(input_fn))
contrib.learn.ModelFnOps: = ex.EstimatorSpec
contrib.learn.MetricSpec: = eval_metric_ops of ex.EstimatorSpec, or ex.add_metrics
contrib.learn.SVM contrib.learn.KernelLinearClassifier contrib.kernel_methods
  contrib.kernel_methods.*: = ex.LinearClassifier(columns), or ex.Estimator with
  ex.losses.hinge_loss
contrib.learn.KMeansClustering contrib.factorization.*: = ex.KMeans for clusters; a
  factorization is two tables of ex.get_variable and ex.embedding_lookup in a model_fn
contrib.learn.LogisticRegressor: = ex.LinearClassifier(columns)
contrib.learn.DynamicRnnEstimator contrib.learn.StateSavingRnnEstimator: =
  ex.RNNEstimator or ex.RNNClassifier
contrib.learn.build_parsing_serving_input_fn contrib.learn.InputFnOps: =
  ex.export.build_parsing_serving_input_receiver_fn(spec)
contrib.learn.make_export_strategy contrib.learn.ExportStrategy: = ex.LatestExporter or
  ex.BestExporter, in ex.EvalSpec(exporters=…)
contrib.timeseries.*: estimax has no time series models; use ex.RNNEstimator, or
  ex.DNNRegressor of lagged features
contrib.slim.* arg_scope add_arg_scope arg_scoped_arguments current_arg_scope
  has_arg_scope: layers are Flax layers; write the arguments at each layer, or
  functools.partial(nn.Dense, use_bias=False)
HParams HParamDef parse_values: = a dict as params of ex.Estimator, or a run file
  ("estimax train run.yaml --set key=value")

Optimizer: own optimizers are transformations of optax: optax.chain, or
  optax.GradientTransformation(init, update)
AdagradDAOptimizer: = ex.optimizers.Ftrl(0.05), which is the dual averaging of today
SyncReplicasOptimizer DropStaleGradientOptimizer: = the optimizer itself; devices and
  processes train in step
ElasticAverageOptimizer MultitaskOptimizerWrapper VariableClippingOptimizer: =
  ex.optimizers.Adam(1e-3)
piecewise_constant_decay: = ex.optimizers.piecewise_constant(boundaries, values),
  without the step
get_global_step get_or_create_global_step create_global_step global_step
  assert_global_step assert_or_get_global_step: the Estimator counts steps; write
  ex.get_global_step() in a model_fn, and in a hook context.step
Saver SaverDef Checkpoint CheckpointManager CheckpointOptions CheckpointView
  TrackableView checkpoint_exists checkpoints_iterator get_checkpoint_mtimes
  get_checkpoint_state generate_checkpoint_state_proto remove_checkpoint
  update_checkpoint_state NewCheckpointReader load_checkpoint contrib.checkpoint.*
  contrib.saved_model.*: the Estimator saves; see ex.RunConfig(keep_checkpoint_max=5)
  and ex.CheckpointSaverHook; estimator.get_variable_value(name) reads
latest_checkpoint: = estimator.latest_checkpoint()
list_variables: = estimator.get_variable_names()
load_variable: = estimator.get_variable_value(name)
init_from_checkpoint warm_start assign_from_checkpoint assign_from_checkpoint_fn
  assign_from_values assign_from_values_fn load_and_remap_matrix_initializer
  load_embedding_initializer load_linear_multiclass_bias_initializer
  load_variable_slot_initializer: = ex.Estimator(model_fn, warm_start_from=
  ex.WarmStartSettings(path, vars_to_warm_start))
ClusterDef ClusterSpec JobDef Server ServerDef distribute.Server: =
  ex.RunConfig(cluster=…) or TF_CONFIG; the Estimator connects the processes
distribute.*: there are no strategies; JAX uses the devices of the process:
  ex.RunConfig(devices=…) for several devices, ex.RunConfig(cluster=…) for several
  machines
distribute.cluster_resolver.* contrib.cluster_resolver.*: = ex.RunConfig(cluster=…), or
  TF_CONFIG, which is read by ex.RunConfig()
distribute.InputContext: = ex.input.InputContext
BytesList FloatList Int64List Features FeatureList FeatureLists Feature Example: =
  ex.input.Example.of({"age": 31})
SequenceExample: = ex.input.SequenceExample
train: optimizers and learning rate schedules are in ex.optimizers (those with the
  arguments of tf.train in ex.optimizers.v1, such as AdamOptimizer), hooks in ex.hooks,
  Example and Feature in ex.input; the Estimator reads and writes checkpoints
train.*: the Estimator trains: ex.RunConfig, ex.hooks and ex.optimizers have what
  tf.train had
train.experimental.*: = ex.RunConfig(precision="bfloat16") for mixed precision
batch batch_join maybe_batch maybe_batch_join shuffle_batch shuffle_batch_join
  maybe_shuffle_batch maybe_shuffle_batch_join input_producer range_input_producer
  slice_input_producer string_input_producer limit_epochs add_queue_runner
  start_queue_runners QueueRunner queue_runner.* FIFOQueue PaddingFIFOQueue
  PriorityQueue QueueBase RandomShuffleQueue queue.* ConditionalAccumulator
  ConditionalAccumulatorBase FixedLengthRecordReader IdentityReader LMDBReader
  ReaderBase TFRecordReader TextLineReader WholeFileReader RecordInput bucket
  batch_sequences_with_states rejection_sample resample_at_rate stratified_sample
  weighted_resample FeedingQueueRunner NextQueuedSequenceBatch
  SequenceQueueingStateSaver: there are no queues; write a dataset:
  ex.input.TFRecordDataset(files).shuffle(1000).batch(128)
match_filenames_once matching_files: = ex.input.Dataset.list_files(pattern), or a
  pattern in place of the files
summary_iterator: = ex.summary.read_scalars(folder)
StopAfterNEvalsHook SummaryAtEndHook add_gradients_summaries multiply_gradients: leave
  it out; evaluate counts its steps with steps=n and writes its summaries

data: datasets are in ex.input: ex.input.Dataset, ex.input.TFRecordDataset
data.*: datasets are in ex.input: ex.input.Dataset, ex.input.TFRecordDataset; the verbs
  are methods, such as dataset.batch(128)
data.experimental.* contrib.data: = the method of a dataset, such as dataset.unbatch(),
  or ex.input.experimental
data.Iterator data.NumpyIterator data.IteratorSpec data.make_initializable_iterator
  data.make_one_shot_iterator: return the dataset from the input_fn
data.DatasetSpec data.get_output_classes data.get_output_shapes data.get_output_types: =
  dataset.element_spec
data.ThreadingOptions data.experimental.ThreadingOptions
  data.experimental.OptimizationOptions data.experimental.StatsOptions
  data.experimental.MapVectorizationOptions data.experimental.AutotuneOptions
  data.experimental.StatsAggregator data.experimental.latency_stats
  data.experimental.bytes_produced_stats data.experimental.prefetch_to_device
  data.experimental.copy_to_device data.experimental.set_stats_aggregator: leave it out;
  batches are prefetched to the device, and dataset.profile() measures a pipeline
data.INFINITE_CARDINALITY: = ex.input.experimental.INFINITE_CARDINALITY
data.UNKNOWN_CARDINALITY: = ex.input.experimental.UNKNOWN_CARDINALITY
data.experimental.Counter data.experimental.RandomDataset: = ex.input.Dataset.counter()
  or ex.input.Dataset.random()
data.experimental.SqlDataset data.experimental.LMDBDataset: =
  ex.input.Dataset.from_generator(rows), with rows of sqlite3 or lmdb
data.experimental.TFRecordWriter: = ex.input.TFRecordWriter(path)
data.experimental.parse_example_dataset: = dataset.map(lambda x:
  ex.input.parse_example(x, spec))
data.experimental.dense_to_sparse_batch: = dataset.sparse_batch(n, shape)
data.experimental.dense_to_ragged_batch: = dataset.ragged_batch(n)
data.experimental.sliding_window_batch: = dataset.window(n, shift=1)
data.experimental.sloppy_interleave: = dataset.interleave(f, cycle_length=4)
data.experimental.batch_and_drop_remainder
  data.experimental.padded_batch_and_drop_remainder: = dataset.batch(n,
  drop_remainder=True)
data.experimental.read_batch_features: = ex.input.make_batched_features_dataset
data.experimental.from_list: = ex.input.Dataset.from_tensor_slices(rows)
data.experimental.save data.experimental.load: = dataset.save(path),
  ex.input.Dataset.load(path)
data.experimental.snapshot: = dataset.snapshot(path)
data.experimental.get_single_element: = dataset.get_single_element()
data.experimental.index_table_from_dataset data.experimental.table_from_dataset: =
  ex.lookup.string_to_index(words, vocabulary)
data.experimental.service: there is no service for data; run more processes with
  ex.RunConfig(cluster=…)
io: parsers are in ex.input: ex.input.parse_example, ex.input.FixedLenFeature
io.*: parsers are in ex.input: ex.input.parse_example, ex.input.FixedLenFeature
python_io: = ex.input.TFRecordWriter(path), and ex.input.TFRecordDataset(path) to read
tf_record_iterator: = ex.input.TFRecordDataset(path), which can be iterated
TFRecordCompressionType: = "GZIP"
gfile.* io.gfile.*: files are opened with open(), found with glob.glob and written with
  pathlib; ex.input reads local files, URLs and patterns
read_file: = open(path, "rb").read()
write_file: = open(path, "wb").write(data)
parse_tensor serialize_tensor: = np.frombuffer(text, dtype), x.tobytes() in Dataset.map
serialize_many_sparse serialize_sparse deserialize_many_sparse: = ex.Sparse(indices,
  values, dense_shape) itself
decode_proto encode_proto: use the package protobuf in Dataset.map
image.* io.decode_image io.decode_jpeg io.decode_png io.decode_bmp io.decode_gif
  io.decode_and_crop_jpeg io.encode_jpeg io.encode_png io.extract_jpeg_shape io.is_jpeg
  contrib.image.*: read and change images in ex.input.Dataset.map, with Pillow and
  NumPy: np.asarray(Image.open(io.BytesIO(data)))
image.resize image.resize_images image.resize_bilinear image.resize_bicubic
  image.resize_nearest_neighbor image.resize_area: = jax.image.resize(x, (n, 224, 224,
  3), "bilinear")
image.per_image_standardization: = (x - x.mean()) / np.maximum(x.std(), 1 / x.size**0.5)
image.flip_left_right image.random_flip_left_right: = x[:, ::-1] of an image in
  Dataset.map
image.flip_up_down image.random_flip_up_down: = x[::-1] of an image in Dataset.map
image.convert_image_dtype: = x.astype("float32") / 255
image.rgb_to_grayscale: = x @ np.array([0.2989, 0.587, 0.114])

lookup lookup.StaticHashTable lookup.StaticVocabularyTable lookup.TextFileInitializer
  lookup.KeyValueTensorInitializer lookup.HashTable lookup.index_table_from_file
  lookup.index_table_from_tensor lookup.string_to_index_table_from_file
  lookup.string_to_index_table_from_tensor lookup.TextFileIdTableInitializer
  lookup.IdTableWithHashBuckets lookup.TextFileIndex: = ex.lookup.string_to_index(words,
  vocabulary, num_oov_buckets)
lookup.index_to_string_table_from_file lookup.index_to_string_table_from_tensor
  lookup.TextFileStringTableInitializer: = ex.lookup.index_to_string(ids, vocabulary)
lookup.*: = ex.lookup.string_to_index(words, vocabulary, num_oov_buckets), or
  ex.lookup.index_to_string(ids, vocabulary); tables that change while a model trains do
  not exist
feature_column: = ex.feature_columns
feature_column.*: feature columns are in ex.feature_columns
summary.FileWriter summary.FileWriterCache summary.create_file_writer
  summary.create_summary_file_writer summary.create_db_writer summary.initialize
  summary.Event summary.Summary summary.SessionLog summary.SummaryWriter Summary
  HistogramProto SummaryMetadata: train and evaluate write the summaries; for your own
  file write ex.summary.SummaryWriter(folder)
summary.*: summaries are in ex.summary: write ex.summary.scalar(name, value) in a
  model_fn
summary.merge summary.merge_all summary.all_v2_summary_ops summary.all_summary_ops
  summary.always_record_summaries summary.record_summaries_every_n_global_steps
  summary.never_record_summaries summary.should_record_summaries summary.flush
  summary.tensor_summary summary.record_if: leave it out; every ex.summary.scalar of the
  model_fn is written each ex.RunConfig(save_summary_steps=100) steps
crf.*: = ex.crf.crf_log_likelihood, ex.crf.crf_decode
hooks.*: hooks are in ex.hooks
SparseFeature: = ex.input.SparseFeature

train.exponential_decay train.natural_exp_decay train.inverse_time_decay: =
  ex.optimizers.exponential_decay(rate, decay_steps, decay_rate), without the step, as
  the learning rate of an optimizer; likewise natural_exp_decay, inverse_time_decay
train.polynomial_decay: = ex.optimizers.polynomial_decay(rate, decay_steps, end_rate),
  without the step, as the learning rate of an optimizer
train.cosine_decay train.cosine_decay_restarts train.linear_cosine_decay
  train.noisy_linear_cosine_decay: = ex.optimizers.cosine_decay(rate, decay_steps),
  without the step, as the learning rate of an optimizer; likewise
  cosine_decay_restarts, linear_cosine_decay
train.piecewise_constant train.piecewise_constant_decay: =
  ex.optimizers.piecewise_constant(boundaries, values), without the step, as the
  learning rate of an optimizer
"""

# Names that estimax has too, with another meaning: a person decides.
DIFFERS = {"__version__", "train.Optimizer"}

# Methods that programs call on objects, with what to do instead.
METHODS = {
    "minimize": (
        "return train_op=optimizer, or ex.minimize(optimizer, var_list=prefix)"
    ),
    "apply_gradients": "return train_op=optimizer",
    "as_list": "a shape is a tuple: write list(x.shape)",
    "assign_add": "write ex.assign(variable, variable + x)",
    "assign_sub": "write ex.assign(variable, variable - x)",
    "compute_gradients": (
        "return train_op=optimizer; clip with global_clipnorm=…, and change gradients "
        "with ex.minimize(optimizer, clip=function)"
    ),
    "get_next": "return the dataset from the input_fn",
    "get_shape": "write x.shape, a tuple of ints",
    "make_initializable_iterator": "return the dataset from the input_fn",
    "make_one_shot_iterator": "return the dataset from the input_fn",
    "set_shape": "leave it out; shapes are known",
}
RENAMED_METHODS = {"export_savedmodel": "export_saved_model"}

_NO_GRAPH = "leave it out; there are no sessions and graphs"
_DEVICES = "write devices=… in its place"
# Arguments that do not exist, or only for TensorFlow's positions: what to write.
ARGUMENTS = {
    "ex.RunConfig": {
        "session_config": f"{_NO_GRAPH}. Devices are chosen with devices=…",
        "device_fn": _DEVICES,
        "protocol": _NO_GRAPH,
        "train_distribute": _DEVICES,
        "eval_distribute": _DEVICES,
        "experimental_distribute": _DEVICES,
        "master": "write cluster=…, or set TF_CONFIG",
        "tpu_config": "write iterations_per_loop=n in its place",
    },
    "ex.summary.scalar": {"family": "write it before the name: family/name"},
    "ex.variable_scope": {
        "default_name": "write it in place of the name; it is not made unique"
    },
    "ex.CheckpointSaverHook": dict.fromkeys(
        ("saver", "scaffold", "checkpoint_basename"), _NO_GRAPH
    ),
    "ex.SummarySaverHook": dict.fromkeys(("scaffold", "summary_op"), _NO_GRAPH),
    "ex.FinalOpsHook": {"final_ops_feed_dict": _NO_GRAPH},
    "ex.EstimatorSpec": {
        "scaffold": "load with Estimator(warm_start_from=…) what its init_fn loads"
    },
}
