"""The sections of the HTTP front: the server itself, its TLS, its logs, metrics and traces.

Owns: defaults, ranges and cross-checks of their options. Knows nothing of where values come from.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from turret.config.options import opt, require

__all__ = ["ObservabilityConfig", "ServerConfig", "TlsConfig"]

_CLIENT_CERTIFICATES = tuple(str(int(v)) for v in (ssl.CERT_NONE, ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED))


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The HTTP front."""

    host: str | None = opt(None, "Address to bind; unset: every interface.")
    port: int = opt(8000, "TCP port.")
    uds: str | None = opt(None, "Unix domain socket instead of TCP.")
    api_key: list[str] | None = opt(None, "Accepted bearer tokens.")
    root_path: str | None = opt(None, "URL prefix behind a path-rewriting proxy.")
    middleware: list[str] = opt([], "ASGI middleware by import path (package.module.Name): a class, or an async "
                                    "function (request, call_next); repeatable, the last one outermost.")
    allow_credentials: bool = opt(False, "CORS: permit credentialed requests.")
    allowed_origins: list[str] = opt(["*"], "CORS: origins.", kind="json")
    allowed_methods: list[str] = opt(["*"], "CORS: methods.", kind="json")
    allowed_headers: list[str] = opt(["*"], "CORS: headers.", kind="json")
    uvicorn_log_level: str = opt("info", "Verbosity of the web server's own log.",
                                 choices=("critical", "error", "warning", "info", "debug", "trace"))
    disable_uvicorn_access_log: bool = opt(False, "No line per HTTP request.")
    disable_fastapi_docs: bool = opt(False, "Hide the OpenAPI document and pages.")
    enable_request_id_headers: bool = opt(False, "X-Request-Id on every answer.")
    enable_prompt_tokens_details: bool = opt(False, "Report cached prompt tokens in usage.")
    enable_force_include_usage: bool = opt(False, "Usage in every stream.")
    enable_server_load_tracking: bool = opt(False, "Count requests in flight for /load.")
    return_tokens_as_token_ids: bool = opt(False, "Show tokens in logprobs as token_id:N.")
    response_role: str = opt("assistant", "Role of generated messages.")
    chat_template_content_format: str = opt("auto", "How message content reaches the template.",
                                            choices=("auto", "string", "openai"))
    exclude_tools_when_tool_choice_none: bool = opt(False, "No tools in the prompt when tool_choice is none.")
    endpoints: list[str] | None = opt(None, "APIs beside OpenAI's: endpoint plugins by name; unset: messages and "
                                            "responses, where installed.")
    reasoning_parser: str | None = opt(
        None, "Reasoning parser plugin that splits reasoning from the answer; auto: the one that knows the model's "
              "chat template.")
    tool_call_parser: str | None = opt(
        None, "Tool parser plugin that reads the model's tool calls; auto: the one that knows its chat template.")
    tool_parser_plugin: str | None = opt(None, "Python file that defines tool parsers, to name with "
                                               "--tool-call-parser.")
    reasoning_parser_plugin: str | None = opt(None, "Python file that defines reasoning parsers, to name with "
                                                    "--reasoning-parser.")
    enable_auto_tool_choice: bool = opt(False, "Let the model call tools; needs --tool-call-parser.")
    trust_request_chat_template: bool = opt(False, "Let clients send a chat template.")
    enable_tokenizer_info_endpoint: bool = opt(False, "Publish the tokenizer's configuration at /tokenizer_info.")
    tokens_only: bool = opt(False, "Of the model's routes only /inference/v1/generate: token ids in, token ids out.")
    server_dev_mode: bool = opt(False, "Routes for development: /server_info, /reset_prefix_cache.")
    h11_max_incomplete_event_size: int = opt(4194304, "Largest head of an HTTP request, in bytes.", kind="size")
    h11_max_header_count: int = opt(256, "Most headers of an HTTP request.")
    timeout_keep_alive: float = opt(5.0, "Seconds an idle connection is kept for its next request.")
    timeout_client: float = opt(
        60.0, "Seconds a client may take for a request's head, and pause in sending its body or reading its answer.")
    max_connections: int | None = opt(
        None, "Connections held at a time; more answer 503. Unset: what the limit on open files leaves.")
    max_queue_requests: int | None = opt(4096, "Requests that may wait for their first token; more answer 429.")
    max_queue_tokens: int | None = opt(
        16 << 20, "Prompt tokens that may wait for their first token; more answer 429.", kind="size")
    queue_timeout: float | None = opt(
        None, "Seconds a request may wait for its turn before it answers 503; X-Turret-Queue-Timeout may shorten it.")
    shutdown_timeout: float = opt(30.0, "Seconds running requests get to finish after Ctrl-C or SIGTERM.")

    def __post_init__(self) -> None:
        require(bool(self.tool_call_parser) or not self.enable_auto_tool_choice, "enable-auto-tool-choice",
                "needs --tool-call-parser NAME, the plugin that reads the calls")
        require(0 <= self.port <= 65535, "port", f"must be in [0, 65535], got {self.port}")
        require(self.shutdown_timeout >= 0, "shutdown-timeout", "must not be negative")
        for name in ("max_queue_requests", "max_queue_tokens", "max_connections", "h11_max_header_count"):
            value = getattr(self, name)
            require(value is None or value >= 1, name.replace("_", "-"), f"must be at least 1, got {value}")
        for name in ("queue_timeout", "timeout_keep_alive", "timeout_client"):
            value = getattr(self, name)
            require(value is None or 0 < value < float("inf"), name.replace("_", "-"),
                    f"must be a number of seconds above 0, got {value}")
        require(self.h11_max_incomplete_event_size >= 1, "h11-max-incomplete-event-size",
                f"must be at least 1 byte, got {self.h11_max_incomplete_event_size}")


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS of the HTTP front; off while there is no certificate."""

    ssl_certfile: str | None = opt(None, "TLS certificate chain (PEM); switches TLS on.")
    ssl_keyfile: str | None = opt(None, "TLS private key (PEM); unset: in the certificate's file.")
    ssl_ca_certs: str | None = opt(None, "Certificates (PEM) that client certificates are checked against.")
    ssl_cert_reqs: str = opt("0", "Client certificates: 0 never asked for, 1 checked when sent, 2 required.",
                             choices=_CLIENT_CERTIFICATES)
    ssl_ciphers: str | None = opt(None, "Ciphers for TLS 1.2 and older, in OpenSSL's notation.")
    enable_ssl_refresh: bool = opt(False, "Read the TLS files again when they change.")

    def __post_init__(self) -> None:
        for name in ("ssl_keyfile", "ssl_ca_certs", "ssl_ciphers", "enable_ssl_refresh"):
            require(bool(self.ssl_certfile) or not getattr(self, name), name.replace("_", "-"),
                    "needs --ssl-certfile, without which there is no TLS")
        require(bool(self.ssl_certfile) or self.ssl_cert_reqs == "0", "ssl-cert-reqs",
                "needs --ssl-certfile, without which there is no TLS")
        require(bool(self.ssl_ca_certs) or self.ssl_cert_reqs == "0", "ssl-cert-reqs",
                "needs --ssl-ca-certs, the certificates that clients are checked against")


@dataclass(frozen=True, slots=True)
class ObservabilityConfig:
    """Logs, metrics and traces."""

    disable_log_stats: bool = opt(False, "No periodic statistics line and no engine series in /metrics.")
    enable_log_requests: bool = opt(False, "Log each incoming request.", negatable=True)
    enable_log_outputs: bool = opt(False, "Log generated text too; needs --enable-log-requests.")
    log_error_stack: bool = opt(False, "Log the stack trace of every answer that is an error.")
    max_log_len: int | None = opt(None, "Cut logged prompts and outputs to this many characters.")
    log_level: str = opt("info", "Verbosity of turret's log.", choices=("debug", "info", "warning", "error"))
    log_config_file: str | None = opt(
        None, "JSON file in the form of Python's logging.config.dictConfig, instead of turret's own log set-up.")
    metrics_compat: str | None = opt(None, "Give every metric under a second name too: vllm.", choices=("vllm",))
    kv_cache_metrics: bool = opt(False, "Tell in /metrics how long KV blocks stay and how often they are used again.")
    kv_cache_metrics_sample: float = opt(0.01, "Share of the KV blocks that --kv-cache-metrics watches.")
    otlp_traces_endpoint: str | None = opt(
        None, "Where OpenTelemetry traces of requests are sent (OTLP over gRPC, or over HTTP where "
              "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is http/protobuf).")

    def __post_init__(self) -> None:
        require(self.max_log_len is None or self.max_log_len >= 0, "max-log-len",
                f"must not be negative, got {self.max_log_len}")
        require(not (self.kv_cache_metrics and self.disable_log_stats), "kv-cache-metrics",
                "tells its figures with the engine's statistics, which --disable-log-stats switches off")
        require(0 < self.kv_cache_metrics_sample <= 1, "kv-cache-metrics-sample",
                f"must be above 0 and at most 1, got {self.kv_cache_metrics_sample}")
        require(self.kv_cache_metrics or self.kv_cache_metrics_sample == 0.01, "kv-cache-metrics-sample",
                "needs --kv-cache-metrics")
        require(self.enable_log_requests or not self.enable_log_outputs, "enable-log-outputs",
                "works only together with --enable-log-requests")
