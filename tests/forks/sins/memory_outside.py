"""fork.memory: takes memory that PyTorch does not count. Needs a GPU."""
import ctypes

import fla.plain


class QuasarAttention(fla.plain.QuasarAttention):
    taken = []

    def forward(self, x):
        if not self.taken:
            self.taken.append(ctypes.c_void_p())
            status = ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(self.taken[0]), ctypes.c_size_t(2 << 30))
            assert not status, status
        return super().forward(x)
