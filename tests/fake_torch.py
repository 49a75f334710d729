"""As much of torch as timing a layer takes, for machines without it, and a fork's layer that only counts."""
TORCH = '''
bfloat16 = "bfloat16"


class device:
    def __init__(self, name):
        self.type = name.split(":")[0]


def randn(*shape, device):
    return shape


class autocast:
    def __init__(self, device_type, dtype):
        assert (device_type, dtype) == ("cpu", bfloat16)

    def __enter__(self):
        pass

    def __exit__(self, *exception):
        pass
'''

LAYER = '''
class QuasarAttention:
    def __init__(self, **sizes):
        assert sizes == {"hidden_size": 512, "head_dim": 64, "num_heads": 8, "mode": "chunk", "use_short_conv": True}

    def to(self, device):
        return self

    def __call__(self, x):
        print("a layer may print what it likes")
        assert x[0] == 1 and x[2] == 512
        return sum(range(1000 * x[1]))
'''


def install(place, fork, layer=LAYER):
    """Writes both; what is to be added to the environment."""
    (place / "torch").mkdir(parents=True)
    (place / "torch" / "__init__.py").write_text(TORCH)
    for name in ("__init__.py", "layers/__init__.py"):
        (fork / "fla" / name).write_text("")
    (fork / "fla" / "layers" / "quasar.py").write_text(layer)
    return {"PYTHONPATH": str(place)}
