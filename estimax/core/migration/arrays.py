"""What to write for the functions of TensorFlow on arrays, text and random numbers.

`table.py` describes the format. Names stand as at the top of `tf`: `tf.math.exp` and
`tf.strings.join` are looked up as `exp` and `string_join`.
"""

# Functions that jax.numpy has with the same name and the same arguments.
SAME_IN_NUMPY = """
abs acos acosh add angle argsort asin asinh atan atan2 atanh broadcast_to
ceil conj cos cosh cross divide einsum exp expand_dims expm1 eye floor
fft ifft imag linspace log log1p logical_and logical_not logical_or logical_xor
matrix_transpose maximum meshgrid minimum mod multiply negative nextafter ones
ones_like polyval real reciprocal repeat reshape rint roll round sign sin
sinh sort sqrt square stack subtract tan tanh tensordot tile transpose
unravel_index zeros zeros_like fftshift ifftshift irfft rfft
"""

# The same in jax.nn.
SAME_IN_JAX_NN = """
elu log_sigmoid log_softmax mish relu relu6 selu sigmoid
silu softmax softplus swish
"""

# The same in jax.scipy.special, and in jax.numpy.linalg.
SAME_IN_SPECIAL = "betainc digamma erf erfc erfinv ndtri polygamma xlog1py xlogy zeta"
SAME_IN_LINALG = """
cholesky det eig eigh eigvals eigvalsh inv matrix_rank norm pinv qr slogdet
solve
"""

DTYPES = """
bfloat16 bool complex64 complex128 float16 float32 float64 int8 int16 int32 int64 uint8
uint16 uint32 uint64
"""

