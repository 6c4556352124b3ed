"""Files of the control groups that this process is in.

Owns: finding them, version 1 and 2, from its own group up to the root. Knows nothing of their meaning.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["group_files"]

MOUNT = "sys/fs/cgroup"


def group_files(name: str, root: Path = Path("/"), controller: str | None = None) -> list[str]:
    """Contents of file `name` in each group of this process, innermost first; groups without the file are left out.

    `controller` None means version 2; otherwise the version 1 hierarchy of that controller.
    """
    top = root / MOUNT if controller is None else root / MOUNT / controller
    path = _own_group(root, controller)
    if path is None:
        return []
    parts = [part for part in path.split("/") if part and part != ".."]
    folders = [top.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    contents = []
    for folder in folders:
        try:
            contents.append((folder / name).read_text(encoding="ascii").strip())
        except OSError:  # within a container the outer groups' folders are not mounted
            continue
    return contents


def _own_group(root: Path, controller: str | None) -> str | None:
    """This process's group as /proc/self/cgroup names it, or None if there is no such hierarchy."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if (controller is None and controllers == "") or (controller and controller in controllers.split(",")):
            return path
    return None
