/* arguments: what the host passes to the kernels. Plain C, read by both sides. */
#pragma once

/* A [B, T, H, S] tensor on the device; strides count elements. */
struct device_tensor {
	void *data;
	long long stride[4]; /* of batch, token, head, dimension */
};

/* What the copy engine of compute capability 9.0 and later is told of a tensor: a CUtensorMap. */
struct __attribute__((aligned(64))) tensor_map {
	unsigned long long opaque[16];
};

struct delay_arguments {
	unsigned long long nanoseconds;
};
