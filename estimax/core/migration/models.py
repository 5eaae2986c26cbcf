"""What to write for TensorFlow's layers, losses, metrics, optimizers and variables.

`table.py` describes the format. `tf.keras.layers.X` is looked up as `layers.X`, and
`tf.contrib.rnn.X` as `nn.rnn_cell.X`.
"""

ADVICE = """
layers.*: layers are Flax layers, written inline in the model_fn: import flax.linen as
  nn, then net = nn.relu(nn.Dense(64)(net))
layers.dense layers.Dense layers.linear: = nn.Dense(64,
  kernel_init=nn.initializers.glorot_uniform())(x)
layers.fully_connected: = nn.relu(nn.Dense(64,
  kernel_init=nn.initializers.glorot_uniform())(x)); its default has a relu
layers.Layer layers.Wrapper: = class Mine(nn.Module) with fields for the arguments of
  __init__, and @nn.compact def __call__(self, x) for build and call;
  self.add_weight(name, shape, initializer) is self.param(name, initializer, shape)
layers.Activation: = nn.relu(x), nn.tanh(x) …, the function itself
layers.ActivityRegularization: = ex.losses.add_loss(0.01 * jnp.sum(x**2))
layers.Add layers.add: = a + b
layers.Attention layers.AdditiveAttention layers.MultiHeadAttention: =
  nn.MultiHeadDotProductAttention(num_heads=4)(query, keys)
layers.Average layers.average: = (a + b) / 2
layers.AveragePooling1D layers.AvgPool1D layers.average_pooling1d: = nn.avg_pool(x,
  (2,), strides=(2,))
layers.AveragePooling2D layers.AvgPool2D layers.average_pooling2d layers.avg_pool2d: =
  nn.avg_pool(x, (2, 2), strides=(2, 2))
layers.AveragePooling3D layers.AvgPool3D layers.average_pooling3d layers.avg_pool3d: =
  nn.avg_pool(x, (2, 2, 2), strides=(2, 2, 2))
layers.BatchNormalization layers.batch_normalization: =
  nn.BatchNorm(use_running_average=mode != ex.ModeKeys.TRAIN, epsilon=1e-3)(x);
  statistics are updated automatically
layers.batch_norm: = nn.BatchNorm(use_running_average=mode != ex.ModeKeys.TRAIN,
  momentum=0.999, epsilon=1e-3, use_scale=False)(x); statistics are updated
  automatically
layers.Bidirectional: = nn.Bidirectional(nn.RNN(nn.LSTMCell(units)),
  nn.RNN(nn.LSTMCell(units)))(x, seq_lengths=lengths)
layers.Concatenate layers.concatenate: = jnp.concatenate([a, b], -1)
layers.Conv1D layers.Convolution1D layers.conv1d layers.convolution1d: = nn.Conv(32,
  (3,), padding="VALID")(x)
layers.Conv2D layers.Convolution2D layers.conv2d layers.convolution2d
  layers.convolution: = nn.Conv(32, (3, 3), padding="VALID")(x); that of
  tf.contrib.layers pads, padding= "SAME", and ends with nn.relu
layers.Conv3D layers.Convolution3D layers.conv3d layers.convolution3d: = nn.Conv(32, (3,
  3, 3), padding="VALID")(x)
layers.Conv1DTranspose layers.Convolution1DTranspose layers.Conv2DTranspose
  layers.Convolution2DTranspose layers.conv2d_transpose layers.convolution2d_transpose
  layers.Conv3DTranspose layers.Convolution3DTranspose layers.conv3d_transpose
  layers.convolution3d_transpose: = nn.ConvTranspose(32, (3, 3), padding="VALID")(x)
layers.ConvLSTM1D layers.ConvLSTM2D layers.ConvLSTM3D: = nn.RNN(nn.ConvLSTMCell(32, (3,
  3)))(x)
layers.Cropping1D layers.Cropping2D layers.Cropping3D: = x[:, 1:-1]
layers.DepthwiseConv1D layers.DepthwiseConv2D: = nn.Conv(c, (3, 3), padding="VALID",
  feature_group_count=c)(x), with c channels in
layers.Dot layers.dot: = jnp.einsum("bd,bd->b", a, b)[:, None]
layers.Dropout layers.dropout layers.AlphaDropout layers.GaussianDropout
  layers.SpatialDropout1D layers.SpatialDropout2D layers.SpatialDropout3D: =
  nn.Dropout(0.1, deterministic=mode != ex.ModeKeys.TRAIN)(x); keep_prob is 1 - rate
layers.ELU: = nn.elu(x)
layers.EinsumDense: = nn.Einsum((3, 4), "ab,bc->ac")(x)
layers.Embedding layers.embed_sequence layers.embedding_lookup_unique: =
  ex.embedding_lookup(ex.get_variable("embeddings", (n, d)), ids)
layers.Flatten layers.flatten: = x.reshape((x.shape[0], -1))
layers.GRU layers.CuDNNGRU: = nn.RNN(nn.GRUCell(units))(x, seq_lengths=lengths)
layers.LSTM layers.CuDNNLSTM: = nn.RNN(nn.LSTMCell(units))(x, seq_lengths=lengths)
layers.RNN layers.SimpleRNN: = nn.RNN(nn.SimpleCell(units))(x, seq_lengths=lengths)
layers.GRUCell nn.rnn_cell.GRUCell: = nn.GRUCell(units), in nn.RNN(nn.GRUCell(units))
layers.LSTMCell nn.rnn_cell.LSTMCell nn.rnn_cell.BasicLSTMCell
  nn.rnn_cell.LSTMStateTuple nn.rnn_cell.LSTMBlockCell nn.rnn_cell.LSTMBlockFusedCell
  nn.rnn_cell.LayerNormBasicLSTMCell: = nn.LSTMCell(units), in
  nn.RNN(nn.LSTMCell(units))
layers.SimpleRNNCell layers.AbstractRNNCell nn.rnn_cell.BasicRNNCell
  nn.rnn_cell.RNNCell: = nn.SimpleCell(units), in nn.RNN(nn.SimpleCell(units)); an own
  cell is a subclass of nn.RNNCellBase
layers.StackedRNNCells nn.rnn_cell.MultiRNNCell: = one nn.RNN after another
nn.rnn_cell.DropoutWrapper nn.RNNCellDropoutWrapper: = nn.Dropout between two nn.RNN
nn.rnn_cell.ResidualWrapper nn.rnn_cell.HighwayWrapper nn.RNNCellResidualWrapper: = x +
  nn.RNN(cell)(x)
nn.rnn_cell.* rnn cudnn_rnn.*: cells are Flax cells: write nn.RNN(nn.LSTMCell(units))(x,
  seq_lengths=lengths)
layers.GaussianNoise: = x + stddev * jax.random.normal(self.make_rng("dropout"),
  x.shape), in a Flax module, if training
layers.GlobalAveragePooling1D layers.GlobalAvgPool1D: = jnp.mean(x, 1)
layers.GlobalAveragePooling2D layers.GlobalAvgPool2D layers.GlobalAveragePooling3D
  layers.GlobalAvgPool3D: = jnp.mean(x, (1, 2))
layers.GlobalMaxPool1D layers.GlobalMaxPooling1D: = jnp.max(x, 1)
layers.GlobalMaxPool2D layers.GlobalMaxPooling2D layers.GlobalMaxPool3D
  layers.GlobalMaxPooling3D: = jnp.max(x, (1, 2))
layers.GroupNormalization layers.group_norm: = nn.GroupNorm()(x)
layers.instance_norm: = nn.InstanceNorm()(x)
layers.Hashing layers.HashedCrossing: =
  ex.feature_columns.categorical_column_with_hash_bucket(key, n), or
  ex.feature_columns.crossed_column
layers.Identity layers.Masking layers.InputSpec: leave it out; a mask is a feature of
  its own, or seq_lengths of nn.RNN
layers.Input layers.InputLayer keras.Input: there are no placeholders: the model_fn
  receives features
layers.IntegerLookup layers.StringLookup: = ex.lookup.string_to_index(words, vocabulary,
  num_oov_buckets), or ex.feature_columns.categorical_column_with_vocabulary_list
layers.Lambda: = the function itself, such as jnp.square(x)
layers.LayerNormalization: = nn.LayerNorm(epsilon=1e-3)(x)
layers.layer_norm: = nn.LayerNorm(epsilon=1e-12, reduction_axes=range(1, x.ndim),
  feature_axes=-1)(x)
layers.LeakyReLU: = nn.leaky_relu(x, 0.3)
layers.LocallyConnected1D layers.LocallyConnected2D: = nn.ConvLocal(32, (3, 3),
  padding="VALID")(x)
layers.MaxPool1D layers.MaxPooling1D layers.max_pooling1d: = nn.max_pool(x, (2,),
  strides=(2,))
layers.MaxPool2D layers.MaxPooling2D layers.max_pooling2d layers.max_pool2d: =
  nn.max_pool(x, (2, 2), strides=(2, 2))
layers.MaxPool3D layers.MaxPooling3D layers.max_pooling3d layers.max_pool3d: =
  nn.max_pool(x, (2, 2, 2), strides=(2, 2, 2))
layers.Maximum layers.maximum: = jnp.maximum(a, b)
layers.Minimum layers.minimum: = jnp.minimum(a, b)
layers.Multiply layers.multiply: = a * b
layers.Subtract layers.subtract: = a - b
layers.Normalization: = ex.feature_columns.numeric_column(key, normalizer_fn=f)
layers.PReLU: = nn.PReLU()(x)
layers.Permute: = jnp.transpose(x, (0, 2, 1))
layers.ReLU layers.ThresholdedReLU: = nn.relu(x)
layers.RepeatVector: = jnp.repeat(x[:, None], n, 1)
layers.Rescaling: = x * scale + offset
layers.Reshape: = x.reshape((x.shape[0], *shape))
layers.SeparableConv1D layers.SeparableConvolution1D layers.separable_conv1d
  layers.SeparableConv2D layers.SeparableConvolution2D layers.separable_conv2d
  layers.separable_convolution2d: = nn.Conv(32, (1, 1))(nn.Conv(c, (3, 3),
  padding="VALID", feature_group_count=c, use_bias=False)(x)), with c channels in
layers.Softmax: = nn.softmax(x)
layers.SpectralNormalization: = nn.SpectralNorm(nn.Dense(64))(x, update_stats=training)
layers.TextVectorization layers.CategoryEncoding layers.Discretization: use a feature
  column: ex.feature_columns.categorical_column_with_vocabulary_file,
  ex.feature_columns.indicator_column, ex.feature_columns.bucketized_column
layers.TimeDistributed: = the layer itself: nn.Dense works on the last axis of [B, T, D]
layers.UpSampling1D layers.UpSampling2D layers.UpSampling3D layers.Resizing: =
  jax.image.resize(x, shape, "nearest")
layers.ZeroPadding1D layers.ZeroPadding2D layers.ZeroPadding3D: = jnp.pad(x, ((0, 0),
  (1, 1), (1, 1), (0, 0)))
layers.DenseFeatures: = ex.feature_columns.DenseFeatures(columns)(features)
layers.RandomBrightness layers.RandomContrast layers.RandomCrop layers.RandomFlip
  layers.RandomHeight layers.RandomRotation layers.RandomTranslation layers.RandomWidth
  layers.RandomZoom layers.CenterCrop: change images in Dataset.map, with NumPy or
  Pillow
layers.maxout: = jnp.max(x.reshape((*x.shape[:-1], n, -1)), -1)
layers.bow_encoder: = jnp.mean(ex.embedding_lookup(table, ids), 1)
layers.optimize_loss: = train_op=ex.optimizers.Adam(rate, global_clipnorm=5.0) in
  ex.EstimatorSpec; a schedule is the learning rate, and train logs loss and rate
layers.summarize_activation layers.summarize_activations layers.summarize_collection
  layers.summarize_tensor layers.summarize_tensors: = ex.summary.histogram(name, x)
layers.apply_regularization layers.sum_regularizer: = ex.regularization_losses()
layers.l1_regularizer: = ex.get_variable(name, shape,
  regularizer=ex.optimizers.l1(0.01))
layers.l2_regularizer: = ex.get_variable(name, shape, regularizer=ex.optimizers.l2(scale
  / 2)): ex.optimizers.l2 is that of Keras, and tf.contrib's had half of it
layers.l1_l2_regularizer: = ex.get_variable(name, shape,
  regularizer=ex.optimizers.l1_l2(l1, l2 / 2)): tf.contrib's had half of the l2 penalty
layers.real_valued_column: = ex.feature_columns.numeric_column(key)
layers.sparse_column_with_hash_bucket layers.sparse_column_with_integerized_feature
  layers.sparse_column_with_keys layers.sparse_column_with_vocabulary_file: =
  ex.feature_columns.categorical_column_with_hash_bucket(key, n),
  categorical_column_with_identity, …_with_vocabulary_list or …_with_vocabulary_file
layers.one_hot_column: = ex.feature_columns.indicator_column(column)
layers.weighted_sparse_column: = ex.feature_columns.weighted_categorical_column
layers.bucketized_column layers.crossed_column layers.embedding_column
  layers.shared_embedding_columns layers.scattered_embedding_column: =
  ex.feature_columns.bucketized_column, crossed_column, embedding_column or
  shared_embeddings
layers.create_feature_spec_for_parsing layers.parse_feature_columns_from_examples
  layers.parse_feature_columns_from_sequence_examples: =
  ex.feature_columns.make_parse_example_spec(columns)
layers.input_from_feature_columns layers.transform_features layers.check_feature_columns
  layers.infer_real_valued_columns layers.make_place_holder_tensors_for_base_features: =
  ex.feature_columns.input_layer(features, columns)
layers.sequence_input_from_feature_columns: =
  ex.feature_columns.sequence_input_layer(features, columns)
layers.weighted_sum_from_feature_columns layers.joint_weighted_sum_from_feature_columns:
  = ex.feature_columns.linear_model(features, columns)
layers.multi_class_target layers.regression_target: = ex.MultiClassHead(n) or
  ex.RegressionHead()
layers.safe_embedding_lookup_sparse nn.safe_embedding_lookup_sparse: =
  ex.embedding_lookup_sparse(table, ids, weights, combiner)
layers.elu layers.relu layers.relu6 layers.softmax: = jax.nn.relu(x), jax.nn.elu,
  jax.nn.relu6, jax.nn.softmax
layers.repeat layers.stack: write the layers one after another, in a Python loop
layers.bias_add: = x + ex.get_variable("biases", (d,))
layers.scale_gradient: = x * s + jax.lax.stop_gradient(x * (1 - s))

initializers.*: initializers are functions of JAX: write
  jax.nn.initializers.glorot_uniform() in ex.get_variable(name, shape, initializer=…)
constant_initializer initializers.constant initializers.Constant: =
  jax.nn.initializers.constant(0.1)
glorot_normal_initializer initializers.glorot_normal initializers.GlorotNormal: =
  jax.nn.initializers.glorot_normal(); it needs two axes
glorot_uniform_initializer initializers.glorot_uniform initializers.GlorotUniform
  layers.xavier_initializer layers.xavier_initializer_conv2d: =
  jax.nn.initializers.glorot_uniform(), the default of ex.get_variable
initializers.he_normal initializers.HeNormal: = jax.nn.initializers.he_normal()
initializers.he_uniform initializers.HeUniform: = jax.nn.initializers.he_uniform()
initializers.lecun_normal initializers.LecunNormal: = jax.nn.initializers.lecun_normal()
initializers.lecun_uniform initializers.LecunUniform: =
  jax.nn.initializers.lecun_uniform()
initializers.identity initializers.Identity: = lambda key, shape, dtype: jnp.eye(*shape)
ones_initializer initializers.ones initializers.Ones: = jax.nn.initializers.ones
orthogonal_initializer initializers.orthogonal initializers.Orthogonal
  convolutional_delta_orthogonal convolutional_orthogonal_1d convolutional_orthogonal_2d
  convolutional_orthogonal_3d: = jax.nn.initializers.orthogonal()
random_normal_initializer initializers.random_normal initializers.RandomNormal: =
  jax.nn.initializers.normal(stddev), with stddev: the default is 1.0 in v1, 0.05 in
  Keras and 0.01 in JAX
random_uniform_initializer initializers.random_uniform initializers.RandomUniform: =
  lambda key, shape, dtype: jax.random.uniform(key, shape, dtype, low, high);
  jax.nn.initializers.uniform(scale) draws from 0 to scale
truncated_normal_initializer initializers.truncated_normal initializers.TruncatedNormal:
  = jax.nn.initializers.truncated_normal(stddev), with stddev: the default is 1.0 in v1,
  0.05 in Keras and 0.01 in JAX
uniform_unit_scaling_initializer initializers.uniform_unit_scaling: =
  jax.nn.initializers.variance_scaling(1.0, "fan_in", "uniform")
variance_scaling_initializer initializers.variance_scaling initializers.VarianceScaling:
  = jax.nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
layers.variance_scaling_initializer: = jax.nn.initializers.he_normal(), the same as its
  defaults
zeros_initializer zero_initializer initializers.zeros initializers.Zeros: =
  jax.nn.initializers.zeros

nn.*: functions are JAX's and layers Flax's: jax.nn.relu, jax.nn.softmax,
  flax.linen.Dense, flax.linen.Conv; cross entropies are in ex.losses
nn.batch_normalization nn.batch_norm_with_global_normalization nn.fused_batch_norm: = (x
  - mean) / jnp.sqrt(variance + epsilon) * scale + offset, or the layer nn.BatchNorm
nn.bias_add: = x + b
nn.bidirectional_dynamic_rnn nn.static_bidirectional_rnn
  nn.rnn_cell.static_bidirectional_rnn nn.rnn_cell.stack_bidirectional_dynamic_rnn
  nn.rnn_cell.stack_bidirectional_rnn: = nn.Bidirectional(nn.RNN(nn.LSTMCell(units)),
  nn.RNN(nn.LSTMCell(units)))(x, seq_lengths=lengths)
nn.dynamic_rnn nn.static_rnn nn.raw_rnn nn.static_state_saving_rnn
  nn.rnn_cell.static_rnn: = nn.RNN(nn.LSTMCell(units))(x, seq_lengths=lengths)
nn.compute_average_loss nn.scale_regularization_loss: = jnp.mean(losses)
nn.conv1d nn.conv2d nn.conv3d nn.convolution nn.atrous_conv2d nn.depthwise_conv2d
  nn.depthwise_conv2d_native nn.separable_conv2d: = nn.Conv(32, (3, 3))(x), or
  jax.lax.conv_general_dilated(x, kernel, strides, padding, dimension_numbers=("NHWC",
  "HWIO", "NHWC")) with your own variable
nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose nn.conv_transpose
  nn.atrous_conv2d_transpose: = jax.lax.conv_transpose(x, kernel, strides, padding)
nn.avg_pool nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.avg_pool_v2 nn.pool
  nn.fractional_avg_pool: = nn.avg_pool(x, (2, 2), strides=(2, 2), padding="SAME")
nn.max_pool nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.max_pool_v2
  nn.max_pool_with_argmax nn.fractional_max_pool: = nn.max_pool(x, (2, 2), strides=(2,
  2), padding="SAME")
nn.crelu: = jnp.concatenate([jax.nn.relu(x), jax.nn.relu(-x)], -1)
nn.ctc_loss nn.ctc_loss_v2: = optax.ctc_loss(logits, logit_paddings, labels,
  label_paddings)
nn.dropout: = nn.Dropout(1 - keep_prob, deterministic=mode != ex.ModeKeys.TRAIN)(x)
nn.alpha_dropout: = nn.Dropout(rate, deterministic=mode != ex.ModeKeys.TRAIN)(x)
nn.log_poisson_loss: = jnp.exp(log_input) - log_input * targets
nn.moments nn.weighted_moments nn.sufficient_statistics nn.normalize_moments: =
  jnp.mean(x, axis), jnp.var(x, axis)
nn.relu_layer: = jax.nn.relu(x @ w + b)
nn.xw_plus_b: = x @ w + b
nn.local_response_normalization nn.lrn: JAX has none; write nn.LayerNorm()(x) or
  nn.GroupNorm()(x)
nn.sampled_softmax_loss nn.nce_loss nn.learned_unigram_candidate_sampler
  nn.log_uniform_candidate_sampler nn.uniform_candidate_sampler
  nn.fixed_unigram_candidate_sampler nn.all_candidate_sampler nn.compute_accidental_hits
  nn.sampled_sparse_softmax_loss nn.rank_sampled_softmax_loss: estimax has no sampled
  softmax; write the whole one, ex.losses.sparse_softmax_cross_entropy(labels, logits),
  or draw negative examples in the input_fn
nn.sigmoid_cross_entropy_with_logits: = optax.sigmoid_binary_cross_entropy(logits,
  labels)
nn.softmax_cross_entropy_with_logits nn.softmax_cross_entropy_with_logits_v2: =
  optax.softmax_cross_entropy(logits, labels)
nn.sparse_softmax_cross_entropy_with_logits: =
  optax.softmax_cross_entropy_with_integer_labels(logits, labels)
nn.weighted_cross_entropy_with_logits: = ex.heads.losses.weighted_cross_entropy(labels,
  logits, pos_weight=w)
nn.scaled_softplus: = jax.nn.softplus(alpha * x) / alpha
nn.hard_tanh: = jax.nn.hard_tanh(x)
nn.exponential: = jnp.exp(x)
nn.linear: = x
nn.get nn.deserialize nn.serialize: = getattr(jax.nn, name)

seq2seq.* legacy_seq2seq.*: estimax has no decoders; write a loop over the steps with
  nn.scan or nn.RNN of flax.linen, and nn.MultiHeadDotProductAttention for attention
seq2seq.sequence_loss: = ex.losses.sparse_softmax_cross_entropy(labels, logits, weights)

keras.*: optimizers are in ex.optimizers, metrics in ex.metrics, and layers are Flax
  layers in a model_fn
keras: = ex.optimizers.Adam, ex.metrics.auc(labels, scores), and Flax layers in place of
  tf.keras.layers
keras.Model keras.Sequential keras.models.* contrib.eager.Network
  contrib.eager.Sequential keras.experimental.* keras.saving keras.export: = class
  MyModel(nn.Module) of flax.linen, called in a model_fn: MyModel(name="net")(x)
keras.estimator.*: write the model as a model_fn of Flax layers, and
  ex.Estimator(model_fn)
keras.backend.*: functions are JAX's: write jnp.sum, jnp.mean, jax.nn.sigmoid …
keras.backend.learning_phase keras.backend.in_train_phase keras.backend.in_test_phase
  keras.backend.set_learning_phase keras.backend.learning_phase_scope: = mode ==
  ex.ModeKeys.TRAIN
keras.backend.clear_session: leave it out; there is no global state
keras.backend.epsilon: = 1e-7
keras.backend.floatx: = "float32"
keras.backend.batch_dot: = jnp.einsum("bij,bjk->bik", x, y)
keras.backend.binary_crossentropy: = optax.sigmoid_binary_cross_entropy(logits, labels)
keras.backend.categorical_crossentropy: = optax.softmax_cross_entropy(logits, labels)
keras.backend.sparse_categorical_crossentropy: =
  optax.softmax_cross_entropy_with_integer_labels(logits, labels)
keras.backend.dtype: = x.dtype
keras.backend.eval keras.backend.get_value keras.backend.batch_get_value: =
  np.asarray(x)
keras.backend.variable keras.backend.random_normal_variable
  keras.backend.random_uniform_variable: = ex.get_variable(name, shape)
keras.backend.update keras.backend.update_add keras.backend.update_sub
  keras.backend.set_value keras.backend.moving_average_update: = ex.assign(variable,
  value)
keras.backend.switch: = jnp.where(condition, x, y)
keras.backend.rnn: = nn.RNN(nn.LSTMCell(units))(x, seq_lengths=lengths)
keras.callbacks.*: callbacks are hooks: ex.SessionRunHook, ex.CheckpointSaverHook,
  ex.experimental.stop_if_no_decrease_hook
keras.callbacks.EarlyStopping: = ex.experimental.stop_if_no_decrease_hook(estimator,
  "loss", 1000)
keras.callbacks.ModelCheckpoint: = ex.RunConfig(save_checkpoints_steps=500)
keras.callbacks.TensorBoard: leave it out; train writes summaries to the model_dir
keras.callbacks.LearningRateScheduler keras.callbacks.ReduceLROnPlateau: = a schedule as
  learning rate: ex.optimizers.Adam(ex.optimizers.exponential_decay(0.1, 1000, 0.96))
keras.constraints.*: estimax has no constraints of variables; write the constraint into
  the model, such as jnp.maximum(w, 0)
keras.regularizers.*: = ex.get_variable(name, shape,
  regularizer=ex.optimizers.l2(0.01)), or l1, l1_l2
keras.preprocessing.*: change text and sequences in Dataset.map, with Python;
  dataset.padded_batch pads
keras.utils.*: utilities of Keras are not needed; write Python or NumPy
keras.utils.to_categorical: = jax.nn.one_hot(ids, n)
keras.datasets: load data yourself, and give arrays to ex.inputs.numpy_input_fn
keras.applications: train a model of Flax, and start it from a checkpoint with
  ex.WarmStartSettings
keras.mixed_precision mixed_precision.*: = ex.RunConfig(precision="bfloat16")
keras.dtensor: = ex.RunConfig(devices=…)

losses.*: losses are in ex.losses, and those of one example in optax
losses.BinaryCrossentropy losses.binary_crossentropy: =
  ex.losses.sigmoid_cross_entropy(labels, logits), of logits and not of probabilities
losses.BinaryFocalCrossentropy losses.binary_focal_crossentropy: =
  optax.sigmoid_focal_loss(logits, labels)
losses.CategoricalCrossentropy losses.categorical_crossentropy
  losses.CategoricalFocalCrossentropy losses.categorical_focal_crossentropy: =
  ex.losses.softmax_cross_entropy(onehot_labels, logits)
losses.SparseCategoricalCrossentropy losses.sparse_categorical_crossentropy: =
  ex.losses.sparse_softmax_cross_entropy(labels, logits)
losses.MeanSquaredError losses.MSE losses.mse losses.mean_squared_error: =
  ex.losses.mean_squared_error(labels, predictions)
losses.MeanAbsoluteError losses.MAE losses.mae losses.mean_absolute_error: =
  ex.losses.absolute_difference(labels, predictions)
losses.MeanAbsolutePercentageError losses.MAPE losses.mape
  losses.mean_absolute_percentage_error: = 100 * jnp.mean(jnp.abs((labels - predictions)
  / labels))
losses.MeanSquaredLogarithmicError losses.MSLE losses.msle
  losses.mean_squared_logarithmic_error: =
  ex.losses.mean_squared_error(jnp.log1p(labels), jnp.log1p(predictions))
losses.Hinge losses.hinge: = ex.losses.hinge_loss(labels, logits), with labels 0 and 1
losses.SquaredHinge losses.squared_hinge: = jnp.mean(jnp.square(jnp.maximum(1 - labels *
  logits, 0))), with labels -1 and 1
losses.CategoricalHinge losses.categorical_hinge: = jnp.maximum(jnp.max((1 - labels) *
  x, -1) - jnp.sum(labels * x, -1) + 1, 0)
losses.Huber losses.huber: = ex.losses.huber_loss(labels, predictions)
losses.KLD losses.KLDivergence losses.kl_divergence losses.kld
  losses.kullback_leibler_divergence: = jnp.sum(labels * jnp.log(labels / predictions),
  -1)
losses.LogCosh losses.log_cosh losses.logcosh: = optax.log_cosh(predictions, labels)
losses.Poisson losses.poisson: = jnp.mean(predictions - labels * jnp.log(predictions))
losses.CosineSimilarity losses.cosine_similarity: = -jnp.mean(jnp.sum(a * b, -1)), with
  labels a and predictions b of length 1
losses.Loss losses.metric_learning: write the loss with jax.numpy, and return it in
  ex.EstimatorSpec

metrics.*: metrics are in ex.metrics: write ex.metrics.auc(labels, predictions, weights)
  in eval_metric_ops; see ex.metrics.from_sums for your own
metrics.AUC: = ex.metrics.auc(labels, predictions, weights)
metrics.Accuracy: = ex.metrics.accuracy(labels, predictions, weights)
metrics.Precision: = ex.metrics.precision(labels, predictions, weights)
metrics.Recall: = ex.metrics.recall(labels, predictions, weights)
metrics.Mean metrics.MeanMetricWrapper: = ex.metrics.mean(values, weights)
metrics.Sum: = ex.metrics.total(values, weights)
metrics.BinaryAccuracy metrics.binary_accuracy: = ex.metrics.binary_accuracy(labels,
  predictions, weights)
metrics.BinaryCrossentropy metrics.binary_crossentropy: =
  ex.metrics.binary_crossentropy(labels, predictions, weights)
metrics.CategoricalAccuracy metrics.categorical_accuracy: =
  ex.metrics.categorical_accuracy(labels, predictions, weights)
metrics.CategoricalCrossentropy metrics.categorical_crossentropy: =
  ex.metrics.categorical_crossentropy(labels, predictions, weights)
metrics.CosineSimilarity: = ex.metrics.cosine_similarity(labels, predictions, weights)
metrics.FalseNegatives: = ex.metrics.false_negatives(labels, predictions, weights)
metrics.FalsePositives: = ex.metrics.false_positives(labels, predictions, weights)
metrics.KLDivergence metrics.KLD metrics.kl_divergence metrics.kld
  metrics.kullback_leibler_divergence: = ex.metrics.kl_divergence(labels, predictions,
  weights)
metrics.LogCoshError metrics.log_cosh metrics.logcosh: =
  ex.metrics.log_cosh_error(labels, predictions, weights)
metrics.MeanAbsoluteError metrics.MAE metrics.mae: =
  ex.metrics.mean_absolute_error(labels, predictions, weights)
metrics.MeanIoU metrics.IoU metrics.BinaryIoU metrics.OneHotIoU metrics.OneHotMeanIoU: =
  ex.metrics.mean_iou
metrics.MeanRelativeError: = ex.metrics.v1.mean_relative_error(labels, predictions,
  normalizer)
metrics.MeanSquaredError metrics.MSE metrics.mse: =
  ex.metrics.mean_squared_error(labels, predictions, weights)
metrics.MeanTensor: = ex.metrics.mean_tensor(values, weights)
metrics.Poisson metrics.poisson: = ex.metrics.poisson(labels, predictions, weights)
metrics.PrecisionAtRecall metrics.precision_at_recall: = ex.metrics.precision_at_recall
metrics.RecallAtPrecision metrics.recall_at_precision: = ex.metrics.recall_at_precision
metrics.RootMeanSquaredError: = ex.metrics.root_mean_squared_error(labels, predictions,
  weights)
metrics.SensitivityAtSpecificity: = ex.metrics.sensitivity_at_specificity
metrics.SpecificityAtSensitivity: = ex.metrics.specificity_at_sensitivity
metrics.SparseCategoricalAccuracy metrics.sparse_categorical_accuracy: =
  ex.metrics.sparse_categorical_accuracy(labels, predictions, weights)
metrics.SparseCategoricalCrossentropy metrics.sparse_categorical_crossentropy: =
  ex.metrics.sparse_categorical_crossentropy(labels, predictions, weights)
metrics.SparseTopKCategoricalAccuracy metrics.sparse_top_k_categorical_accuracy: =
  ex.metrics.sparse_top_k_categorical_accuracy
metrics.TopKCategoricalAccuracy metrics.top_k_categorical_accuracy: =
  ex.metrics.top_k_categorical_accuracy
metrics.TrueNegatives: = ex.metrics.true_negatives(labels, predictions, weights)
metrics.TruePositives: = ex.metrics.true_positives(labels, predictions, weights)
metrics.percentage_less: = ex.metrics.v1.percentage_below(values, threshold)
metrics.sparse_recall_at_k: = ex.metrics.v1.recall_at_k(labels, predictions, k)
metrics.sparse_recall_at_top_k: = ex.metrics.v1.recall_at_top_k(labels, ids)
metrics.sparse_precision_at_top_k: = ex.metrics.v1.precision_at_top_k(labels, ids)
metrics.Metric: = ex.metrics.from_sums(sums, result)
metrics.F1Score metrics.FBetaScore metrics.f1_score: = ex.metrics.from_sums(sums,
  result), with the sums of true positives, false positives and false negatives

optimizers.schedules.*: = ex.optimizers.exponential_decay(rate, steps, decay_rate), or
  polynomial_decay, cosine_decay, piecewise_constant, inverse_time_decay
optimizers.*: optimizers are in ex.optimizers, and any transformation of optax is one:
  ex.optimizers.Adam(0.001), optax.lion(1e-4)
optimizers.Adafactor: = optax.adafactor(1e-3)
optimizers.Lion: = optax.lion(1e-4)
optimizers.get optimizers.deserialize: = ex.optimizers.by_name("Adam")
opt.*: optimizers are in ex.optimizers and in optax
opt.AdamWOptimizer opt.extend_with_decoupled_weight_decay opt.MomentumWOptimizer
  opt.DecoupledWeightDecayExtension: = ex.optimizers.AdamW(1e-3, weight_decay=0.01)
opt.AdaMaxOptimizer: = ex.optimizers.Adamax(1e-3)
opt.NadamOptimizer: = ex.optimizers.Nadam(1e-3)
opt.LARSOptimizer: = optax.lars(0.1)
opt.MovingAverageOptimizer opt.ModelAverageOptimizer train.ExponentialMovingAverage: =
  ex.RunConfig(average_decay=0.999)
opt.ScipyOptimizerInterface opt.ExternalOptimizerInterface: = optax.lbfgs(), or scipy
  outside of the Estimator
opt.LazyAdamGSOptimizer opt.AdamGSOptimizer: = ex.optimizers.LazyAdam(1e-3)

Variable variable local_variable model_variable global_variable get_local_variable
  get_unique_variable count_up_to: declare variables with ex.get_variable(name, shape)
VariableScope: = ex.get_variable_scope()
VariableAggregation VariableSynchronization: leave it out; variables are the same on all
  devices
assign_add: = ex.assign(variable, variable + x)
assign_sub: = ex.assign(variable, variable - x)
create_partitioned_variables fixed_size_partitioner min_max_variable_partitioner
  variable_axis_size_partitioner: leave it out; large tables are divided among devices
  with ex.RunConfig(shard_tables_above=…)
variable_op_scope op_scope: = ex.variable_scope(name)
name_scope get_name_scope get_current_name_scope prepend_name_scope strip_name_scope:
  leave it out; it named operations of the graph and no variables, and there is no
  graph. ex.variable_scope would rename the variables. For a profile, write
  jax.named_scope(name)
variable_creator_scope make_template custom_getter: = ex.variable_scope(name,
  reuse=ex.AUTO_REUSE)
no_regularizer: = None
trainable_variables get_trainable_variables: = ex.trainable_variables(scope)
all_variables global_variables local_variables model_variables moving_average_variables
  get_variables get_local_variables get_model_variables get_variables_by_name
  get_variables_by_suffix get_variables_to_restore get_variable_full_name
  filter_variables add_model_variable: = estimator.get_variable_names()
report_uninitialized_variables is_variable_initialized assert_variables_initialized:
  leave it out; variables are initialized by train
"""
