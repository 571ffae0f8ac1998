"""Models on the Hugging Face Hub, named as ORG/NAME or ORG/NAME@REVISION."""

import re
from pathlib import Path

from realm_jax.errors import InputError
from realm_jax.storage import files

_ID = re.compile(r"(?!\.+/)[\w.-]{1,96}/(?!\.+(?:@|$))[\w.-]{1,96}(?:@[\w./-]{1,128})?", re.ASCII)
_FILES = ["*.json", "vocab.txt", "*/vocab.txt", "*.safetensors", "*_Dense/pytorch_model.bin"]
_TORCH_FILES = ["pytorch_model*.bin", "*/pytorch_model.bin"]  # only of models without safetensors
_OTHER_FORMATS = ["onnx/*", "openvino/*", "tflite/*", "coreml/*", ".*"]


def is_hub_id(name: str) -> bool:
    """Whether `name` can be a model on the Hub, and is not a path on this machine."""
    return bool(_ID.fullmatch(name)) and not Path(name).exists()


def download(name: str) -> Path:
    """The local folder of a model on the Hub; files in the cache are not downloaded again.

    `huggingface_hub` decides where the Hub and the cache are (`HF_ENDPOINT`, `HF_HOME`).

    Args:
      name: see `is_hub_id`.

    Raises:
      InputError: there is no such model, or it needs a login, or the Hub cannot be reached.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    model, _, revision = name.partition("@")

    def fetch(patterns: list[str]) -> Path:
        return Path(
            snapshot_download(
                model,
                revision=revision or None,
                allow_patterns=patterns,
                ignore_patterns=_OTHER_FORMATS,
            )
        )

    try:
        folder = fetch(_FILES)
        return folder if any(folder.rglob("*.safetensors")) else fetch(_FILES + _TORCH_FILES)
    except GatedRepoError as error:
        raise _refused(
            name, "the model on the Hub needs a login", error, "hf auth login"
        ) from error
    except RevisionNotFoundError as error:
        fix = f"leave out @{revision}, or use a branch, tag or commit of the model"
        raise _refused(name, "no such revision of the model on the Hub", error, fix) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        fix = "check the spelling of the folder or of ORG/NAME"
        problem = "no such folder, and no such model on the Hub"
        raise _refused(name, problem, error, fix) from error
    except _http_errors() as error:
        _raise_if_of_disk(error)
        fix = (
            f"check the spelling of a folder; for a model, connect to the Hub, or run `hf download "
            f"{model}` on another machine and give the folder"
        )
        problem = "no such folder, and the model is not in the cache and the Hub cannot be reached"
        raise _refused(name, problem, error, fix) from error


def require_hub_id(name: str) -> None:
    """Raises an InputError if `name` cannot be a model on the Hub."""
    if not _ID.fullmatch(name) or "@" in name:
        raise InputError("not the name of a model", expected="ORG/NAME", found=repr(name)[:200])


def upload(folder: Path, name: str) -> str:
    """Uploads a folder as a model, which is created if it does not exist; returns its address.

    Raises:
      InputError: no login, no permission, or the Hub cannot be reached.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        address = api.create_repo(name, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="realm export")
    except _http_errors() as error:
        _raise_if_of_disk(error)
        fix = "log in (`hf auth login`) with a token that may write there, and connect to the Hub"
        problem = "the model could not be uploaded to the Hub"
        raise _refused(name, problem, error, fix) from error
    return str(address)


def _http_errors() -> tuple[type[Exception], ...]:
    """Errors of the network: of the Hub, of its HTTP library, and of the system."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    bases = (base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception))
    # Versions before 1.0 use requests, whose errors are OSErrors.
    return (LocalEntryNotFoundError, OfflineModeIsEnabled, OSError, *bases)


def _raise_if_of_disk(error: Exception) -> None:
    """Raises an error of the disk again: it names a file, or has a number of its own."""
    codes = files.FULL | files.NOT_WRITABLE
    if isinstance(error, OSError) and (error.filename is not None or error.errno in codes):
        raise error


def _refused(name: str, problem: str, error: Exception, fix: str) -> InputError:
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return InputError(
        problem,
        where=name,
        expected="a folder, or ORG/NAME[@REVISION] of a model on the Hub",
        found=reason[:200],
        fix=fix,
    )
