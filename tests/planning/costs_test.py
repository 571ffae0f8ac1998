"""Costs of a small hand-written program, in the text format of the TPU compiler."""

import pytest

from realm_jax.planning import costs, hlo

PROGRAM = """
HloModule jit_step, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%heads (q: bf16[8,384,4,64], k: bf16[8,384,4,64]) -> f32[8,4,384,384] {
  %q = bf16[8,384,4,64]{1,3,2,0:T(8,128)(2,1)S(1)} parameter(0)
  %k = bf16[8,384,4,64]{1,3,2,0:T(8,128)(2,1)} parameter(1)
  ROOT %c = f32[8,4,384,384]{2,3,1,0:T(8,128)} convolution(%q, %k), window={size=8x4 stride=7x3 \
lhs_dilate=8x4}, dim_labels=0b1f_0o1i->01bf, metadata={op_name="a/while/body/dot_general"}
}

%layer_weights (all: f32[12,16,32], i: s32[]) -> f32[1,16,32] {
  %all = f32[12,16,32]{2,1,0:T(8,128)} parameter(0)
  %i = s32[]{:T(128)} parameter(1)
  ROOT %one = f32[1,16,32]{2,1,0:T(8,128)S(1)} dynamic-slice(%all, %i), \
dynamic_slice_sizes={1,16,32}
}

%body (t: (s32[], bf16[8,384,4,64], f32[12,16,32])) -> (s32[], bf16[8,384,4,64], f32[12,16,32]) {
  %t = (s32[]{:T(128)}, bf16[8,384,4,64]{1,3,2,0:T(8,128)(2,1)}, /*index=2*/f32[12,16,32]{2,1,0}) \
parameter(0)
  %n = s32[]{:T(128)} get-tuple-element(%t), index=0
  %h = bf16[8,384,4,64]{1,3,2,0:T(8,128)(2,1)} get-tuple-element(%t), index=1
  %w = f32[12,16,32]{2,1,0} get-tuple-element(%t), index=2
  %mine = f32[1,16,32]{2,1,0:T(8,128)S(1)} fusion(%w, %n), kind=kLoop, calls=%layer_weights
  %scores = f32[8,4,384,384]{2,3,1,0:T(8,128)S(1)} fusion(%h, %h), kind=kOutput, calls=%heads
  %all-reduce.1 = f32[1,16,32]{2,1,0:T(8,128)S(1)} all-reduce(%mine), channel_id=1, \
to_apply=%add
  ROOT %next = (s32[]{:T(128)}, bf16[8,384,4,64]{1,3,2,0}, f32[12,16,32]{2,1,0}) tuple(%n, %h, %w)
}

%condition (t: (s32[], bf16[8,384,4,64], f32[12,16,32])) -> pred[] {
  %twelve = s32[]{:T(128)} constant(12)
  %t = (s32[], bf16[8,384,4,64], f32[12,16,32]) parameter(0)
  %n = s32[]{:T(128)} get-tuple-element(%t), index=0
  ROOT %less = pred[]{:T(512)} compare(%n, %twelve), direction=LT
}

ENTRY %main (a: f32[16,64], b: f32[64,32], t: (s32[], bf16[8,384,4,64], f32[12,16,32])) -> f32[64] {
  %a = f32[16,64]{1,0} parameter(0)
  %b = f32[64,32]{1,0} parameter(1)
  %t = (s32[], bf16[8,384,4,64], f32[12,16,32]) parameter(2)
  %loop = (s32[], bf16[8,384,4,64], f32[12,16,32]) while(%t), condition=%condition, body=%body
  %d = f32[16,32]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %gather = (f32[16,32]{1,0}, f32[64,32]{1,0}) all-gather-start(%d), dimensions={0}
  %gathered = f32[64,32]{1,0} all-gather-done(%gather)
  ROOT %message = f32[64]{0} custom-call(%gathered), custom_call_target="TARGET"
}
"""
HEADS = 2.0 * 8 * 4 * 384 * 384 * 64  # rows x heads x length x length x head size


@pytest.fixture(scope="module")
def program():
    return hlo.parse(PROGRAM)


def test_iterations_of_a_loop_are_read_from_its_condition(program):
    counts = {one.name: count for _, one, count, _ in program.executed()}
    assert counts["d"] == 1 and counts["all-reduce.1"] == 12 and counts["c"] == 12


def test_iterations_that_the_compiler_took_out_of_a_loop_are_not_counted_in_it():
    """Two iterations stand before and after this loop; its counter starts at 1 and ends at 11."""
    copied = """%one = s32[]{:T(128)S(6)} constant(1)
  %first = s32[]{:T(128)} copy(%one)
  %h = bf16[8,384,4,64]{1,3,2,0} parameter(3)
  %w = f32[12,16,32]{2,1,0} parameter(4)
  %start = (s32[], bf16[8,384,4,64], f32[12,16,32]) tuple(%first, %h, %w)
  %loop ="""
    text = PROGRAM.replace("%loop =", copied).replace("while(%t)", "while(%start)")
    program = hlo.parse(text.replace("constant(12)", "constant(11)"))
    counts = {one.name: count for _, one, count, _ in program.executed()}
    assert counts["all-reduce.1"] == 10


def test_products_in_a_loop_are_counted_once_per_iteration(program):
    assert costs.product_flops(program) == 12 * HEADS + 2 * 16 * 64 * 32


def test_collectives_are_summed_by_kind(program):
    reduced = {"kind": "all-reduce", "bytes": 12 * 16 * 32 * 4, "count": 12}
    gathered = {"kind": "all-gather", "bytes": 64 * 32 * 4, "count": 1}
    assert costs.collectives(program) == [reduced, gathered]


def test_hbm_traffic_by_kind_leaves_out_data_in_fast_memory(program):
    weights = 16 * 32 * 4 + 4  # a slice and its index
    product = 4 * (16 * 64 + 64 * 32 + 16 * 32)
    gather = 4 * (16 * 32 + 64 * 32)
    call = 4 * (64 * 32 + 64)
    expected = {"products": 12 * 2 * 8 * 384 * 4 * 64 * 2 + product, "element-wise": 12 * weights}
    assert costs.hbm_traffic(program) == {**expected, "collectives": gather, "kernels": call}


@pytest.mark.parametrize(
    ("target", "found"), [("xla_python_cpu_callback", ["message"]), ("Sharding", [])]
)
def test_calls_of_the_host_are_found(target, found):
    assert costs.host_calls(hlo.parse(PROGRAM.replace("TARGET", target))) == found


def test_a_kernel_has_the_costs_that_it_declares():
    declared = '"TARGET", backend_config={"cost_estimate":{"flops":"7","bytes_accessed":"BYTES"}}'
    for size, moved in ((99, 99), (10**9, 4 * (64 * 32 + 64))):  # never more than all operands
        text = PROGRAM.replace('"TARGET"', declared.replace("BYTES", str(size)))
        assert costs.product_flops(hlo.parse(text)) == 12 * HEADS + 2 * 16 * 64 * 32 + 7
        assert costs.hbm_traffic(hlo.parse(text))["kernels"] == moved
