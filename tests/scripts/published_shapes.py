"""Parameters and FLOPs of public models, by their config.json and nothing of the product.

With h columns, n heads of queries and g of keys, d and v columns of a head's key and value, f columns of an MLP, m matrices
of an MLP (3 with a gate, else 2), E experts of which a token takes k, and V rows of the vocabulary:

  matrices of a layer = h n d + h g d + h g v + n v h             attention, and latents in place of them (MLA)
                      + m h f                                     a dense layer
                      or h E + k m h e + m h f_shared + gate      a layer with experts of width e; all E of them count
                                                                  as parameters; Arctic has m h h beside them
  parameters          = V h (1 or 2 tables) + layers (matrices + biases + norms) + what stands outside of layers
  FLOPs of s tokens   = 2 s (layers (matrices) + V h) + sum over layers of 2 s^2 n (d + v) share

FLOPs are of the products of a forward pass, a multiply-add as 2. A share is of the pairs that a causal mask leaves, s (s + 1)
/ 2: with a window of w keys, a token at position i sees min(i, w) of them, and in chunks of w those of its own chunk.
"""

UNGATED = {"gpt2", "gpt_bigcode", "gpt_neox", "bloom", "falcon", "mpt", "nemotron", "phi", "starcoder2", "gptj", "jais2"}  # the MLP is two matrices
LEARNED = {"gpt2", "gpt_bigcode"}  # a table of positions, biases everywhere
DEFAULTS = {"llama": {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 11008}}
# Norms: their number in a layer where it is not 2, and their vectors of h (a weight, a bias) where it is not one.
NORMS = {"gemma2": 4, "gemma3": 4, "gemma3_text": 4, "glm4": 4, "grok-1": 4, "phi": 1, "cohere": 1,
         "cohere2": 1, "arctic": 3, "afmoe": 4, "gptj": 1,
         "hyperclovax": 4}
VECTORS = {kind: 2 for kind in ("gpt2", "gpt_bigcode", "stablelm", "nemotron", "gpt_neox", "falcon", "starcoder2", "phi",
                                "bloom", "phimoe", "gptj", "jais2", "orion")}
TIED = {"gemma", "gemma2", "gemma3", "gemma3_text", "falcon", "starcoder2", "bloom", "mpt", "gpt2", "gpt_bigcode",
        "grok-1", "cohere", "cohere2", "minicpm3", "minicpm", "vaultgemma"}  # where the file says nothing


class Config:
    """A config.json by any of the names that its library takes for a size."""

    def __init__(self, stated):
        self.all = stated
        stated = stated.get("thinker_config", stated)
        self.text = next((stated[key] for key in ("text_config", "llm_config", "language_config") if key in stated), stated)
        self.kind = self.text.get("model_type") or stated.get("model_type") or "llama"
        self.text = {**DEFAULTS.get(self.kind, {}), **self.text}

    def get(self, *names, default=None):
        for name in names:
            value = self.text
            for part in name.split("/"):
                value = value.get(part) if isinstance(value, dict) else None
            # A list that has one value for all layers.
            if isinstance(value, list) and value and isinstance(value[0], int) and len(set(value)) == 1:
                return value[0]
            if value is not None:
                return value
        return default


def attention(c, h):
    """Returns heads, key heads, and columns of a head's key and value."""
    n = c.get("num_attention_heads", "n_head", "n_heads")
    latent = c.get("kv_lora_rank")
    if latent:
        nope, rope = c.get("qk_nope_head_dim"), c.get("qk_rope_head_dim")
        return n, n, nope + rope, c.get("v_head_dim", default=nope)
    g = c.get("num_key_value_heads", "num_kv_heads", "attn_config/kv_n_heads", "multi_query_group_num", default=n)
    one = c.get("multi_query") and not c.get("new_decoder_architecture")
    if c.kind == "gpt_bigcode":
        one = c.get("multi_query", default=True)
    if c.kind == "falcon" and not c.get("new_decoder_architecture") and not one:
        g = n
    width = c.get("head_dim", "kv_channels", default={"gemma3_text": 256}.get(c.kind)) or h // n
    return n, 1 if one else g, width, width


