"""turret against its peers on a CPU: same weights, same prompts, greedy, in alternation; ratios against required ones.

Each engine runs in a process of its own and is stopped while another one works. A round takes each figure once from
every engine: 512-token prefill, one stream (128 in, 128 out), 32 streams (128 in, 128 out each), and the same served
over HTTP to 1, 8 and 32 clients on the same cores. Ratios are taken within a round; the median of the rounds counts.
Figures taken while other processes used more than 0.2 CPUs are marked. The last line is one JSON object with every
ratio and `all_met`.

Set up the peers with benchmarks/cpu_peers/setup.sh, then for example:

    python benchmarks/cpu.py                                          # everything that is set up; hours
    python benchmarks/cpu.py --models smollm2 --peers llamacpp --rounds 1 --cells prefill,one_stream,batch_32
    python benchmarks/cpu.py --report --markdown                      # the table of what earlier runs recorded
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from cpu_peers import offline, serving, table
from cpu_peers.cells import CELLS, FORMATS, PEERS, peers_of
from cpu_peers.figures import Fact, Record, read, summarise
from cpu_peers.memory import torch_import_bytes
from cpu_peers.processes import Engine, EngineError, Machine, Paths, engine_command
from cpu_peers.starts import measure_starts


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    home = Path(os.environ.get("PEERS", str(Path.home() / "peers")))
    parser.add_argument("--home", type=Path, default=home, help="what setup.sh filled; default $PEERS or ~/peers")
    parser.add_argument("--models", default=",".join(FORMATS), help="default: %(default)s")
    parser.add_argument("--formats", default="", help="only these; default: all that a model has")
    parser.add_argument("--peers", default=",".join(PEERS), help="default: %(default)s")
    parser.add_argument("--cells", default=",".join(CELLS), help="default: %(default)s")
    parser.add_argument("--served", default=",".join(FORMATS), help="models whose servers are measured; default: all")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no further group after so long")
    parser.add_argument("--prototype", type=Path, help="folder with an engine.py to measure against (bench_util.py)")
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH", help="a peer's interpreter")
    parser.add_argument("--llama-server", type=Path, help="default: llama/bin/llama-server in --home")
    parser.add_argument("--record", type=Path, help="file of figures; default: figures.jsonl in --home")
    parser.add_argument("--fresh", action="store_true", help="report this run alone, not the whole file")
    parser.add_argument("--report", action="store_true", help="measure nothing; show what the file holds")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown")
    parser.add_argument("--into", type=Path, help="put the Markdown table into this page, between its marks")
    parser.add_argument("--starts", action="store_true", help="time first tokens of cold and second starts too")
    parser.add_argument("--longest-wait", type=float, default=20.0, help="seconds to wait for a quiet machine")
    parser.add_argument("--again", type=int, default=1, help="tries more for a disturbed figure; default: %(default)s")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: %(default)s")
    args = parser.parse_args()
    args.record = args.record or args.home / "figures.jsonl"
    return args


def paths_of(args: argparse.Namespace) -> Paths:
    """Interpreters that exist."""
    base, vllm = args.home / "base/bin/python", args.home / "vllm/bin/python"
    pythons = {"turret": Path(sys.executable), "llamacpp": base, "transformers": base, "prototype": base, "vllm": vllm}
    pythons.update({name: Path(path) for name, _, path in (one.partition("=") for one in args.python)})
    server = args.llama_server or args.home / "llama/bin/llama-server"
    logs = args.home / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    have = {name: path for name, path in pythons.items() if path.exists()}
    if args.prototype is None:
        have.pop("prototype", None)
    return Paths(args.home / "models", have, server if server.exists() else None, args.prototype, logs)


def groups(args: argparse.Namespace, paths: Paths) -> list[tuple[str, str, list[str]]]:
    """(model, format, peers) in the order they are measured; what is not set up is named and left out."""
    found = []
    for model in args.models.split(","):
        for form in FORMATS[model]:
            if args.formats and form not in args.formats.split(","):
                continue
            if not (paths.models / model).is_dir():
                print(f"{model}: not set up in {paths.models}", file=sys.stderr)
                continue
            wanted = [peer for peer in peers_of(model, form) if peer in args.peers.split(",")]
            for peer in (peer for peer in wanted if peer not in paths.interpreters):
                print(f"{model} {form}: {peer} is not set up", file=sys.stderr)
            found.append((model, form, [peer for peer in wanted if peer in paths.interpreters]))
    return found


def measure_offline(group: tuple[str, str, list[str]], args: argparse.Namespace, paths: Paths, record: Record) -> None:
    """All offline cells of a group."""
    model, form, peers = group
    cells = [cell for cell in args.cells.split(",") if cell in offline.OFFLINE]
    machine = Machine(args.threads, sorted(os.sched_getaffinity(0)))
    engines: list[Engine] = []
    try:
        for name in ("turret", *peers) if cells else ():
            command, env = engine_command(name, (model, form), paths, machine)
            engine = Engine(name, command, env, paths.logs / f"{model}-{form}-{name}.log")
            engines.append(engine)
            try:
                engine.ready()
                offline.warm_up(engine)
            except EngineError as error:
                print(f"{model} {form}: {error}", file=sys.stderr)
                engines.pop().close()
                continue
            record.add(Fact(record.run, f"version_{name}", engine.facts.get("version")))
        if engines:
            offline.run_rounds((model, form), engines, cells, args.rounds, record)
    finally:
        for engine in engines:
            engine.close()


def measure(args: argparse.Namespace, record: Record) -> None:
    """Group after group, as long as there is time."""
    paths, began = paths_of(args), time.monotonic()
    record.add(Fact(record.run, "torch_import_bytes", torch_import_bytes(paths.interpreters["turret"])))
    if args.starts:
        measure_starts(record, serving.free_port())
    served = [cell for cell in args.cells.split(",") if cell in serving.CLIENTS]
    for group in groups(args, paths):
        if time.monotonic() - began > args.minutes * 60:
            print(f"no time for {group[0]} {group[1]}", file=sys.stderr)
            continue
        measure_offline(group, args, paths, record)
        if served and group[0] in args.served.split(","):
            machine = Machine(args.threads, sorted(os.sched_getaffinity(0)))
            serving.measure(group, serving.Load(served, args.rounds), paths, machine, record)


def main() -> None:
    """Measure, show, judge."""
    args = arguments()
    record = Record(time.strftime("%Y%m%dT%H%M%S"), args.record, offline.Patience(args.longest_wait, args.again))
    if not args.report:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # stopped engines must not outlive this process
        measure(args, record)
    summary = summarise(record.figures if args.fresh else read(args.record))
    print("\n".join(table.lines(summary, args.markdown)), flush=True)
    if args.into:
        table.put_into(args.into, summary)
    print(json.dumps(table.verdict(summary)))


if __name__ == "__main__":
    main()
