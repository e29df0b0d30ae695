"""What the hub reads of a README: a front matter that is kept, completed, and YAML."""

from __future__ import annotations

from typing import Any

import pytest
from orsay.errors import SpaceError
from orsay.spaces.card import TAGS, Card, complete, split
from orsay.spaces.name import SpaceName
from orsay.spaces.readme import readme

yaml = pytest.importorskip("yaml", reason="needs the extra 'hub'")

URL = "https://me-walls.hf.space"


def read(front_matter: str) -> dict[str, Any]:
    lines, rest = split(front_matter + "rest")
    assert rest == "rest"
    completed: dict[str, Any] = yaml.safe_load(lines)
    return completed


def test_without_a_front_matter_there_is_a_whole_one() -> None:
    card = Card("Walls & doors: a game", "Find the way out.", "Apache-2.0", 8080)
    assert read(complete("", card)) == {
        "title": "Walls & doors: a game",
        "emoji": "🎮",
        "colorFrom": "blue",
        "colorTo": "green",
        "sdk": "docker",
        "app_port": 8080,
        "base_path": "/docs",
        "pinned": False,
        "license": "apache-2.0",
        "short_description": "Find the way out",
        "tags": list(TAGS),
    }


def test_what_the_project_says_is_kept_but_for_what_a_space_must_have() -> None:
    own = (
        "# ours\ntitle: Mine\nemoji: 🧩\nsdk: gradio\nsdk_version: 4.1\napp_port: 7860\nlicense: mit\n"
        "models:\n  - me/model\npinned: true\n"
    )
    completed = complete(own, Card("Walls", "Words.", "Apache-2.0", 8080))
    found = read(completed)
    assert (found["title"], found["emoji"], found["license"], found["pinned"]) == ("Mine", "🧩", "mit", True)
    assert (found["sdk"], found["app_port"], found["models"]) == ("docker", 8080, ["me/model"])
    assert (
        "# ours" in completed
        and completed.count("title:") == completed.count("sdk:") == completed.count("app_port:") == 1
    )


@pytest.mark.parametrize(
    "own",
    [
        "tags: [game, 'ors']\n",
        "tags: [\n  game,\n  ors,\n]\n",
        "tags:\n- game\n- ors\n",
        'tags:\n  - "game"  # of two\n  - ors\ntitle: x\n',
    ],
)
def test_tags_are_completed_in_either_notation(own: str) -> None:
    assert read(complete(own, Card("Walls")))["tags"] == [
        "game",
        "ors",
        "openreward",
        "reinforcement-learning",
    ]


@pytest.mark.parametrize(
    "title", ['"Quoted" \\ title', "yes", "42", "- dash", "#1", "a: b", "ümlaut", "1e5", "x'y"]
)
def test_any_title_is_read_back_as_it_is(title: str) -> None:
    assert read(complete("", Card(title)))["title"] == title


def test_a_licence_that_the_hub_does_not_know_is_left_out_and_a_long_description_too() -> None:
    completed = read(complete("", Card("Walls", "word " * 20, "LicenseRef-Own", 8080)))
    assert "license" not in completed and "short_description" not in completed
    assert read(complete("", Card("Walls", license="GPL-3.0-or-later")))["license"] == "gpl-3.0"


def test_a_text_that_only_looks_like_a_front_matter_is_none() -> None:
    text = "# Walls\n\n---\n\nA line above, and one below.\n\n---\n"
    assert split(text) == ("", text)
    assert split("---\ntitle: x\n---\nbody") == ("title: x\n", "body")
    assert split("---\n---\nbody") == ("", "body")


def test_our_part_of_a_readme_is_there_once_however_often_it_is_made() -> None:
    card = Card("Walls", "Find the way out.")
    once = readme("# Walls\n\nText.\n", card, URL)
    again = readme(once, card, "https://me-other.hf.space")
    assert again == once.replace(URL, "https://me-other.hf.space")
    assert once.count("## Train on it") == 1 and once.count("\n# ") == 1


def test_a_project_without_a_readme_gets_its_name_and_description() -> None:
    assert "# Walls\n\nFind the way out.\n" in readme("", Card("Walls", "Find the way out."), URL)


@pytest.mark.parametrize(
    ("text", "name", "url"),
    [
        ("me/walls", "me/walls", "https://me-walls.hf.space"),
        ("Me/My_Walls.v2", "Me/My_Walls.v2", "https://me-my-walls-v2.hf.space"),
        ("https://huggingface.co/spaces/me/walls/", "me/walls", "https://me-walls.hf.space"),
    ],
)
def test_a_space_has_an_address(text: str, name: str, url: str) -> None:
    found = SpaceName.parse(text)
    assert (str(found), found.url) == (name, url)


@pytest.mark.parametrize(
    "text", ["", "walls", "/walls", "me/", "me/a/b", "me/-a", "me/a.", "me/a..b", "me/a.git", "m e/a"]
)
def test_what_cannot_be_a_space_is_refused(text: str) -> None:
    with pytest.raises(SpaceError, match="Space"):
        SpaceName.parse(text)