def biases(c, h, q, kv, ups, f):
    """Returns the biases of a layer's attention and of its MLP."""
    kind = c.kind
    everywhere = kind in {"gpt2", "gpt_bigcode", "phi", "bloom", "starcoder2"} or (kind == "falcon" and c.get("bias"))
    everywhere = everywhere or (kind == "gpt_neox" and c.get("attention_bias", default=True))
    qkv = everywhere or kind in {"qwen2", "qwen2_vl", "qwen2_moe", "qwen", "qwen2_5_omni_text"} or c.get("add_qkv_bias") or c.get("attention_bias") or c.get("use_qkv_bias")
    qkv = qkv or (kind in {"llama", "internlm"} and c.get("bias"))
    plain = {"helium", "glm", "glm4", "glm4_moe", "qwen2_moe", "seed_oss", "glm4v_moe_text", "mimo"}
    out = everywhere or (c.get("attention_bias") and kind not in plain) or (kind == "internlm" and c.get("bias"))
    return (q + 2 * kv if qkv else 0) + (h if out else 0), ups * f + h if everywhere or kind in {"gpt_neox", "gptj", "jais2"} else 0


def qk_norms(c, n, g, d):
    if c.kind in {"olmo2", "olmo3", "olmoe", "flex_olmo", "minimax_m2"}:
        return n * d + g * d
    if c.kind == "gpt_oss":  # sinks
        return n
    has = c.kind in {"qwen3", "qwen3_moe", "gemma3", "gemma3_text", "dots1", "exaone4", "hunyuan_v1_moe", "qwen3_vl_text",
                     "qwen3_vl_moe_text", "afmoe", "exaone_moe", "hunyuan_v1_dense", "hy_v3", "bailing_moe_v2", "mellum"} or (c.kind == "glm4_moe" and c.get("use_qk_norm"))
    return 2 * d if has else 0


