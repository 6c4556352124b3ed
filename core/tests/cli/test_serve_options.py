"""Options of `turret serve`: how they are written, where their values come from and which values they take."""

from __future__ import annotations

import pytest

from turret.cli.arguments import read_options
from turret.cli.values import parse_flag, parse_size
from turret.config import Config, option_table
from turret.errors import ConfigError


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("demo", {"model": "demo"}),
        ("--model demo", {"model": "demo"}),
        ("--max_model_len 4K", {"max_model_len": 4096}),
        ("--max-model-len=4k", {"max_model_len": 4000}),
        ("--max-model-len auto", {"max_model_len": -1}),
        ("--max-model-len -1", {"max_model_len": -1}),
        ("--kv-cache-memory-bytes 1.5g", {"kv_cache_memory_bytes": 1_500_000_000}),
        ("--no-enable-prefix-caching", {"enable_prefix_caching": False}),
        ("--enable-prefix-caching=false", {"enable_prefix_caching": False}),
        ("--trust_remote_code", {"trust_remote_code": True}),
        ("--served-model-name a b --api-key k", {"served_model_name": ["a", "b"], "api_key": ["k"]}),
        ("--plugins-deny a --plugins-deny b", {"plugins_deny": ["a", "b"]}),
        ('--hf-overrides {"a":1}', {"hf_overrides": {"a": 1}}),
        ("--hf-overrides.a.b 1e6 --hf-overrides.name x", {"hf_overrides": {"a": {"b": 1e6}, "name": "x"}}),
        ('--hf-overrides {"a":{"b":1}} --hf-overrides.a.c 2', {"hf_overrides": {"a": {"b": 1, "c": 2}}}),
        ("--hf-overrides.list+ 1 --hf-overrides.list+ two", {"hf_overrides": {"list": [1, "two"]}}),
        ('--allowed-origins ["a"]', {"allowed_origins": ["a"]}),
        ("-q gguf -tp 1", {"quantization": "gguf", "tensor_parallel_size": 1}),
        ("--hf-token --port 1", {"hf_token": None, "port": 1}),
        ("--hf-token secret demo", {"hf_token": "secret", "model": "demo"}),
        ("--ssl-cert-reqs 2", {"ssl_cert_reqs": "2"}),
        ("--gpu-memory-utilization .5", {"gpu_memory_utilization": 0.5}),
    ],
)
def test_spellings(argv, expected):
    assert read_options(argv.split(), {}) == expected


@pytest.mark.parametrize(
    "argv",
    ["--runner generate m", "--nnodes 1 m", "--nnodes=1 m", "--no-enable-lora m", "-n 1 m",
     "--swap-space 0 m", "--convert none m", "--enable-lora=false m"],
)  # fmt: skip
def test_a_value_that_asks_for_nothing_passes(argv):
    assert read_options(argv.split(), {}) == {"model": "m"}


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--nonsense", "no such option"),
        ("--max-model-le 3", "did you mean max-model-len"),
        ("--port x", "'x' is not a whole number"),
        ("--max-num-seqs 1.5", "not a whole number"),
        ("--max-model-len 4KB", "not a count"),
        ("--dtype float8", "not one of auto, bfloat16"),
        ("--hf-overrides x", "is not JSON"),
        ("--hf-overrides [1]", "is not a JSON object"),
        ("--port.x 1", "no keys"),
        ("--api-key", "expected at least one argument"),
        ("a b", "unrecognized arguments: b"),
        ("a --model b", "named twice"),
        ("--config /nowhere.yaml", "/nowhere.yaml"),
        ("--nnodes 2", "on one machine"),
        ("-O3", "nothing is compiled"),
        ("-cc.level=3", "nothing is compiled"),
    ],
)
def test_mistakes_are_one_sentence(argv, words):
    with pytest.raises(ConfigError) as caught:
        read_options(argv.split(), {})
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_the_command_line_beats_the_file_beats_the_environment(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("model: from-file\nmax-model-len: 2K\nport: 1\nserved_model_name: [a, b]\nenable-lora: false\n")
    environ = {"TURRET_PORT": "2", "TURRET_DTYPE": "float32", "TURRET_MAX_NUM_SEQS": "9", "TURRET_API_KEY": "k"}
    merged = read_options(["--config", str(file), "--max-num-seqs", "3", "from-line"], environ)
    assert merged == {
        "model": "from-line", "max_model_len": 2048, "port": 1, "served_model_name": ["a", "b"], "dtype": "float32",
        "max_num_seqs": 3, "api_key": ["k"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a", "must hold a mapping"),
        ("a: [", "not valid YAML"),
        ("nonsense: 1", "nonsense: there is no such option"),
        ("enable-lora: true", "enable-lora: adapters are not"),
        ("port: true", "port: True is not a whole number"),
    ],
)
def test_mistakes_in_the_file_name_it(tmp_path, text, words):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"config\.yaml") as caught:
        read_options(["--config", str(file)], {})
    assert words in str(caught.value)


