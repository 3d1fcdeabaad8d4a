"""The other programs that compare.py measures."""
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
LONGEST = 2048  # tokens of one pass of llama.cpp


class LlamaCpp:
    """A file of make_gguf.py, through the low-level bindings of llama-cpp-python."""

    def __init__(self, path, threads):
        import llama_cpp
        self.api = llama_cpp
        self.silent = llama_cpp.llama_log_callback(lambda level, text, data: None)  # kept: it is called
        llama_cpp.llama_log_set(self.silent, None)
        llama_cpp.llama_backend_init()
        print(llama_cpp.llama_print_system_info().decode())
        options = llama_cpp.llama_model_default_params()
        options.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), options)
        if not self.model:
            raise SystemExit(f"{path}: llama.cpp cannot load it")
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = context.n_batch = context.n_ubatch = LONGEST
        context.n_threads = context.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        self.batch = llama_cpp.llama_batch_init(LONGEST, 0, 1)

    def clear(self):
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)
        self.position = 0

    def feed(self, ids, all_logits):
        """As MlxLm.feed, without the id."""
        batch = self.batch
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i] = token, self.position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = all_logits or i + 1 == len(ids)
            self.position += 1
        if self.api.llama_decode(self.context, batch) != 0:
            raise SystemExit("llama_decode failed")
        self.api.llama_synchronize(self.context)


class MlxLm:
    """The checkpoint as it is, activations in bf16. MLX chooses its threads itself."""

    def __init__(self, model, threads):
        import mlx.core as mx
        from mlx_lm import load
        from mlx_lm.models.cache import make_prompt_cache
        mx.set_default_device(mx.cpu)
        self.mx, self.make_cache = mx, make_prompt_cache
        self.model, _ = load(str(ROOT / "models" / model))

    def clear(self):
        self.cache = self.make_cache(self.model)

    def feed(self, ids, all_logits):
        """Evaluates the ids behind those that were fed; the greedy next id."""
        mx = self.mx
        if not all_logits and len(ids) > 1:  # as mlx-lm reads a prompt
            self.model(mx.array([ids[:-1]]), cache=self.cache)
            mx.eval([layer.state for layer in self.cache])
            ids = ids[-1:]
        logits = self.model(mx.array([ids]), cache=self.cache)
        mx.eval(logits)
        return int(mx.argmax(logits[0, -1]).item())


class Transformers:
    """The same weights, dequantised to bf16 and computed in fp32 by the torch code of transformers."""

    def __init__(self, model, threads):
        import torch
        import transformers
        from check_mlx_convert import make_source
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        self.torch, self.make_cache = torch, transformers.DynamicCache
        with tempfile.TemporaryDirectory() as scratch:
            twin = pathlib.Path(scratch) / "twin"
            make_source(ROOT / "models" / model, twin)
            self.model = transformers.AutoModelForCausalLM.from_pretrained(str(twin), dtype=torch.float32).eval()

    def clear(self):
        self.cache = self.make_cache(config=self.model.config)

    def feed(self, ids, all_logits):
        """As MlxLm.feed."""
        out = self.model(self.torch.tensor([ids]), cache=self.cache, use_cache=True, logits_to_keep=0 if all_logits else 1)
        return int(out.logits[0, -1].argmax())
