"""Names of files and folders that usually hold keys, passwords or recorded sessions.

Collected from the rules of repository scanners (gitleaks, shhgit, detect-secrets) and ``npm pack``.
Letter case, backups (``.env~``, ``keys.txt-old``, ``copy of keys.txt``) and packed copies (``.gz``) make no
difference.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fnmatch import translate

__all__ = ["names_packages", "of_journal", "secret_name", "secret_source"]

_SECRET = "looks like a secret"
_PLAYED = "holds what was played"
_HISTORY = "holds all that was ever committed"


@dataclass(frozen=True)
class _Kind:
    """Names with one reason: ``anywhere`` for files and whole folders, ``files`` for files only."""

    reason: str
    anywhere: re.Pattern[str]
    files: re.Pattern[str]


def _kind(reason: str, anywhere: str, files: str = "") -> _Kind:
    return _Kind(reason, _any_of(anywhere), _any_of(files))


def _any_of(names: str) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, names.split())) or r"(?!)")


_KINDS = (
    _kind(_PLAYED, ".orsay", "*-recent-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]"),
    _kind(_HISTORY, ".git .hg .svn"),
    # settings with passwords
    _kind(_SECRET, ".env* .direnv", "*.env *.env.txt dotenv"),
    # private keys and key stores
    _kind(
        _SECRET,
        "*.kdb *.kdbx *.keychain *.keychain-db",
        "*.pem *.key *.p8 *.p12 *.pfx *.pkcs12 *.jks *.keystore *.ppk *.keytab *.ovpn *.agekey"
        " id_rsa* id_dsa* id_ecdsa* id_ed25519* *_rsa *_dsa *_ecdsa *_ed25519 secring.*",
    ),
    # keys of servers, tokens, credentials
    _kind(
        _SECRET,
        "secrets .secrets credentials .credentials .secret",
        "keys keys.txt keys.json keys.y*ml keys.toml *[-_]keys *[-_.]keys.txt *[-_]key *[-_.]key.txt"
        " gcp*[-_]key.json gcloud*[-_]key.json google*[-_]key.json sa[-_]key.json service[-_]key.json"
        " *private[-_]key.json *firebase[-_]adminsdk*.json rootkey.csv *accesskeys.csv"
        " apikey apikey.* apikeys apikeys.* *api[-_]keys *api[-_]keys.* *api[-_]key *api[-_]key.txt"
        " token token.txt token.json .token *[-_]token *[-_]token.txt *[-_]token.json *[-_]token.y*ml *.token"
        " tokens tokens.txt tokens.json tokens.y*ml"
        " password password.txt password.json password.y*ml password.csv .password *[-_]password"
        " passwords passwords.txt passwords.json passwords.y*ml passwords.csv .passwords *[-_]password.txt"
        " .secret* secret secret.txt secret.json secret.toml secret.y*ml secrets.* client_secret*.json"
        " credentials.* *[-_]credentials *[-_]credentials.* service[-_]account*.json kaggle.json"
        " access_tokens.db cookies.txt cookies.sqlite",
    ),
    # credentials of programs
    _kind(
        _SECRET,
        ".ssh .gnupg .aws .azure .gcloud .kube .docker .huggingface .kaggle .terraform .password-store",
        ".netrc _netrc .authinfo* .pgpass pgpass.conf .my.cnf .mylogin.cnf .htpasswd .vault-token"
        " .pypirc .npmrc .yarnrc .yarnrc.y*ml .git-credentials .gitcookies .dockercfg .dockerconfigjson"
        " kubeconfig* *.kubeconfig .s3cfg .boto"
        " rclone.conf .rclone.conf .databrickscfg .modal.toml .snowsql .vault[-_]pass* vault[-_]pass*"
        " sftp-config.json sftp.json .ftpconfig .terraformrc *.tfstate *.tfstate.* *.tfvars *.tfvars.json",
    ),
    # histories of shells
    _kind(_SECRET, "", ".*_history .*_hist .histfile .history .lesshst .viminfo"),
)

# Public by design: public keys, example settings, answer keys.
_HARMLESS = re.compile(
    r".*\.(?:pub|example|sample|template|tmpl|dist)|\.env[-_](?:example|sample|template)"
    r"|authorized_keys|(?:.*[-_])?answers?[-_]keys?(?:\.txt)?"
)
_DATE = r"\d{4}[-_.]?\d\d[-_.]?\d\d(?:[-_.t ]?\d\d[-_.:]?\d\d(?:[-_.:]?\d\d)?)?z?"
_ASIDE = rf"copy|kopie|copie|copia|backup|bak|old|orig|saved|{_DATE}"
_COPY = re.compile(
    rf"~|#|[ ._-](?:{_ASIDE})|\.(?:save|rej|tmp|part|sw[a-p]|tar|tgz|gz|bz2|xz|zst|zip|7z|b64|\d{{1,14}})"
    r"|[ _]?\(\d+\)"
)
_WITHIN = re.compile(  # also of a second download
    rf"(?: - copy| - kopie|[ ._-](?:{_ASIDE}))?(?: ?\(\d+\))?(?=\.[^.]+$)"
)
_BEFORE = re.compile(  # of editors' lock files and copies, and of manual copies
    r"\.?#|\.(?=.+\.sw[a-p]$)|(?:copy|kopie|copie|copia)(?: ?\(\d+\))?[ _-](?:of|von|de|di)[ _-]"
    r"|(?:copy|backup|old)[ _-]"
)
# Source code: without ``credentials.py`` the project does not start.
_SOURCE = re.compile(
    r"[^.].*\.(?:pyi?|pyx|[cm]?[jt]s|[jt]sx|go|rs|c|h|cc|cpp|hpp|java|kt|scala|swift|cs|rb|lua|jl)"
)
# Package manager files: useful, unless the URL of an index contains a password.
_PACKAGES = _any_of(
    "pip.conf pip.ini *requirements*.txt *requirements*.in requirements/*.txt requirements/*.in"
    " *constraints*.txt pipfile pipfile.lock poetry.toml uv.toml pyproject.toml .condarc condarc"
    " environment*.y*ml conda*.y*ml .gitmodules"
)


def secret_name(relpath: str) -> str | None:
    """Reason why a file of that path (with slashes) is left out by its name, or None.

    A source file is left out by its name only in a folder such as ``.ssh``.
    """
    return _reason(relpath, source=_is_source(relpath))


def secret_source(relpath: str) -> bool:
    """True for a source file with a name by which any other file is left out."""
    return _is_source(relpath) and _reason(relpath, source=False) is not None


def names_packages(relpath: str) -> bool:
    """True for a package manager file, which may contain the URL of an index or a repository."""
    *folders, name = relpath.split("/")
    above = f"{_plain(folders[-1])}/" if folders else ""
    return any(_PACKAGES.match(each) for form in _forms(_plain(name)) for each in (form, above + form))


def _is_source(relpath: str) -> bool:
    return _SOURCE.fullmatch(_plain(relpath.rpartition("/")[2])) is not None


def _reason(relpath: str, *, source: bool) -> str | None:
    *folders, name = relpath.split("/")
    for folder in folders:
        for plain in _forms(_plain(folder)):
            if source and not plain.startswith("."):
                continue
            if _HARMLESS.fullmatch(plain):
                break
            for kind in _KINDS:
                if kind.anywhere.match(plain):
                    return kind.reason
    for plain in [] if source else _forms(_plain(name)):
        if _HARMLESS.fullmatch(plain):
            return None
        for kind in _KINDS:
            if kind.anywhere.match(plain) or kind.files.match(plain):
                return kind.reason
    return None


def of_journal(journal: str) -> re.Pattern[str]:
    """Pattern for the name of a journal and of the files beside it."""
    name = _plain(journal)
    stem, dot, suffix = name.rpartition(".")
    search = f"{stem}-search.{suffix}" if dot and stem else f"{name}-search"
    return re.compile(rf"(?:{re.escape(name)}|{re.escape(search)}).*", re.DOTALL)


def _plain(name: str) -> str:
    """The name as a case-insensitive file system compares it."""
    return unicodedata.normalize("NFKC", name).casefold().rstrip(" .").lstrip(" ")


def _forms(name: str) -> list[str]:
    """The name, and the original names if it looks like a copy, a backup or a compressed file."""
    found = [name]
    for each in found:
        whole = (each[:end] for end in range(1, len(each)) if _COPY.fullmatch(each, end))
        shorter = [next(whole, each), _WITHIN.sub("", each)]
        shorter += [each[lock.end() :] for lock in [_BEFORE.match(each)] if lock]
        found += [form for form in shorter if form not in found and len(found) < 12]
    return found
