"""Flags of XLA for tests, which spend most of their time compiling small programs.

LLVM optimizes little, which takes a quarter off the time of a test. The programs of XLA
are the same. To test with all optimizations, set XLA_FLAGS yourself:

    XLA_FLAGS=--xla_force_host_platform_device_count=8 scripts/check
"""

# For processes that tests start, which see one device as those of users do.
ONE_DEVICE = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_parallel_codegen_split_count=1"
)
# For longer programs, which spend their time in steps: as users run them.
AS_USERS = ""
# Tests that shard need several devices, the others use one of them.
EIGHT_DEVICES = f"--xla_force_host_platform_device_count=8 {ONE_DEVICE}"