def test_options_make_a_config():
    config = Config.from_options(read_options(["demo", "--port", "1", "--no-async-scheduling"], {}))
    assert config.model.model == "demo" and config.server.port == 1 and not config.scheduler.async_scheduling


@pytest.mark.parametrize(("text", "size"), [("0", 0), ("1k", 1000), ("1K", 1024), ("2M", 2 << 20), ("1.5m", 1_500_000)])
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "1.5", "1.5K", "1kb", "k", "1.2345k"])
def test_sizes_that_are_none(text):
    with pytest.raises(ValueError, match=r"not a (count|whole)|fractions"):
        parse_size(text)


def test_flags():
    assert [parse_flag(t) for t in ("1", "Yes", "on", "0", "false", "OFF")] == [True] * 3 + [False] * 3
    with pytest.raises(ValueError, match="neither"):
        parse_flag("maybe")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpu_threads", 0), ("max_log_len", -1), ("h11_max_incomplete_event_size", 0), ("block_size", 300),
        ("max_num_seqs", 0), ("max_queue_requests", 0), ("max_queue_tokens", 0), ("queue_timeout", 0.0),
        ("queue_timeout", float("inf")), ("shutdown_timeout", -1.0), ("gpu_memory_utilization", 1.5),
        ("max_logprobs", -2), ("kv_cache_memory_bytes", 0), ("tensor_parallel_size", 2),
        ("max_long_partial_prefills", 3), ("timeout_client", 0.0), ("timeout_keep_alive", -1.0),
        ("max_connections", 0), ("h11_max_header_count", 0),
    ],
)  # fmt: skip
def test_values_out_of_range_name_the_option(name, value):
    with pytest.raises(ConfigError, match=f"^--{name.replace('_', '-')} ") as told:
        Config.from_options({name: value})
    assert told.value.option == name.replace("_", "-")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("kv_cache_memory_bytes", "1M", "must be a whole number, got '1M'"), ("max_num_seqs", True, "a whole number"),
        ("gpu_memory_utilization", "0.5", "must be a number"), ("enforce_eager", 1, "must be true or false"),
        ("plugin_config", "a:b.c=1", "must be a list"), ("hf_overrides", [], "must be an object"),
        ("allowed_origins", {}, "must be a list"), ("model", 3, "must be a text"),
        ("kv_cache_dtype", "fp8_inc", "Gaudi's own format is not supported"),
        ("kv_cache_dtype", "fp4", "'fp4' is not one of auto, bfloat16, float16, float32, fp8, fp8_e4m3"),
    ],
)  # fmt: skip
def test_values_of_programs_are_checked(name, value, words):
    with pytest.raises(ConfigError, match=f"^--{name.replace('_', '-')}[ :]") as told:
        Config.from_options({name: value})
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ssl_keyfile": "k"}, "--ssl-keyfile needs --ssl-certfile"),
        ({"enable_ssl_refresh": True}, "--enable-ssl-refresh needs --ssl-certfile"),
        ({"ssl_cert_reqs": "2"}, "--ssl-cert-reqs needs --ssl-certfile"),
        ({"ssl_certfile": "c", "ssl_cert_reqs": "2"}, "--ssl-cert-reqs needs --ssl-ca-certs"),
        ({"ssl_certfile": "c", "ssl_cert_reqs": "3"}, "'3' is not one of 0, 1, 2"),
        ({"enable_log_outputs": True}, "only together with --enable-log-requests"),
    ],
)
def test_options_that_need_others(options, words):
    with pytest.raises(ConfigError) as told:
        Config.from_options(options)
    assert words in str(told.value)


def test_none_leaves_an_option_alone():
    assert Config.from_options(dict.fromkeys(o.field for o in option_table(Config))) == Config()
