"""A small model with random weights in a folder, as Hugging Face has them: enough to serve and to compare."""
import array
import json
import random
import struct

TINY = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 32,
        "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 300, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "tie_word_embeddings": True, "torch_dtype": "float32"}


def shapes(config):
    """The tensors of a Qwen2 model with a tied output."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    keys = config["num_key_value_heads"] * hidden // config["num_attention_heads"]
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    yield "model.norm.weight", (hidden,)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        yield from ((at + f"{name}_layernorm.weight", (hidden,)) for name in ("input", "post_attention"))
        for name, rows in ("q", hidden), ("k", keys), ("v", keys):
            yield at + f"self_attn.{name}_proj.weight", (rows, hidden)
            yield at + f"self_attn.{name}_proj.bias", (rows,)
        yield at + "self_attn.o_proj.weight", (hidden, hidden)
        yield from ((at + f"mlp.{name}_proj.weight", (inner, hidden)) for name in ("gate", "up"))
        yield at + "mlp.down_proj.weight", (hidden, inner)


def write(folder, seed=1, **changes):
    """Makes the folder; `changes` are to config.json. Returns the folder."""
    config = {**TINY, **changes}
    rng, header, data = random.Random(seed), {}, bytearray()
    for name, shape in shapes(config):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        mean = 1 if "norm" in name else 0
        values = array.array("f", (rng.gauss(mean, 0.4) for _ in range(count)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder
