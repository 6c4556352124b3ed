"""Hub ids: fetches a model's files into huggingface_hub's cache and gives their directory.

Owns: which files of a repository are wanted and how a failed fetch is told. Knows nothing of what is in them.

huggingface_hub is imported when a hub id is used: local models must not pay for it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from turret.checkpoint.model import ResolveOptions
from turret.checkpoint.torch_files import TORCH_PATTERNS
from turret.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HUB_ID", "fetch", "split_hub_id"]

HUB_ID = re.compile(r"^(?:[\w.-]{1,96}/)?[\w.-]{1,96}(?::[\w.-]{1,96})?$", re.ASCII)
_SMALL_FILES = ("*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken", "*.tekken")
_WEIGHTS = ("*.safetensors",)


def split_hub_id(reference: str) -> tuple[str, str | None]:
    """Repository and, for GGUF repositories, the quantization after a colon ("org/name:Q4_K_M")."""
    repo, _, variant = reference.partition(":")
    return repo, variant or None


def fetch(reference: str, options: ResolveOptions) -> Path:
    """The directory that holds the files of `reference`, downloaded if need be.

    Raises LoadError with one sentence: unknown or gated repository, no network and not cached, offline mode.
    """
    repo, variant = split_hub_id(reference)
    wanted: Sequence[str] = _SMALL_FILES
    if variant is not None:
        wanted = (*_SMALL_FILES, f"*{variant}*.gguf", f"*{variant.lower()}*.gguf", f"*{variant.upper()}*.gguf")
    elif options.need_weights:
        wanted = (*_SMALL_FILES, *(TORCH_PATTERNS if options.prefer_pt else _WEIGHTS))
    found = _download(repo, wanted, options)
    if variant is None and options.need_weights and not any(found.glob("*.safetensors")) and _has_config(found):
        # Which files there are is known only afterwards; the small ones are not fetched again.
        found = _download(repo, (*_SMALL_FILES, *TORCH_PATTERNS), options)
    return found


def _has_config(directory: Path) -> bool:
    return (directory / "config.json").is_file()


def _download(repo: str, wanted: Sequence[str], options: ResolveOptions) -> Path:
    from huggingface_hub import snapshot_download  # slow to import, needed for hub ids only
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        return Path(
            snapshot_download(
                repo,
                revision=options.revision,
                cache_dir=options.download_dir,
                token=options.token,
                allow_patterns=list(wanted),
                ignore_patterns=_ignored(options.ignore_patterns),
                local_files_only=options.local_files_only,
            )
        )
    except GatedRepoError:
        raise LoadError(f"hub model {repo!r} is gated: accept its terms on its page and pass --hf-token") from None
    except RepositoryNotFoundError:
        raise LoadError(f"hub model {repo!r} does not exist, or is private and needs --hf-token") from None
    except RevisionNotFoundError:
        raise LoadError(f"hub model {repo!r} has no revision {options.revision!r}") from None
    except LocalEntryNotFoundError:
        raise LoadError(
            f"hub model {repo!r} is not in the local cache and the hub cannot be reached (no network, or offline mode "
            "is on); use a local directory or fetch it first"
        ) from None
    except HFValidationError as exc:
        raise LoadError(f"{repo!r} is not a hub id: {exc}") from None
    except Exception as exc:  # httpx, disk and hub faults have no common root; each means the same to the user
        raise LoadError(f"hub model {repo!r} could not be fetched: {exc}") from exc


def _ignored(patterns: Sequence[str]) -> list[str]:
    """The client's wildcards know no `**`: there "a/**/*" misses the files directly in "a", here it means those too."""
    return list(dict.fromkeys([*patterns, *(p.replace("/**/", "/") for p in patterns)]))