ADVICE = """
accumulate_n add_n: = sum(arrays)
add_check_numerics_ops enable_check_numerics disable_check_numerics check_numerics
  verify_tensor_all_finite assert_all_finite: = ex.RunConfig(debug="nan"), whose error
  names the first value that is not finite; ex.NanTensorHook stops at such a loss
adjoint: = jnp.conj(jnp.swapaxes(x, -1, -2))
approx_top_k approx_max_k: = jax.lax.approx_max_k(x, k)
approx_min_k: = jax.lax.approx_min_k(x, k)
argmax arg_max: = jnp.argmax(x, axis), with the axis: TensorFlow's default is 0, and
  jnp.argmax without an axis takes all of them
argmin arg_min: = jnp.argmin(x, axis), with the axis: TensorFlow's default is 0, and
  jnp.argmin without an axis takes all of them
as_dtype DType: = jnp.dtype("float32")
as_string: = str(x).encode() in Dataset.map; a model needs no text of numbers: hash
  columns take integers
assert_equal assert_greater assert_greater_equal assert_integer assert_less
  assert_less_equal assert_near assert_negative assert_non_negative assert_non_positive
  assert_none_equal assert_positive assert_proper_iterable assert_rank
  assert_rank_at_least assert_rank_in assert_same_float_dtype assert_scalar
  assert_scalar_int assert_shapes assert_type Assert is_non_decreasing
  is_strictly_increasing is_numeric_tensor with_shape with_same_shape
  assert_element_shape: shapes and dtypes are known while a model is traced: write
  Python's assert x.shape == (…). Check values in the input_fn, with Python in
  Dataset.map
band_part matrix_band_part: = jnp.triu(jnp.tril(x, upper), -lower); -1 keeps that half,
  so that matrix_band_part(x, -1, 0) is jnp.tril(x)
batch_gather: = jnp.take_along_axis(x, ids, axis=-1) for [B, N] arrays
batch_to_space batch_to_space_nd space_to_batch space_to_batch_nd space_to_depth
  depth_to_space required_space_to_batch_paddings with_space_to_batch: write reshape and
  transpose: jnp.reshape, jnp.transpose
bessel_i0 i0: = jax.scipy.special.i0(x)
bessel_i0e i0e: = jax.scipy.special.i0e(x)
bessel_i1 i1: = jax.scipy.special.i1(x)
bessel_i1e i1e: = jax.scipy.special.i1e(x)
bitcast: = jax.lax.bitcast_convert_type(x, dtype)
bitwise.*: = jnp.bitwise_and(x, y), jnp.bitwise_or, jnp.bitwise_xor, jnp.invert,
  jnp.left_shift, jnp.right_shift
boolean_mask: shapes are fixed in a compiled model: keep all rows and give those outside
  of the mask no weight, jnp.where(mask, x, 0). In Dataset.map, x[mask]
broadcast_dynamic_shape broadcast_static_shape: = jnp.broadcast_shapes(a, b)
case switch_case: = jax.lax.switch(index, branches, operand)
cast saturate_cast cast_to_floatx: = x.astype(dtype); of a number, jnp.asarray(x, dtype)
cholesky_solve: = jax.scipy.linalg.cho_solve((c, True), b)
clip_by_average_norm clip_by_global_norm clip_by_norm clip_gradients_by_norm
  clip_gradients_by_global_norm clip_gradient_norms clip_gradient_norms_fn: gradients
  are clipped by the optimizer: ex.optimizers.Adam(1e-3, global_clipnorm=5.0), or
  clipnorm=5.0. Of other arrays, write x * jnp.minimum(1, limit / norm)
clip_by_value clip: = jnp.clip(x, low, high)
conv conv2d_backprop_filter_v2 conv2d_backprop_input_v2: =
  jax.lax.conv_general_dilated(x, kernel, strides, padding), whose gradient is JAX's
complex: = jax.lax.complex(real, imag)
concat concatenate: = jnp.concatenate(arrays, axis), with the axis: tf.concat has no
  default, jnp.concatenate has 0
cond smart_cond: = jax.lax.cond(pred, true_fn, false_fn); if pred is a Python bool, such
  as mode == ex.ModeKeys.TRAIN, write Python's if
confusion_matrix: = jnp.zeros((n, n)).at[labels, predictions].add(weights)
constant convert_to_tensor convert_to_tensor_or_indexed_slices
  convert_to_tensor_or_sparse_tensor: = jnp.asarray(x); text stays bytes, or a list of
  bytes
count_nonzero: = jnp.count_nonzero(x, axis)
cumulative_logsumexp: = jax.lax.cumlogsumexp(x, axis)
custom_gradient: = jax.custom_vjp(f)
decode_base64: = base64.urlsafe_b64decode(text) in Dataset.map
decode_compressed: = zlib.decompress(text) in Dataset.map; ex.input.TFRecordDataset
  reads compressed files
decode_json_example: = ex.input.json_files(paths), or json.loads(text) in Dataset.map
decode_raw: = np.frombuffer(text, dtype) in Dataset.map
diag: = jnp.diag(x), of a vector
diag_part tensor_diag_part: = jnp.diagonal(x)
dimension_at_index dimension_value Dimension TensorShape: a shape is a tuple of ints:
  write x.shape[0]
div: = x / y; of two integers, x // y
div_no_nan divide_no_nan: = jnp.where(y == 0, 0, x / jnp.where(y == 0, 1, y))
dot: = jnp.dot(x, y)
dynamic_partition: shapes are fixed in a compiled model: write one masked array for each
  part, jnp.where(parts == i, x, 0)
dynamic_stitch: = jnp.zeros(shape).at[indices].set(values)
edit_distance: estimax has none; compute it in Dataset.map, with Python
encode_base64: = base64.urlsafe_b64encode(text) in Dataset.map
ensure_shape: = assert x.shape == shape, or leave it out
equal: = x == y, also for text in a Dataset.map, where text is bytes: x == b"text"
not_equal: = x != y, also for text in a Dataset.map, where text is bytes: x != b"text"
erfcinv: = -jax.scipy.special.ndtri(x / 2) / jnp.sqrt(2)
expm: = jax.scipy.linalg.expm(x)
extract_image_patches extract_volume_patches extract_patches: =
  jax.lax.conv_general_dilated_patches(x, filter_shape, strides, padding)
fft2d: = jnp.fft.fft2(x)
fft3d fftnd: = jnp.fft.fftn(x, axes=(-3, -2, -1))
ifft2d: = jnp.fft.ifft2(x)
ifft3d ifftnd: = jnp.fft.ifftn(x, axes=(-3, -2, -1))
rfft2d: = jnp.fft.rfft2(x)
rfft3d rfftnd: = jnp.fft.rfftn(x, axes=(-3, -2, -1))
irfft2d: = jnp.fft.irfft2(x)
irfft3d irfftnd: = jnp.fft.irfftn(x, axes=(-3, -2, -1))
fill: = jnp.full(shape, value)
fingerprint: = ex.feature_columns.fingerprint64(texts)
flatten batch_flatten: = x.reshape((x.shape[0], -1))
floor_div floordiv: = x // y
floormod: = x % y
foldl: = jax.lax.fori_loop(0, n, body, start), or jax.lax.scan
foldr: = jax.lax.scan(f, start, xs, reverse=True)
gather: = ex.embedding_lookup(table, ids) for a variable, and jnp.take(x, ids, axis=0)
  for other arrays, with the axis: TensorFlow's default is 0, and jnp.take without an
  axis flattens
gather_nd: = x[tuple(jnp.moveaxis(ids, -1, 0))]
global_norm: = optax.global_norm(tree)
gradients hessians GradientTape gradients_function value_and_gradients_function
  implicit_gradients implicit_value_and_gradients: gradients are JAX's: write
  jax.grad(f)(x). Training needs none: return the optimizer as train_op
grad_pass_through stop_gradient: = jax.lax.stop_gradient(x)
greater: = x > y
greater_equal: = x >= y
half: = jnp.float16
double: = jnp.float64; on devices numbers have 32 bits
histogram_fixed_width histogram_fixed_width_bins: = jnp.histogram(x, bins, range)
identity: = x; name a value for hooks with ex.log_value(name, value)
identity_n tuple: write the arrays themselves; there is no order of operations to force
igamma: = jax.scipy.special.gammainc(a, x)
igammac: = jax.scipy.special.gammaincc(a, x)
in_top_k: = jnp.any(jax.lax.top_k(scores, k)[1] == ids[:, None], 1)
invert_permutation: = jnp.argsort(x)
is_finite: = jnp.isfinite(x)
is_inf: = jnp.isinf(x)
is_nan: = jnp.isnan(x)
is_tensor is_symbolic_tensor is_keras_tensor: = isinstance(x, jax.Array)
l2_normalize unit_norm UnitNormalization: = x / jnp.sqrt(jnp.maximum(jnp.sum(x**2, axis,
  keepdims=True), 1e-12))
lbeta: = jnp.sum(jax.scipy.special.gammaln(x), -1) -
  jax.scipy.special.gammaln(jnp.sum(x, -1))
less: = x < y
less_equal: = x <= y
lgamma: = jax.scipy.special.gammaln(x)
lin_space: = jnp.linspace(start, stop, n)
linalg.*: the functions of linear algebra are in jnp.linalg and jax.scipy.linalg
logdet: = jnp.linalg.slogdet(x)[1]
logm: = jax.scipy.linalg.funm(x, jnp.log)
sqrtm matrix_square_root: = jax.scipy.linalg.sqrtm(x)
lu lu_matrix_inverse lu_reconstruct lu_solve: = jax.scipy.linalg.lu_factor(x),
  jax.scipy.linalg.lu_solve
make_ndarray make_tensor_proto: = np.asarray(x)
map_fn vectorized_map: = jax.vmap(f)(xs), or jax.lax.map(f, xs) for one after another
matmul: = jnp.matmul(a, b), or a @ b. It has no transpose_a and transpose_b: write a @
  jnp.swapaxes(b, -1, -2) for transpose_b=True
matrix_determinant: = jnp.linalg.det(x)
matrix_diag: = x[..., None] * jnp.eye(x.shape[-1])
matrix_diag_part: = jnp.diagonal(x, axis1=-2, axis2=-1)
tensor_diag: = jnp.diag(x), of a vector
matrix_inverse: = jnp.linalg.inv(x)
matrix_set_diag set_diag: = jnp.where(jnp.eye(n, dtype=bool), diagonal[..., None], x)
matrix_solve: = jnp.linalg.solve(a, b)
matrix_solve_ls: = jnp.linalg.lstsq(a, b)[0]
matrix_triangular_solve triangular_solve banded_triangular_solve: =
  jax.scipy.linalg.solve_triangular(a, b, lower=True)
matvec: = jnp.matmul(a, x[..., None])[..., 0]
multiply_no_nan: = jnp.where(y == 0, 0, x * y)
newaxis: = None, as in x[:, None]
no_op: leave it out
normalize: = x / jnp.linalg.norm(x, axis=axis, keepdims=True)
nth_element: = jnp.sort(x, -1)[..., n]
numpy_function py_func py_function: = plain Python, in ex.input.Dataset.map; a model
  that must call Python uses jax.pure_callback(f, result_shape, x), and cannot be
  exported then
one_hot one_hot_encoding: = jax.nn.one_hot(ids, n)
pad: = jnp.pad(x, paddings, mode), with the mode in small letters: "constant",
  "reflect", "symmetric"
parallel_stack: = jnp.stack(arrays)
permute_dimensions: = jnp.transpose(x, axes)
pow: = x**y
Print print print_tensor: = jax.debug.print("{}", x), or name a value for hooks:
  ex.log_value(name, x). Python's print shows a tracer, once
prod: = jnp.prod(x, axis)
quantization.* quantize quantize_v2 dequantize fake_quant_with_min_max_args
  fake_quant_with_min_max_args_gradient fake_quant_with_min_max_vars
  fake_quant_with_min_max_vars_gradient fake_quant_with_min_max_vars_per_channel
  fake_quant_with_min_max_vars_per_channel_gradient quantized_concat qint8 qint16 qint32
  quint8 quint16 QUANTIZED_DTYPES: estimax does not quantize; leave it out, and write
  ex.RunConfig(precision="bfloat16") to compute in 16 bits
range arange: = jnp.arange(start, limit, delta)
rank ndim: = x.ndim
realdiv truediv: = x / y
reciprocal_no_nan: = jnp.where(x == 0, 0, 1 / jnp.where(x == 0, 1, x))
recompute_grad: = jax.checkpoint(f)
reduce_all all: = jnp.all(x, axis, keepdims=…); several axes are a tuple
reduce_any any: = jnp.any(x, axis, keepdims=…); several axes are a tuple
reduce_euclidean_norm: = jnp.linalg.norm(x, axis=axis)
reduce_logsumexp logsumexp: = jax.nn.logsumexp(x, axis, keepdims=…)
reduce_max max: = jnp.max(x, axis, keepdims=…); several axes are a tuple
reduce_mean mean: = jnp.mean(x, axis, keepdims=…); several axes are a tuple. A mean
  metric is ex.metrics.mean
reduce_min min: = jnp.min(x, axis, keepdims=…); several axes are a tuple
reduce_prod: = jnp.prod(x, axis, keepdims=…); several axes are a tuple
reduce_std std: = jnp.std(x, axis, keepdims=…)
reduce_sum reduce_sum_n sum: = jnp.sum(x, axis, keepdims=…); several axes are a tuple
reduce_variance var: = jnp.var(x, axis, keepdims=…)
repeat_elements: = jnp.repeat(x, n, axis)
reverse reverse_v2: = jnp.flip(x, axis)
reverse_sequence: = jnp.take_along_axis(x, jnp.where(t < n, n - 1 - t, t), 1), with t =
  jnp.arange(x.shape[1])[None] and n = lengths[:, None]
rsqrt: = jax.lax.rsqrt(x)
scalar_mul: = scalar * x
scan: = jax.lax.scan(f, start, xs), where f returns (carry, output)
scatter_nd: = jnp.zeros(shape).at[tuple(jnp.moveaxis(ids, -1, 0))].add(values)
scatter_add scatter_div scatter_max scatter_min scatter_mul scatter_nd_add
  scatter_nd_sub scatter_nd_update scatter_sub scatter_update batch_scatter_update
  tensor_scatter_add tensor_scatter_nd_add tensor_scatter_nd_max tensor_scatter_nd_min
  tensor_scatter_nd_sub tensor_scatter_nd_update tensor_scatter_sub
  tensor_scatter_update: = x.at[ids].set(values), .add(values), .max(values) or
  .min(values); give the result to a variable with ex.assign
segment_max unsorted_segment_max: = jax.ops.segment_max(x, ids, num_segments=n)
lstsq: = jnp.linalg.lstsq(a, b)[0]
svd: = u, s, vh = jnp.linalg.svd(x, full_matrices=False); TensorFlow returns s, u, v,
  and vh is v transposed
bincount: = jnp.bincount(x, weights, length=n), with a fixed length
cumprod: = jnp.cumprod(x, axis), with the axis: TensorFlow's default is 0, and
  jnp.cumprod without an axis flattens
cumsum: = jnp.cumsum(x, axis), with the axis: TensorFlow's default is 0, and jnp.cumsum
  without an axis flattens. exclusive=True is jnp.cumsum(x, axis) - x
trace: = jnp.trace(x, axis1=-2, axis2=-1)
searchsorted: = jnp.searchsorted(sorted, values) of one row, and
  jax.vmap(jnp.searchsorted)(sorted, values) of several
gelu: = jax.nn.gelu(x, approximate=False), whose default is True
hard_sigmoid: = jnp.clip(0.2 * x + 0.5, 0, 1); jax.nn.hard_sigmoid is another function
leaky_relu: = jax.nn.leaky_relu(x, 0.2), whose default is 0.01
unsorted_segment_sqrt_n: = jax.ops.segment_sum(x, ids, n) /
  jnp.sqrt(jax.ops.segment_sum(jnp.ones_like(x), ids, n))
segment_mean unsorted_segment_mean: = jax.ops.segment_sum(x, ids, n) /
  jax.ops.segment_sum(jnp.ones_like(x), ids, n)
segment_min unsorted_segment_min: = jax.ops.segment_min(x, ids, num_segments=n)
segment_prod unsorted_segment_prod: = jax.ops.segment_prod(x, ids, num_segments=n)
segment_sum unsorted_segment_sum: = jax.ops.segment_sum(x, ids, num_segments=n)
self_adjoint_eig: = jnp.linalg.eigh(x)
self_adjoint_eigvals: = jnp.linalg.eigvalsh(x)
eigh_tridiagonal: = jax.scipy.linalg.eigh_tridiagonal(d, e)
tridiagonal_matmul tridiagonal_solve: = jax.lax.linalg.tridiagonal_solve(dl, d, du, b)
sequence_mask: = jnp.arange(n)[None] < lengths[:, None], with the number n of steps,
  such as x.shape[1]: a compiled model cannot take the longest length of the batch
setdiff1d: = np.setdiff1d(x, y) in Dataset.map
sets.*: = set(x) - set(y) in Dataset.map; shapes are fixed in a compiled model
shape shape_n int_shape: = x.shape, a tuple of ints; x.shape[0] is the batch size
signal.* spectral.* audio.*: Fourier transforms are in jnp.fft and jax.scipy.signal
dct: = jax.scipy.fft.dct(x)
idct: = jax.scipy.fft.idct(x)
stft: = jax.scipy.signal.stft(x, nperseg=frame_length)
inverse_stft: = jax.scipy.signal.istft(x, nperseg=frame_length)
size: = x.size
slice: = x[begin:end], or jax.lax.dynamic_slice(x, begin, size) if begin is computed;
  size -1 means up to the end
sobol_sample: = scipy.stats.qmc.Sobol(d).random(n)
softsign: = jax.nn.soft_sign(x)
hardmax: = jax.nn.one_hot(jnp.argmax(x, -1), x.shape[-1])
sparsemax sparsemax_loss: = optax.projections.projection_simplex(x) for each row
split: = jnp.split(x, n, axis) for n equal parts. Sizes become the places where to cut:
  jnp.split(x, np.cumsum(sizes)[:-1], axis) for sizes of [2, 3, 5]. Both default to axis
  0
squared_difference: = jnp.square(x - y)
squeeze: = jnp.squeeze(x, axis), where several axes are a tuple
strided_slice: = x[begin:end:stride]
tensor_dot: = jnp.tensordot(a, b, axes)
TensorArray TensorArraySpec: = jax.lax.scan(f, start, xs), which stacks the outputs
timestamp: = time.time(), in a hook
to_bfloat16: = x.astype(jnp.bfloat16)
to_complex64 to_complex128: = x.astype(jnp.complex64)
to_double to_float: = x.astype(jnp.float32)
to_int32 to_int64: = x.astype(jnp.int32)
top_k: = jax.lax.top_k(x, k), which returns (values, indices)
truncatediv: = jnp.trunc(x / y)
truncatemod: = jnp.fmod(x, y)
unique unique_with_counts: = jnp.unique(x, size=n), with a fixed size; np.unique(x) in
  Dataset.map
unstack: = [x[:, i] for i in range(x.shape[1])] for axis 1, or jnp.unstack(x, axis=1)
where where_v2: = jnp.where(condition, x, y). With one argument write
  jnp.argwhere(condition, size=n), with a fixed size
while_loop: = jax.lax.while_loop(cond, body, start), or jax.lax.fori_loop for a count
  that is known, which has gradients
xdivy: = jnp.where(x == 0, 0, x / jnp.where(x == 0, 1, y))
zero_fraction: = jnp.mean(x == 0)
special.*: = jax.scipy.special
math.*: functions of arrays are in jax.numpy, jax.lax and jax.scipy.special
linalg.LinearOperator: write the matrix, and jnp.matmul or jnp.linalg.solve
manip.*: functions of arrays are in jax.numpy
distributions.*: use jax.random and jax.scipy.stats, or the package distrax

SparseTensor SparseTensorValue: = ex.Sparse(indices, values, dense_shape)
SparseTensorSpec: = ex.input.TensorSpec(shape, dtype)
IndexedSlices IndexedSlicesSpec: gradients of tables are rows by themselves; see
  ex.embedding_lookup
RaggedTensor RaggedTensorSpec RaggedTensorValue ragged.* ragged_fill_empty_rows
  ragged_fill_empty_rows_grad: rows of different lengths are lists in Dataset.map, and
  padded arrays in a model: write dataset.padded_batch(n), or dataset.ragged_batch(n)
  for feature columns
sparse.* sparse_add sparse_concat sparse_fill_empty_rows sparse_mask sparse_maximum
  sparse_merge sparse_minimum sparse_reduce_max sparse_reduce_max_sparse
  sparse_reduce_sum sparse_reduce_sum_sparse sparse_reorder sparse_reset_shape
  sparse_reshape sparse_retain sparse_slice sparse_softmax sparse_split
  sparse_to_indicator sparse_transpose sparse_cross sparse_cross_hashed
  sparse_segment_mean sparse_segment_sqrt_n sparse_segment_sum
  SparseConditionalAccumulator: change ids before the model, in Dataset.map, where they
  are NumPy arrays or lists; crosses are ex.feature_columns.crossed_column, and sums of
  rows ex.embedding_lookup_sparse
sparse_matmul sparse_tensor_dense_matmul sparse_sparse_dense_matmul: =
  ex.embedding_lookup_sparse(table, ids, weights, "sum") for ids, and jnp.matmul for
  other arrays
sparse_placeholder: there are no placeholders; an input_fn returns ex.Sparse values
sparse_to_dense dense_to_sparse sparse_from_dense to_dense: write
  dense arrays from the start: dataset.padded_batch(n), or ex.input.FixedLenFeature in
  place of ex.input.VarLenFeature
sparse_eye sparse_expand_dims sparse_bincount sparse_map_values: write a dense array

string: text is bytes; where a dtype is expected, write "string"
strings.* regex_replace reduce_join substr string_bytes_split string_format
  string_length string_lower string_upper string_ngrams string_regex_full_match
  string_unicode_decode string_unsorted_segment_join: text is bytes in
  ex.input.Dataset.map: write Python's methods, such as text.lower(), b"-".join(parts)
  and re.sub
string_join: = b"-".join(parts) in Dataset.map
string_split: split text in ex.input.Dataset.map: write Python's line.split()
string_strip: = text.strip() in Dataset.map
string_to_hash_bucket string_to_hash_bucket_fast string_to_hash_bucket_strong: =
  ex.feature_columns.categorical_column_with_hash_bucket(key, n), or in Dataset.map
  ex.feature_columns.fingerprint64(text) % n; both give the ids of
  tf.strings.to_hash_bucket_fast
string_to_number: parse text in the input_fn: write ex.input.decode_csv, or Python's
  float(text)
decode_libsvm: = ex.input.decode_csv(line.replace(b":", b" "), defaults, field_delim="
  ")
skip_gram_sample skip_gram_sample_with_text_vocab: make the pairs of words with Python
  in ex.input.Dataset.flat_map

random.* Generator Algorithm: random numbers of a model are JAX's: write
  jax.random.normal(self.make_rng("dropout"), shape) in a Flax module; in an input_fn,
  NumPy's np.random.default_rng(seed)
random_crop: = np.random.default_rng(seed).integers for the place, and x[a:b], in
  Dataset.map
random_categorical multinomial stateless_categorical stateless_multinomial: =
  jax.random.categorical(key, logits, shape=…)
random_gamma stateless_gamma: = jax.random.gamma(key, alpha, shape)
random_normal random_stateless_normal stateless_random_normal: = jax.random.normal(key,
  shape) * stddev + mean
random_poisson stateless_poisson: = jax.random.poisson(key, lam, shape)
random_shuffle random_index_shuffle: = jax.random.permutation(key, x); rows are shuffled
  by dataset.shuffle(n)
random_uniform random_stateless_uniform stateless_random_uniform: =
  jax.random.uniform(key, shape, minval=low, maxval=high)
truncated_normal random_truncated_normal stateless_truncated_normal
  random_stateless_truncated_normal: = jax.random.truncated_normal(key, -2, 2, shape) *
  stddev + mean
random_bernoulli random_binomial: = jax.random.bernoulli(key, p, shape)
fold_in: = jax.random.fold_in(key, data)
set_random_seed set_seed random_set_seed random_set_random_seed get_seed
  random_get_seed: = ex.RunConfig(tf_random_seed=1)
"""
