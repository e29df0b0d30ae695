from orsay import host

from reverse import Reverse


def test_it_can_be_served() -> None:
    assert [tool.name for tool in host(Reverse).listing.tools] == ["submit"]


def test_the_right_answer_wins() -> None:
    output = Reverse({"word": "stone"}).submit("enots")
    assert (output.reward, output.finished) == (1.0, True)
