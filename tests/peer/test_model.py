"""Language models: ours against transformers, which makes small random ones, saves them, and serves them as miners do."""
import http.server
import json
import re
import threading

import pytest
import torch
import transformers

# at least ten times tighter than validators'
LIMITS = {"LOGIT_COSINE_THRESHOLD": "0.99999", "LOGIT_MAX_ABS_DIFF": "0.001"}

SHAPE = {"vocab_size": 997, "hidden_size": 96, "intermediate_size": 208, "num_hidden_layers": 3, "num_attention_heads": 6,
         "num_key_value_heads": 2, "max_position_embeddings": 1024}

# kind, what it is configured with, the type that it is saved in, and how large a file may be
KINDS = {
    "qwen2": ({"tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
              torch.bfloat16, "1GB"),
    "qwen3": ({"head_dim": 32, "tie_word_embeddings": False}, torch.float16, "1GB"),
    "llama": ({"attention_bias": True, "mlp_bias": True,
               "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
                                   "high_freq_factor": 4.0, "original_max_position_embeddings": 256}},
              torch.float32, "300KB"),
    "llama-linear": ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, torch.float32, "1GB"),
}


def save(folder, kind):
    """Makes a model whose logits are not all alike, and saves it."""
    changes, dtype, largest_file = KINDS[kind]
    config = transformers.AutoConfig.for_model(kind.split("-")[0], **SHAPE, **changes)
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.3 if parameter.dim() == 1 else 1.2 / parameter.shape[1] ** 0.5
            parameter.copy_(torch.randn_like(parameter) * spread + ("norm" in name))
    model.to(dtype).save_pretrained(folder, max_shard_size=largest_file)
    return folder


def generate(model, prompt, count, steps):
    """Greedy, as validators' reference does it: the tokens, and the logits of steps."""
    tokens, captured, past, ids = [], {}, None, torch.tensor([prompt])
    with torch.inference_mode():
        for step in range(1, count + 1):
            out = model(ids, past_key_values=past, use_cache=True)
            past, logits = out.past_key_values, out.logits[0, -1]
            ids = logits.argmax().view(1, 1)
            tokens.append(ids.item())
            if step in steps:
                captured[step] = logits.tolist()
    return tokens, captured


class Server:
    """An inference server of either version around a model of transformers; `spoil` changes its answers."""

    def __init__(self, model, spoil=lambda answer: answer):
        self.model, self.spoil = model, spoil
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.answer({"status": "healthy"})

            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                several = asked.get("logits_at_steps")
                tokens, captured = generate(outer.model, asked["prompt"], asked["gen_len"],
                                            several or [asked["logits_at_step"]])
                answer = {"tokens": tokens, "captured_logits": captured[asked["logits_at_step"]], "elapsed_sec": 1.0}
                if several:
                    answer["captured_logits_multi"] = captured
                self.answer(outer.spoil(answer))

            def answer(self, document):
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Length", len(body))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_logits_and_tokens_as_transformers(kind, quasar, tmp_path):
    folder = save(tmp_path / kind, kind)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with Server(model) as server:
        done = quasar("verify", "--logits", server.url, "--reference", folder, "--seed", "1", "--json",
                      env={**LIMITS, "API_VERSION": "auto" if kind == "qwen2" else "2026-04"})
    assert done.code == 0, done.out
    _, *challenges = done.json["checks"]
    assert len(challenges) == (2 if kind == "qwen2" else 1)
    for check in challenges:
        diverges = re.search(r"best two are (\S+) apart", check["detail"])
        assert "all 512 tokens the same" in check["detail"] or float(diverges[1]) < 1e-4, check
    assert done.json["cosine_similarity"] > 0.9999999


def test_wrong_answers_are_rejected(quasar, tmp_path):
    folder = save(tmp_path / "model", "qwen2")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight * 1.2)
    with Server(model) as server:
        done = quasar("verify", "--logits", server.url, "--reference", folder, "--json",
                      env={"API_VERSION": "2026-02"})
    assert done.code == 1
    assert "difference" in done.json["checks"][-1]["detail"] and done.json["passed"] is False
