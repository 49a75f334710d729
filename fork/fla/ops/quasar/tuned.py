"""Configurations of the CUDA kernels that were measured to be fastest. `quasar export` writes this file.

KERNELS is a hash of the kernels that they are for: with others they are not used. CONFIGURATIONS has for each GPU,
semantics, type, head dimension, number of sequences (batch times heads) and length (2^length tokens and more, but not twice
as many): CHUNK, NUM_STAGES, MIN_BLOCKS, PRODUCT_WARPS, NUM_LAUNCHES and GROUPS.
"""
KERNELS = ""
CONFIGURATIONS = {
}