def experts(c, h, m, layer):
    """Returns the matrices of a layer's experts, those of one token, and biases; nothing for a dense layer."""
    count = c.get("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "ffn_config/moe_num_experts")
    if not count or count < 2:
        return None
    first = c.get("first_k_dense_replace", "moe_layer_start_index", default=0)
    first = c.get("num_dense_layers", default=(c.get("is_moe_layer", default=[]) + [True]).index(True) or first)
    every = c.get("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", default=1)
    last = c.get("moe_layer_end_index", default=-1)
    if last >= 0 and layer > last:
        return None
    if layer < first or (layer + 1) % every != 0 or layer in c.get("mlp_only_layers", default=[]):
        return None
    chosen = c.get("num_experts_per_tok", "moe_k", "moe_topk", "ffn_config/moe_top_k")
    width = c.get("moe_intermediate_size", "ffn_config/ffn_hidden_size", "intermediate_size")
    shared = c.get("shared_expert_intermediate_size", default=0)
    shared = shared or width * c.get("n_shared_experts", "moe_num_shared_experts", "num_shared_expert", "num_shared_experts", default=0)
    shared = width if c.kind.startswith("llama4") else shared
    gate = h if c.kind == "qwen2_moe" else 0
    shared = h if c.kind == "arctic" else shared
    beside = h * count + m * h * shared + gate
    one = m * h * width
    bias = (2 * width + h, count) if c.kind == "gpt_oss" else (0, 0)
    return {"matrices": beside + count * one, "read": beside + chosen * one,
            "biases": count * bias[0] + bias[1], "read_biases": chosen * bias[0] + bias[1]}


def window(c, layers):
    """Returns by layer the keys that a token sees at most, or None, and whether they are of a chunk."""
    chunk = c.get("attention_chunk_size", default=8192 if c.kind.startswith("llama4") else None)
    width = chunk or c.get("sliding_window", "window_size")
    if width is None or c.get("use_sliding_window") is False or c.kind in {"qwen2", "qwen2_vl", "qwen3", "qwen2_moe", "mimo"}:
        return [(None, False)] * layers
    types = c.get("layer_types")
    pattern = c.get("sliding_window_pattern", "_sliding_window_pattern",
                    default={"gemma2": 2, "gemma3_text": 6, "gemma3": 6, "gpt_oss": 2, "olmo3": 4, "afmoe": 4, "vaultgemma": 2}.get(c.kind, 4 if chunk else 0))
    pattern = len(pattern) if isinstance(pattern, str) else pattern  # "LLLG"
    full = [types[i] == "full_attention" if types else bool(pattern) and (i + 1) % pattern == 0 for i in range(layers)]
    return [(None if all_keys else width, bool(chunk)) for all_keys in full]


def share(s, width, chunk):
    if width is None or width >= s:
        return 1
    if chunk:
        whole, rest = divmod(s, width)
        seen = whole * width * (width + 1) // 2 + rest * (rest + 1) // 2
    else:
        seen = sum(min(i, width) for i in range(1, s + 1))
    return seen / (s * (s + 1) / 2)


def published(config, s):
    """Returns parameters, those that one token reads, and the forward FLOPs of s tokens."""
    c = Config(config)
    h = c.get("hidden_size", "n_embd", "n_embed", "d_model")
    layers = c.get("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    V = c.get("padded_vocab_size", "vocab_size")
    m = 2 if c.kind in UNGATED else 3
    f = c.get("intermediate_size_mlp", "shared_intermediate_size", "intermediate_size", "n_inner", "ffn_hidden_size", default=4 * h)
    f = f // 2 if c.kind == "qwen" else f
    n, g, d, v = attention(c, h)
    norms = NORMS.get(c.kind, 2)
    if c.kind == "falcon" and c.get("parallel_attn", default=True) and not c.get("new_decoder_architecture"):
        norms = 1
    vector = VECTORS.get(c.kind, 1) * h
    attend = h * n * d + h * g * d + h * g * v + n * v * h + (h * n * v if c.kind == "afmoe" else 0)
    inner = qk_norms(c, n, g, d)
    if c.get("kv_lora_rank"):
        rank, queries = c.get("kv_lora_rank"), c.get("q_lora_rank")
        nope, rope = c.get("qk_nope_head_dim"), c.get("qk_rope_head_dim")
        attend = (h * queries + queries * n * d if queries else h * n * d) + h * (rank + rope)
        attend += rank * n * (nope + v) + n * v * h
        inner = rank + (queries or 0)
    of_attention, of_mlp = biases(c, h, n * d, g * d, m - 1, f)
    total = read = matrices = 0
    for layer in range(layers):
        own = experts(c, h, m, layer)
        own = own or {"matrices": m * h * f, "read": m * h * f, "biases": of_mlp, "read_biases": of_mlp}
        always = attend + of_attention + inner + norms * vector
        total += always + own["matrices"] + own["biases"]
        read += always + own["read"] + own["read_biases"]
        matrices += attend + own["read"]
    tied = config.get("tie_word_embeddings", c.get("tie_word_embeddings", default=c.kind in TIED))
    outside = V * h * (1 if tied else 2) + vector
    if c.kind in LEARNED:
        outside += c.get("n_positions", "max_position_embeddings", default=1024) * h
    if c.kind == "bloom":
        outside += vector
    if c.kind in {"phi", "gptj"} or c.get("lm_head_bias"):
        outside += V
    flops = 2 * s * (matrices + V * h)
    for width, chunk in window(c, layers):
        flops += 2 * s * s * n * (d + v) * share(s, width, chunk)
    return total + outside, read + outside, flops
