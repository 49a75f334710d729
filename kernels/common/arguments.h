/* arguments: what the host passes to the kernels. Plain C, read by both sides. */
#pragma once

/* A [B, T, H, S] tensor on the device; strides count elements. */
struct device_tensor {
	void *data;
	long long stride[4]; /* of batch, token, head, dimension */
};

struct delay_arguments {
	unsigned long long nanoseconds;
};
