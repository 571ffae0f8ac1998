"""What the TPU compiler is told before it is loaded."""

from realm_jax.planning import topology


def test_the_compiler_s_threads_get_room_unless_they_have_it(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--of_the_user=1")
    for _ in range(2):
        topology.prepare()
        assert topology.os.environ["LIBTPU_INIT_ARGS"] == f"--of_the_user=1 {topology.STACKS}"
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--default_thread_stack_size=1")
    topology.prepare()
    assert topology.os.environ["LIBTPU_INIT_ARGS"] == "--default_thread_stack_size=1"
