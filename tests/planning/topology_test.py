"""Environment variables of the TPU compiler."""

from realm_jax.planning import topology


def test_stack_size_of_compiler_threads_is_raised_unless_the_user_sets_it(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--of_the_user=1")
    for _ in range(2):
        topology.prepare()
        assert topology.os.environ["LIBTPU_INIT_ARGS"] == f"--of_the_user=1 {topology.STACKS}"
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--default_thread_stack_size=1")
    topology.prepare()
    assert topology.os.environ["LIBTPU_INIT_ARGS"] == "--default_thread_stack_size=1"
