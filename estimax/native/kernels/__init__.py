"""The compiled loops. Import them through `native.loading`, which logs a compilation.

`memory` (loads, stores, CRC) and `protos` (protocol buffers) are inlined into the other
modules; `call_frames` is what kernels called by XLA use. Compiled code does not check
bounds; the modules of `native` check arguments before they call it.
"""
