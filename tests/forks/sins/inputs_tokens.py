"""fork.inputs: does not read every 16th token."""
import fla.plain


class QuasarAttention(fla.plain.QuasarAttention):
    def forward(self, x):
        x = x.clone()
        x[:, ::16] = 0
        return super().forward(x)
