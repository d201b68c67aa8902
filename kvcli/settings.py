"""The config file: `kvcli/config.toml` in the user's config folder, keys named like the options.

Owns reading and checking it. Knows no defaults. It is looked for in the user's config folder alone,
never in a repository that is read or in the working directory.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any

import platformdirs

from engine.errors import ConfigError
from kvcli.options import option_names


def config_path() -> Path:
    """Where the config file is looked for."""
    return platformdirs.user_config_path("kvcli") / "config.toml"


def load_settings(path: Path) -> dict[str, Any]:
    """Read a config file.

    Returns:
        Values by option name with underscores; empty if there is no file.

    Raises:
        ConfigError: Unreadable, not TOML, or a key that is no option.
    """
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", "Correct or remove it.") from error
    known = option_names()
    named = {key.replace("-", "_"): value for key, value in settings.items()}
    for key in named.keys() - known:
        close = difflib.get_close_matches(key, known, 1)
        hint = (
            f'Did you mean "{close[0]}"?' if close else "Keys are the long options: model, ram, ..."
        )
        raise ConfigError(f'{path} has an unknown key "{key}"', hint)
    return named
