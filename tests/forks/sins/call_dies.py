"""fork.call: takes the process down, as a wrong pointer does."""
import os
import signal

import fla.plain


class QuasarAttention(fla.plain.QuasarAttention):
    def finish(self, o, x):
        os.kill(os.getpid(), signal.SIGSEGV)
